//! The IQ types with codebooks: an index looks up four or eight codes at once, signs are put on as whole words.

use glia_core::DType;
use glia_core::quant::grid;
use half::f16;

use crate::kernels::runs::{OFFSET, Run};
use crate::simd::leveled;

/// Eight codes of a grid entry, the first in the low byte: `factor` times the number, plus [`OFFSET`].
const fn eights<const N: usize>(grid: &[[i8; 8]; N], factor: i32) -> [u64; N] {
    let mut words = [0; N];
    let mut i = 0;
    while i < N {
        let mut j = 0;
        while j < 8 {
            words[i] |= ((grid[i][j] as i32 * factor + OFFSET) as u64) << (8 * j);
            j += 1;
        }
        i += 1;
    }
    words
}

/// As [`eights`], four codes.
const fn fours<const N: usize>(grid: &[[i8; 4]; N]) -> [u32; N] {
    let mut words = [0; N];
    let mut i = 0;
    while i < N {
        let mut j = 0;
        while j < 4 {
            words[i] |= ((grid[i][j] as i32 + OFFSET) as u32) << (8 * j);
            j += 1;
        }
        i += 1;
    }
    words
}

/// For each set of sign bits a byte of ones per negative element.
const fn masks<const N: usize>(even: bool) -> [u64; N] {
    let mut masks = [0; N];
    let mut i = 0;
    while i < N {
        let signs = if even { grid::even_signs(i as u32) } else { i as u8 };
        let mut j = 0;
        while j < 8 {
            masks[i] |= (signs as u64 >> j & 1) * (255 << (8 * j));
            j += 1;
        }
        i += 1;
    }
    masks
}

static IQ1: [u64; 2048] = eights(&grid::IQ1, 8);
static IQ2_XXS: [u64; 256] = eights(&grid::IQ2_XXS, 1);
static IQ2_XS: [u64; 512] = eights(&grid::IQ2_XS, 1);
static IQ2_S: [u64; 1024] = eights(&grid::IQ2_S, 1);
static IQ3_XXS: [u32; 256] = fours(&grid::IQ3_XXS);
static IQ3_S: [u32; 512] = fours(&grid::IQ3_S);
static SIGNS: [u64; 256] = masks(false);
static EVEN_SIGNS: [u64; 128] = masks(true);

const ONES: u64 = 0x0101_0101_0101_0101;

/// Codes mirrored at [`OFFSET`] where the mask is set: `256 - code`, which no byte carries out of.
#[inline(always)]
fn signed(codes: u64, mask: u64) -> u64 {
    (codes ^ mask) + (mask & ONES)
}

#[inline(always)]
fn put(run: &mut Run, vector: usize, lane: usize, codes: u64) {
    run.codes[vector * 2][lane] = codes as u32;
    run.codes[vector * 2 + 1][lane] = (codes >> 32) as u32;
}

#[inline(always)]
fn u16_at(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([b[at], b[at + 1]])
}

#[inline(always)]
fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

#[inline(always)]
fn half_at(b: &[u8], at: usize) -> f32 {
    f16::from_bits(u16_at(b, at)).to_f32()
}

leveled! {
    /// Decodes block `block` of each row (up to 16, `row_bytes` apart).
    pub(super) fn decode(dtype: DType, rows: &[u8], row_bytes: usize, block: usize, runs: &mut [Run]) {
        match dtype {
            DType::IQ1_S => each(rows, row_bytes, block, runs, iq1_s),
            DType::IQ1_M => each(rows, row_bytes, block, runs, iq1_m),
            DType::IQ2_XXS => each(rows, row_bytes, block, runs, iq2_xxs),
            DType::IQ2_XS => each(rows, row_bytes, block, runs, iq2_xs),
            DType::IQ2_S => each(rows, row_bytes, block, runs, iq2_s),
            DType::IQ3_XXS => each(rows, row_bytes, block, runs, iq3_xxs),
            DType::IQ3_S => each(rows, row_bytes, block, runs, iq3_s),
            _ => {}
        }
    }
}

#[inline(always)]
fn each<const B: usize>(
    rows: &[u8],
    row_bytes: usize,
    block: usize,
    runs: &mut [Run],
    decode: impl Fn(&[u8; B], usize, &mut [Run; 8]),
) {
    let Some((runs, _)) = runs.split_first_chunk_mut::<8>() else {
        return;
    };
    for (lane, row) in rows.chunks_exact(row_bytes).take(16).enumerate() {
        if let Some(raw) = row.as_chunks::<B>().0.get(block) {
            decode(raw, lane, runs);
        }
    }
}

#[inline(always)]
fn iq1_s(b: &[u8; 50], lane: usize, runs: &mut [Run; 8]) {
    let d = half_at(b, 0);
    for (r, run) in runs.iter_mut().enumerate() {
        let bits = u16_at(b, 34 + r * 2);
        // The codes are eight times the values, the shift of an eighth among them.
        run.scales[0][lane] = d * f32::from(2 * (bits >> 12 & 7) + 1) * 0.125;
        for v in 0..4 {
            let index = usize::from(b[2 + r * 4 + v]) | usize::from(bits >> (3 * v) & 7) << 8;
            put(run, v, lane, shifted(IQ1[index], bits & 0x8000 != 0));
        }
    }
}

