//! Products of quantised tiles with f32 activations, for exact precision: codes become the very numbers that the format
//! defines, in registers, then one multiply-add per element in order of k.

use crate::pack::Format;
use crate::simd::{leveled, madd};

/// Rows that share a decoded column.
const ROWS: usize = 8;

leveled! {
    /// One tile for `m` rows of f32 activations (as bytes); `put` takes each row's 16 results.
    pub(crate) fn tile(format: Format, tile: &[u8], acts: &[u8], m: usize, put: &mut dyn FnMut(usize, &[f32; 16])) {
        let k = tile.len() / format.block_bytes() * 32;
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
    for (b, w) in tile.chunks_exact(format.block_bytes()).enumerate() {
        let scales: [[f32; 16]; 2] =
            std::array::from_fn(|s| lanes(format, w, format.scale_at(s.min(format.n_scales - 1))));
        let mins = if format.has_min {
            lanes(format, w, format.min_at())
        } else {
            [0.0; 16]
        };
        for g in 0..8 {
            let words = words(format, w, g);
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

/// Scales or minima of the 16 rows.
#[inline(always)]
fn lanes(format: Format, b: &[u8], at: usize) -> [f32; 16] {
    if !format.wide {
        let halves = b[at..at + 32].as_chunks().0;
        return std::array::from_fn(|i| half::f16::from_le_bytes(halves[i]).to_f32());
    }
    let floats = b[at..at + 64].as_chunks().0;
    std::array::from_fn(|i| f32::from_le_bytes(floats[i]))
}

/// Codes of group `g`: those of a row in one word.
#[inline(always)]
fn words(format: Format, w: &[u8], g: usize) -> [u32; 16] {
    let four = |at: usize| -> [u32; 16] {
        let words = w[at..at + 64].as_chunks().0;
        std::array::from_fn(|i| u32::from_le_bytes(words[i]))
    };
    if format.bits == 8 {
        return four(g * 64);
    }
    let mut codes = four(g % 4 * 64).map(|word| word >> (g / 4 * 4) & 0x0f0f_0f0f);
    if format.bits == 5 {
        for (row, word) in codes.iter_mut().enumerate() {
            let high = u32::from(w[256 + g * 8 + row / 2] >> (row % 2 * 4) & 15);
            // The four bits, one per byte.
            *word |= (high.wrapping_mul(0x0020_4081) & 0x0101_0101) << 4;
        }
    }
    codes
}
