//! Products of quantised tiles with f32 activations, for exact precision: codes become the very numbers that the format
//! defines, in registers, then one multiply-add per element in order of k.

use crate::pack::{Format, PackedRun};
use crate::simd::{leveled, madd};

/// Rows that share a decoded column.
const ROWS: usize = 8;

leveled! {
    /// One tile for `m` rows of f32 activations (as bytes); `put` takes each row's 16 results.
    pub(crate) fn tile(format: Format, tile: &[u8], acts: &[u8], m: usize, put: &mut dyn FnMut(usize, &[f32; 16])) {
        let k = format.columns(tile);
        let mut row = 0;
        while row < m {
            let acts = &acts[row * k * 4..];
            row += match m - row {
                ROWS.. => rows::<FMA, ROWS>(format, tile, acts, k, row, put),
                4..ROWS => rows::<FMA, 4>(format, tile, acts, k, row, put),
                2..4 => rows::<FMA, 2>(format, tile, acts, k, row, put),
                _ => rows::<FMA, 1>(format, tile, acts, k, row, put),
            };
        }
    }
}

#[inline(always)]
fn rows<const FMA: bool, const M: usize>(
    format: Format,
    tile: &[u8],
    acts: &[u8],
    k: usize,
    row: usize,
    put: &mut dyn FnMut(usize, &[f32; 16]),
) -> usize {
    let mut acc = [[0f32; 16]; M];
    let rows: [&[[u8; 4]]; M] = std::array::from_fn(|r| &acts[r * k * 4..].as_chunks().0[..k]);
    for (b, run) in PackedRun::of_tile(format, tile).enumerate() {
        let scales: [[f32; 16]; 2] = std::array::from_fn(|s| run.scales(s.min(format.n_scales - 1)));
        let mins = if format.has_min { run.mins() } else { [0.0; 16] };
        for g in 0..8 {
            let words = run.words(g);
            let scale = &scales[g / 4];
            for kk in 0..4 {
                let mut column = [0f32; 16];
                for lane in 0..16 {
                    let code = (words[lane] >> (8 * kk) & 255) as i32 - format.offset;
                    // The product is exact or rounded once, as in the format's definition.
                    column[lane] = code as f32 * scale[lane] + mins[lane];
                }
                for r in 0..M {
                    let x = f32::from_ne_bytes(rows[r][b * 32 + g * 4 + kk]);
                    for lane in 0..16 {
                        acc[r][lane] = madd::<FMA>(x, column[lane], acc[r][lane]);
                    }
                }
            }
        }
    }
    for (r, acc) in acc.iter().enumerate() {
        put(row + r, acc);
    }
    M
}