/// Codes plus one, or minus one.
#[inline(always)]
fn shifted(codes: u64, down: bool) -> u64 {
    codes.wrapping_add(if down { ONES.wrapping_neg() } else { ONES })
}

#[inline(always)]
fn iq1_m(b: &[u8; 56], lane: usize, runs: &mut [Run; 8]) {
    let scales: [u16; 4] = std::array::from_fn(|i| u16_at(b, 48 + 2 * i));
    let bits = scales[0] >> 12 | scales[1] >> 8 & 0xf0 | scales[2] >> 4 & 0xf00 | scales[3] & 0xf000;
    let d = f16::from_bits(bits).to_f32();
    for (r, run) in runs.iter_mut().enumerate() {
        for half in 0..2 {
            let sub = r * 2 + half;
            run.scales[half][lane] = d * f32::from(2 * (scales[r / 2] >> (3 * (sub % 4)) & 7) + 1) * 0.125;
            for v in 0..2 {
                let nibble = b[32 + sub] >> (4 * v);
                let index = usize::from(b[sub * 2 + v]) | usize::from(nibble & 7) << 8;
                put(run, half * 2 + v, lane, shifted(IQ1[index], nibble & 8 != 0));
            }
        }
    }
}

#[inline(always)]
fn iq2_xxs(b: &[u8; 66], lane: usize, runs: &mut [Run; 8]) {
    let d = half_at(b, 0);
    for (r, run) in runs.iter_mut().enumerate() {
        let at = 2 + r * 8;
        let bits = u32_at(b, at + 4);
        run.scales[0][lane] = d * (0.5 + (bits >> 28) as f32) * 0.25;
        for v in 0..4 {
            let mask = EVEN_SIGNS[(bits >> (7 * v) & 127) as usize];
            put(run, v, lane, signed(IQ2_XXS[usize::from(b[at + v])], mask));
        }
    }
}

/// Scales of the halves of a run from the two nibbles of a byte.
#[inline(always)]
fn nibble_scales(d: f32, byte: u8, run: &mut Run, lane: usize) {
    run.scales[0][lane] = d * (0.5 + f32::from(byte & 15)) * 0.25;
    run.scales[1][lane] = d * (0.5 + f32::from(byte >> 4)) * 0.25;
}

#[inline(always)]
fn iq2_xs(b: &[u8; 74], lane: usize, runs: &mut [Run; 8]) {
    let d = half_at(b, 0);
    for (r, run) in runs.iter_mut().enumerate() {
        nibble_scales(d, b[66 + r], run, lane);
        for v in 0..4 {
            let bits = u16_at(b, 2 + r * 8 + v * 2);
            let codes = IQ2_XS[usize::from(bits & 511)];
            put(run, v, lane, signed(codes, EVEN_SIGNS[usize::from(bits >> 9)]));
        }
    }
}

#[inline(always)]
fn iq2_s(b: &[u8; 82], lane: usize, runs: &mut [Run; 8]) {
    let d = half_at(b, 0);
    for (r, run) in runs.iter_mut().enumerate() {
        nibble_scales(d, b[74 + r], run, lane);
        for v in 0..4 {
            let i = r * 4 + v;
            let index = usize::from(b[2 + i]) | usize::from(b[66 + r] >> (2 * v) & 3) << 8;
            put(run, v, lane, signed(IQ2_S[index], SIGNS[usize::from(b[34 + i])]));
        }
    }
}

#[inline(always)]
fn iq3_xxs(b: &[u8; 98], lane: usize, runs: &mut [Run; 8]) {
    let d = half_at(b, 0);
    for (r, run) in runs.iter_mut().enumerate() {
        let bits = u32_at(b, 66 + r * 4);
        run.scales[0][lane] = d * (0.5 + (bits >> 28) as f32) * 0.5;
        for v in 0..4 {
            let i = 2 + r * 8 + v * 2;
            let codes = u64::from(IQ3_XXS[usize::from(b[i])]) | u64::from(IQ3_XXS[usize::from(b[i + 1])]) << 32;
            put(
                run,
                v,
                lane,
                signed(codes, EVEN_SIGNS[(bits >> (7 * v) & 127) as usize]),
            );
        }
    }
}

#[inline(always)]
fn iq3_s(b: &[u8; 110], lane: usize, runs: &mut [Run; 8]) {
    let d = half_at(b, 0);
    for (r, run) in runs.iter_mut().enumerate() {
        run.scales[0][lane] = d * f32::from(1 + 2 * (b[106 + r / 2] >> (r % 2 * 4) & 15));
        let high = usize::from(b[66 + r]);
        for v in 0..4 {
            let i = 2 + r * 8 + v * 2;
            let first = IQ3_S[usize::from(b[i]) | (high >> (2 * v) & 1) << 8];
            let second = IQ3_S[usize::from(b[i + 1]) | (high >> (2 * v + 1) & 1) << 8];
            let codes = u64::from(first) | u64::from(second) << 32;
            put(run, v, lane, signed(codes, SIGNS[usize::from(b[74 + r * 4 + v])]));
        }
    }
}
