//! Packing one code at a time: the plain definition of the packed form, which [`units`](super::units) is compared with.

use glia_core::DType;
use half::f16;

use super::format::{Format, Scales, scale_min};

/// Codes, scales and minimum of 32 elements of one row.
#[derive(Clone, Copy)]
pub(super) struct Block32 {
    pub codes: [u8; 32],
    pub scales: [f16; 2],
    pub min: f16,
    /// Instead of scales and minimum, what they are multiples of (see [`Scales::Super`]): first of the scales.
    pub units: [f16; 2],
    pub steps: [i8; 2],
    pub min_step: i8,
}

impl Block32 {
    pub(super) const ZERO: Block32 = Block32 {
        codes: [0; 32],
        scales: [f16::ZERO; 2],
        min: f16::ZERO,
        units: [f16::ZERO; 2],
        steps: [0; 2],
        min_step: 0,
    };
}

fn half_at(b: &[u8], at: usize) -> f16 {
    f16::from_le_bytes([b[at], b[at + 1]])
}

fn split_nibbles(q: &[u8], codes: &mut [u8; 32]) {
    for i in 0..16 {
        codes[i] = q[i] & 15;
        codes[i + 16] = q[i] >> 4;
    }
}

fn add_bits(q: &[u8], codes: &mut [u8; 32]) {
    let bits = u32::from_le_bytes([q[0], q[1], q[2], q[3]]);
    for (i, c) in codes.iter_mut().enumerate() {
        *c |= ((bits >> i & 1) as u8) << 4;
    }
}

/// Decodes one block of the file into its runs of 32 elements.
pub(super) fn unpack(dtype: DType, b: &[u8], out: &mut [Block32]) {
    let mut one = Block32::ZERO;
    one.scales = [half_at(b, 0); 2];
    match dtype {
        DType::Q4_0 => split_nibbles(&b[2..], &mut one.codes),
        DType::Q4_1 => {
            one.min = half_at(b, 2);
            split_nibbles(&b[4..], &mut one.codes);
        }
        DType::Q5_0 => {
            split_nibbles(&b[6..], &mut one.codes);
            add_bits(&b[2..], &mut one.codes);
        }
        DType::Q5_1 => {
            one.min = half_at(b, 2);
            split_nibbles(&b[8..], &mut one.codes);
            add_bits(&b[4..], &mut one.codes);
        }
        DType::Q8_0 => {
            for (c, q) in one.codes.iter_mut().zip(&b[2..34]) {
                *c = q ^ 128;
            }
        }
        DType::Q4_K | DType::Q5_K => return unpack_k(dtype, b, out),
        DType::Q6_K => return unpack_q6_k(b, out),
        _ => {}
    }
    out[0] = one;
}

fn unpack_k(dtype: DType, b: &[u8], out: &mut [Block32]) {
    let units = [half_at(b, 0), -half_at(b, 2)];
    let five = dtype == DType::Q5_K;
    let q = if five { &b[48..] } else { &b[16..] };
    for (j, o) in out.iter_mut().enumerate().take(8) {
        let (sc, m) = scale_min(&b[4..16], j);
        o.units = units;
        o.steps = [sc as i8; 2];
        o.min_step = m as i8;
        for i in 0..32 {
            let high = if five { (b[16 + i] >> j & 1) << 4 } else { 0 };
            o.codes[i] = (q[j / 2 * 32 + i] >> (j % 2 * 4) & 15) | high;
        }
    }
}

fn unpack_q6_k(b: &[u8], out: &mut [Block32]) {
    let units = [half_at(b, 208), f16::ZERO];
    for (j, o) in out.iter_mut().enumerate().take(8) {
        let (half, part) = (j / 4, j % 4);
        for i in 0..32 {
            let low = b[half * 64 + part % 2 * 32 + i] >> (part / 2 * 4) & 15;
            let high = b[128 + half * 32 + i] >> (part * 2) & 3;
            o.codes[i] = low | high << 4;
        }
        o.units = units;
        o.steps = [0, 1].map(|s| b[192 + j * 2 + s] as i8);
    }
}

/// Stores row `row` (0 to 15) of run `index` of a unit.
pub(super) fn store(format: Format, row: usize, index: usize, b: &Block32, unit: &mut [u8]) {
    let (runs, tail) = unit.split_at_mut(format.runs() * format.run_bytes());
    let run = &mut runs[index * format.run_bytes()..][..format.run_bytes()];
    store_codes(format, row, &b.codes, run);
    let n_mins = usize::from(format.has_min);
    match format.scales {
        Scales::Half => {
            let mut put = |at: usize, value: f16| run[at + row * 2..][..2].copy_from_slice(&value.to_le_bytes());
            (0..format.n_scales).for_each(|s| put(format.scale_at(s), b.scales[s]));
            (0..n_mins).for_each(|_| put(format.min_at(), b.min));
        }
        Scales::Super => {
            (0..format.n_scales).for_each(|s| run[format.scale_at(s) + row] = b.steps[s] as u8);
            (0..n_mins).for_each(|_| run[format.min_at() + row] = b.min_step as u8);
            for (unit, out) in b.units.iter().zip(tail.chunks_exact_mut(32)) {
                out[row * 2..][..2].copy_from_slice(&unit.to_le_bytes());
            }
        }
    }
}

fn store_codes(format: Format, row: usize, codes: &[u8; 32], run: &mut [u8]) {
    const LOW: u32 = 0x0f0f_0f0f;
    let words: [u32; 8] = std::array::from_fn(|g| {
        let four = codes[g * 4..].first_chunk().copied().unwrap_or_default();
        u32::from_le_bytes(four)
    });
    let mut put = |at: usize, word: u32| run[at + row * 4..][..4].copy_from_slice(&word.to_le_bytes());
    if format.bits == 8 {
        (0..8).for_each(|g| put(g * 64, words[g]));
        return;
    }
    (0..4).for_each(|g| put(g * 64, words[g] & LOW | (words[g + 4] & LOW) << 4));
    if format.bits == 6 {
        for plane in 0..2 {
            let pairs = (0..4).map(|i| (words[plane * 4 + i] >> 4 & 0x0303_0303) << (i * 2));
            put(256 + plane * 64, pairs.fold(0, |all, pair| all | pair));
        }
    }
    if format.bits == 5 {
        for (g, word) in words.iter().enumerate() {
            // The fifth bits of four codes, side by side: multiplying gathers them in the top byte.
            let high = (word >> 4 & 0x0101_0101).wrapping_mul(0x1020_4080) >> 28;
            run[256 + g * 8 + row / 2] |= (high as u8) << (row % 2 * 4);
        }
    }
}
