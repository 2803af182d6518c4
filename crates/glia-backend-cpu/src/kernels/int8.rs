//! Int8 products: rows quantised in blocks of 32, exact integer dots, one fused multiply-add per block in order of k.
//!
//! A prepared block is 32 codes, the scale, two integers that the accumulators of its halves begin with (minus
//! offset times sum of codes; the first is of the whole block where the format has one scale), and scale times sum.
//! Rows that a kernel takes together lie together: in a [panel](Panels) of `p` rows, block `b` of row `r` is the
//! `b * p + r`th.

use std::ops::Range;

#[cfg(target_arch = "x86_64")]
use super::avx512::wide;
use crate::isa::Isa;
use crate::pack::{Format, PackedRun};

/// Bytes of a prepared block of 32 activations.
pub(crate) const ACT_BLOCK: usize = 48;

/// From how many rows on codes are unpacked to memory, where a kernel for that exists.
#[cfg(target_arch = "x86_64")]
const WIDE_ROWS: usize = 2 * Panels::ROWS;

/// The rows that kernels take together: as many as accumulators fit in registers, then what is left in powers of two.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Panels {
    m: usize,
}

impl Panels {
    /// Rows of a full panel.
    pub const ROWS: usize = 12;

    pub fn of(m: usize) -> Panels {
        Panels { m }
    }

    pub fn len(self) -> usize {
        self.m / Self::ROWS + (self.m % Self::ROWS).count_ones() as usize
    }

    /// Rows of panel `index`.
    pub fn rows(self, index: usize) -> Range<usize> {
        let full = self.m / Self::ROWS;
        if index < full {
            return index * Self::ROWS..(index + 1) * Self::ROWS;
        }
        let (mut first, mut left) = (full * Self::ROWS, self.m % Self::ROWS);
        for _ in full..index {
            let width = widest(left);
            (first, left) = (first + width, left - width);
        }
        first..first + widest(left)
    }
}

/// The largest power of two up to `n`; 0 for 0.
fn widest(n: usize) -> usize {
    n.checked_ilog2().map_or(0, |log| 1 << log)
}

