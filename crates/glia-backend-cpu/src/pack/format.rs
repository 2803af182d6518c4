//! Integer forms of quantised rows: unsigned codes, one or two scales and perhaps a minimum per 32 elements.

use glia_core::{DType, Precision};
use half::f16;

/// What the tiles of a quantised matrix hold: `value = scale * (code - offset) + min`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    /// Stored bits of a code: 4 (nibbles), 5 (nibbles and a bit plane) or 8.
    pub bits: u8,
    /// Whether each block has a minimum.
    pub has_min: bool,
    /// Scales per 32 elements: 1 or 2.
    pub n_scales: usize,
    /// Subtracted from each code.
    pub offset: i32,
    /// Activations are F32, and values exactly what the format defines.
    pub exact: bool,
    /// Scales and minima are kept as F32 rather than F16: those of super-blocks are products, which F16 would round.
    pub wide: bool,
}

impl Format {
    /// The integer form of a dtype; `None` where rows are decoded to f32 instead.
    pub(crate) fn of(dtype: DType, precision: Precision) -> Option<Format> {
        let (bits, has_min, n_scales, offset) = match dtype {
            DType::Q4_0 => (4, false, 1, 8),
            DType::Q4_1 => (4, true, 1, 0),
            DType::Q5_0 => (5, false, 1, 16),
            DType::Q5_1 => (5, true, 1, 0),
            DType::Q8_0 => (8, false, 1, 128),
            DType::Q4_K => (4, true, 1, 0),
            DType::Q5_K => (5, true, 1, 0),
            DType::Q6_K => (8, false, 2, 32),
            _ => return None,
        };
        Some(Format {
            bits,
            has_min,
            n_scales,
            offset,
            exact: precision == Precision::Exact,
            wide: precision == Precision::Exact && dtype.block_elems() > 32,
        })
    }

    /// Bytes of the codes of 16 rows x 32 elements.
    pub(crate) const fn code_bytes(self) -> usize {
        match self.bits {
            4 => 256,
            5 => 320,
            _ => 512,
        }
    }

    /// Bytes of the scales, or of the minima, of 16 rows.
    const fn lane_bytes(self) -> usize {
        if self.wide { 64 } else { 32 }
    }

    /// Where in a block the scales `s` begin.
    pub(crate) const fn scale_at(self, s: usize) -> usize {
        self.code_bytes() + s * self.lane_bytes()
    }

    /// Where in a block the minima begin, if there are any.
    pub(crate) const fn min_at(self) -> usize {
        self.scale_at(self.n_scales)
    }

    /// Bytes of one block of a tile: codes, then scales, then minima, 16 lanes each.
    pub(crate) const fn block_bytes(self) -> usize {
        self.min_at() + if self.has_min { self.lane_bytes() } else { 0 }
    }
}

/// Codes, scales and minimum of 32 elements of one row.
#[derive(Clone, Copy)]
pub(super) struct Block32 {
    pub codes: [u8; 32],
    pub scales: [f32; 2],
    pub min: f32,
}

impl Block32 {
    pub(super) const ZERO: Block32 = Block32 {
        codes: [0; 32],
        scales: [0.0; 2],
        min: 0.0,
    };
}

fn half_at(b: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([b[at], b[at + 1]]).to_f32()
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

/// 6-bit scale and minimum `j` of a Q4_K or Q5_K block.
fn scale_min(s: &[u8], j: usize) -> (u8, u8) {
    if j < 4 {
        (s[j] & 63, s[j + 4] & 63)
    } else {
        (s[j + 4] & 15 | s[j - 4] >> 6 << 4, s[j + 4] >> 4 | s[j] >> 6 << 4)
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
    let (d, dmin) = (half_at(b, 0), half_at(b, 2));
    let five = dtype == DType::Q5_K;
    let q = if five { &b[48..] } else { &b[16..] };
    for (j, o) in out.iter_mut().enumerate().take(8) {
        let (sc, m) = scale_min(&b[4..16], j);
        o.scales = [d * f32::from(sc); 2];
        o.min = -(dmin * f32::from(m));
        for i in 0..32 {
            let high = if five { (b[16 + i] >> j & 1) << 4 } else { 0 };
            o.codes[i] = (q[j / 2 * 32 + i] >> (j % 2 * 4) & 15) | high;
        }
    }
}

fn unpack_q6_k(b: &[u8], out: &mut [Block32]) {
    let d = half_at(b, 208);
    for (j, o) in out.iter_mut().enumerate().take(8) {
        let (half, part) = (j / 4, j % 4);
        for i in 0..32 {
            let low = b[half * 64 + part % 2 * 32 + i] >> (part / 2 * 4) & 15;
            let high = b[128 + half * 32 + i] >> (part * 2) & 3;
            o.codes[i] = low | high << 4;
        }
        o.scales = [0, 1].map(|s| d * f32::from(b[192 + j * 2 + s] as i8));
        o.min = 0.0;
    }
}

/// Stores row `row` (0 to 15) of a tile's block.
pub(super) fn store(format: Format, row: usize, b: &Block32, tile: &mut [u8]) {
    let word = |g: usize| {
        u32::from_le_bytes([
            b.codes[g * 4],
            b.codes[g * 4 + 1],
            b.codes[g * 4 + 2],
            b.codes[g * 4 + 3],
        ])
    };
    const LOW: u32 = 0x0f0f_0f0f;
    if format.bits == 8 {
        for g in 0..8 {
            tile[g * 64 + row * 4..][..4].copy_from_slice(&word(g).to_le_bytes());
        }
    } else {
        for g in 0..4 {
            let pair = word(g) & LOW | (word(g + 4) & LOW) << 4;
            tile[g * 64 + row * 4..][..4].copy_from_slice(&pair.to_le_bytes());
        }
    }
    if format.bits == 5 {
        for g in 0..8 {
            // The fifth bits of four codes, side by side: multiplying gathers them in the top byte.
            let high = (word(g) >> 4 & 0x0101_0101).wrapping_mul(0x1020_4080) >> 28;
            tile[256 + g * 8 + row / 2] |= (high as u8) << (row % 2 * 4);
        }
    }
    let mut put = |at: usize, value: f32| {
        if format.wide {
            tile[at + row * 4..][..4].copy_from_slice(&value.to_le_bytes());
        } else {
            tile[at + row * 2..][..2].copy_from_slice(&f16::from_f32(value).to_le_bytes());
        }
    };
    for s in 0..format.n_scales {
        put(format.scale_at(s), b.scales[s]);
    }
    if format.has_min {
        put(format.min_at(), b.min);
    }
}