/// Quantises the rows of one panel, `x` being `rows` rows: scale is the largest magnitude over 127, codes round to
/// nearest even. The same bytes on every instruction set.
pub(crate) fn quantize_panel(isa: Isa, x: &[f32], rows: usize, format: Format, out: &mut [u8]) {
    let k = x.len() / rows.max(1);
    for (row, x) in x.chunks_exact(k.max(1)).enumerate() {
        match isa {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a matrix is packed only for an instruction set that this machine has.
            Isa::Avx512Vnni => unsafe { super::avx512::quantize::row(x, (row, rows), format, out) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Isa::Avx2 | Isa::Avx2Vnni => unsafe { quantize_avx2(x, (row, rows), format, out) },
            _ => quantize(x, (row, rows), format, out),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn quantize_avx2(x: &[f32], place: (usize, usize), format: Format, out: &mut [u8]) {
    quantize(x, place, format, out);
}

#[inline(always)]
fn quantize(x: &[f32], (row, rows): (usize, usize), format: Format, out: &mut [u8]) {
    let outs = out.chunks_exact_mut(ACT_BLOCK).skip(row).step_by(rows);
    for (x, out) in x.as_chunks::<32>().0.iter().zip(outs) {
        let mut lanes = [0f32; 8];
        for part in x.as_chunks::<8>().0 {
            for (l, v) in lanes.iter_mut().zip(part) {
                *l = if v.abs() > *l { v.abs() } else { *l };
            }
        }
        let largest = lanes.iter().fold(0f32, |a, &v| if v > a { v } else { a });
        // A NaN or infinity must not vanish in the integers: it is carried by the scale.
        let odd = x.iter().any(|v| !v.is_finite());
        let scale = if odd { f32::NAN } else { largest / 127.0 };
        let inverse = if largest > 0.0 && !odd { 127.0 / largest } else { 0.0 };
        let inverse = if inverse.is_finite() { inverse } else { 0.0 };
        let mut codes = [0i8; 32];
        for (c, v) in codes.iter_mut().zip(x) {
            // Adding 1.5 * 2^23 rounds to the nearest integer, ties to even, in the low bits.
            *c = (v * inverse + 12_582_912.0).to_bits() as u8 as i8;
        }
        let sum = |codes: &[i8]| codes.iter().map(|&c| i32::from(c)).sum::<i32>();
        let (first, second) = (sum(&codes[..16]), sum(&codes[16..]));
        let starts = format.starts(first, second);
        out[..32].copy_from_slice(bytemuck::cast_slice(&codes));
        out[32..36].copy_from_slice(&scale.to_ne_bytes());
        out[36..40].copy_from_slice(&starts[0].to_ne_bytes());
        out[40..44].copy_from_slice(&starts[1].to_ne_bytes());
        out[44..48].copy_from_slice(&(scale * (first + second) as f32).to_ne_bytes());
    }
}

/// Consecutive tiles of `tile_bytes` for `m` prepared rows in [`Panels`]; `put(row, tile, values)` takes the results.
/// `ask(row, tile)` is called before, by kernels that take long enough for it to help.
pub(crate) fn tiles(
    isa: Isa,
    format: Format,
    (tiles, tile_bytes): (&[u8], usize),
    acts: &[u8],
    m: usize,
    ask: &impl Fn(usize, usize),
    put: &mut impl FnMut(usize, usize, &[f32; 16]),
) {
    #[cfg(not(target_arch = "x86_64"))]
    let _ = ask;
    #[cfg(target_arch = "x86_64")]
    if isa == Isa::Avx512Vnni && m >= WIDE_ROWS {
        // SAFETY: as in `quantize_panel`.
        return unsafe { wide::tiles(format, (tiles, tile_bytes), acts, m, ask, put) };
    }
    for (index, data) in tiles.chunks_exact(tile_bytes).enumerate() {
        let put = &mut |row: usize, values: &[f32; 16]| put(row, index, values);
        tile(isa, format, data, acts, m, put);
    }
}

/// One tile.
fn tile(isa: Isa, format: Format, tile: &[u8], acts: &[u8], m: usize, put: &mut impl FnMut(usize, &[f32; 16])) {
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as in `quantize_panel`.
        Isa::Avx512Vnni => unsafe { super::avx512::int8::tile(format, tile, acts, m, put) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as in `quantize_panel`.
        Isa::Avx2 => unsafe { super::avx2::int8_tile(format, tile, acts, m, put) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as in `quantize_panel`; the machine has one of the two encodings.
        Isa::Avx2Vnni => unsafe {
            if is_x86_feature_detected!("avxvnni") {
                super::avx2::int8_tile_vnni(format, tile, acts, m, put);
            } else {
                super::avx2::int8_tile_vl(format, tile, acts, m, put);
            }
        },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as in `quantize_panel`.
        Isa::NeonDot => unsafe { super::neon::int8_tile(format, tile, acts, m, put) },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as in `quantize_panel`.
        Isa::NeonI8mm => unsafe { super::neon::int8_tile_i8mm(format, tile, acts, m, put) },
        _ => tile_plain(format, tile, acts, m, put),
    }
}

#[inline(always)]
fn tile_plain(format: Format, tile: &[u8], acts: &[u8], m: usize, put: &mut impl FnMut(usize, &[f32; 16])) {
    let row_bytes = format.columns(tile) / 32 * ACT_BLOCK;
    let panels = Panels::of(m);
    for rows in (0..panels.len()).map(|i| panels.rows(i)) {
        let panel = &acts[rows.start * row_bytes..rows.end * row_bytes];
        for row in rows.clone() {
            let blocks = panel.chunks_exact(ACT_BLOCK).skip(row - rows.start).step_by(rows.len());
            put(row, &dot_plain(format, tile, blocks));
        }
    }
}

#[inline(always)]
fn dot_plain<'a>(format: Format, tile: &[u8], blocks: impl Iterator<Item = &'a [u8]>) -> [f32; 16] {
    let mut acc = [0f32; 16];
    for (run, a) in PackedRun::of_tile(format, tile).zip(blocks) {
        let mut sums = [[word(a, 36); 16], [word(a, 40); 16]];
        for g in 0..8 {
            let sums = &mut sums[if format.n_scales == 2 { g / 4 } else { 0 }];
            let four: [i32; 4] = std::array::from_fn(|i| i32::from(a[g * 4 + i] as i8));
            let words = run.words(g);
            for (sum, word) in sums.iter_mut().zip(words) {
                for (c, x) in word.to_le_bytes().into_iter().zip(four) {
                    *sum += i32::from(c) * x;
                }
            }
        }
        let scale = f32::from_bits(word(a, 32) as u32);
        let (scales, [first, second]) = (run.scales(0), sums);
        if format.n_scales == 2 {
            let other = run.scales(1);
            for lane in 0..16 {
                let both = (second[lane] as f32).mul_add(other[lane], first[lane] as f32 * scales[lane]);
                acc[lane] = both.mul_add(scale, acc[lane]);
            }
        } else {
            for lane in 0..16 {
                acc[lane] = (first[lane] as f32).mul_add(scales[lane] * scale, acc[lane]);
            }
        }
        if format.has_min {
            let (mins, sum) = (run.mins(), f32::from_bits(word(a, 44) as u32));
            for lane in 0..16 {
                acc[lane] = mins[lane].mul_add(sum, acc[lane]);
            }
        }
    }
    acc
}

#[inline(always)]
fn word(a: &[u8], at: usize) -> i32 {
    i32::from_ne_bytes([a[at], a[at + 1], a[at + 2], a[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_cover_all_rows_in_order() {
        for m in 0..200 {
            let panels = Panels::of(m);
            let all: Vec<usize> = (0..panels.len()).flat_map(|i| panels.rows(i)).collect();
            assert_eq!(all, (0..m).collect::<Vec<_>>());
        }
        let widths: Vec<usize> = (0..4).map(|i| Panels::of(23).rows(i).len()).collect();
        assert_eq!(widths, [12, 8, 2, 1]);
    }
}
