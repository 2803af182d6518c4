//! Blocks of 16 rows side by side, field by field: what was one word, half or byte of a block becomes sixteen, so that
//! decoding is the same few operations on sixteen lanes.

use glia_core::DType;
use glia_core::quant::{E2M1_DOUBLED, IQ4_LEVELS};

use crate::kernels::lookup::lookup;
use crate::kernels::runs::{OFFSET, RUNS, Run};
use crate::simd::{Level, leveled};

/// What a block holds: words of 32 bits with codes, then halves, then bytes, 16 of each.
#[derive(Clone, Copy)]
pub(super) struct Fields {
    /// Words, and where they begin in a block of the file.
    words: usize,
    words_at: usize,
    halves: usize,
    bytes: usize,
}

impl Fields {
    pub(super) const fn bytes(self) -> usize {
        16 * (self.words * 4 + self.halves * 2 + self.bytes)
    }
}

/// Bytes of 256 columns of any type: at most those of Q8_1, whose blocks are 32 bytes of codes and a half.
pub(super) const MOST_BYTES: usize = 16 * RUNS * 34;

/// `None` for types whose codes are indices of codebooks.
pub(super) const fn fields(dtype: DType) -> Option<Fields> {
    let (words, words_at, halves, bytes) = match dtype {
        DType::Q2_K => (16, 16, 2, 16),
        DType::Q3_K => (24, 0, 1, 16),
        DType::TQ1_0 => (13, 0, 1, 0),
        DType::TQ2_0 => (16, 0, 1, 0),
        DType::IQ4_NL => (4, 2, 1, 0),
        DType::IQ4_XS => (32, 8, 1, 8),
        DType::MXFP4 => (4, 1, 0, 1),
        DType::NVFP4 => (8, 4, 0, 4),
        DType::Q8_1 => (8, 4, 1, 0),
        DType::Q8_K => (65, 0, 0, 0),
        _ => return None,
    };
    Some(Fields {
        words,
        words_at,
        halves,
        bytes,
    })
}

/// Fills `out`, which is zero, with the blocks of `rows` from `first` on.
pub(super) fn pack(dtype: DType, rows: &[u8], row_bytes: usize, first: usize, out: &mut [u8]) {
    let (Some(fields), size) = (fields(dtype), dtype.block_bytes()) else {
        return;
    };
    for (lane, row) in rows.chunks_exact(row_bytes).take(16).enumerate() {
        let raws = row[first * size..].chunks_exact(size);
        for (raw, out) in raws.zip(out.chunks_exact_mut(fields.bytes())) {
            put(dtype, fields, raw, lane, out);
        }
    }
}

/// Puts a block of the file into its lane.
#[inline(always)]
fn put(dtype: DType, fields: Fields, raw: &[u8], lane: usize, out: &mut [u8]) {
    let (words, rest) = out.split_at_mut(fields.words * 64);
    let (halves, bytes) = rest.split_at_mut(fields.halves * 32);
    let from = &raw[fields.words_at..][..fields.words * 4];
    for (word, out) in from.as_chunks::<4>().0.iter().zip(words.as_chunks_mut::<64>().0) {
        out[lane * 4..][..4].copy_from_slice(word);
    }
    let mut half = |i: usize, at: usize| halves[i * 32 + lane * 2..][..2].copy_from_slice(&raw[at..at + 2]);
    let mut byte = |i: usize, value: u8| bytes[i * 16 + lane] = value;
    match dtype {
        DType::Q2_K => {
            half(0, 80);
            half(1, 82);
            (0..16).for_each(|i| byte(i, raw[i]));
        }
        DType::Q3_K => {
            half(0, 108);
            for i in 0..16 {
                let low = raw[96 + i % 8] >> (i / 8 * 4) & 15;
                let high = raw[104 + i % 4] >> (i / 4 * 2) & 3;
                byte(i, (low | high << 4).wrapping_sub(32));
            }
        }
        DType::TQ1_0 => half(0, 52),
        DType::TQ2_0 => half(0, 64),
        DType::IQ4_NL | DType::Q8_1 => half(0, 0),
        DType::IQ4_XS => {
            half(0, 0);
            for i in 0..8 {
                let low = raw[4 + i / 2] >> (i % 2 * 4) & 15;
                let high = raw[2 + i / 4] >> (i % 4 * 2) & 3;
                byte(i, (low | high << 4).wrapping_sub(32));
            }
        }
        DType::MXFP4 => byte(0, raw[0]),
        DType::NVFP4 => (0..4).for_each(|i| byte(i, raw[i])),
        _ => {}
    }
}

/// Fields of interleaved blocks, sixteen lanes at a time.
struct Lanes<'a> {
    words: &'a [[u8; 64]],
    halves: &'a [[u8; 32]],
    bytes: &'a [[u8; 16]],
}

impl Lanes<'_> {
    #[inline(always)]
    fn word(&self, i: usize) -> [u32; 16] {
        let words = self.words[i].as_chunks().0;
        std::array::from_fn(|lane| u32::from_le_bytes(words[lane]))
    }

    #[inline(always)]
    fn half(&self, i: usize) -> [f32; 16] {
        let halves = self.halves[i].as_chunks().0;
        std::array::from_fn(|lane| widen(u16::from_le_bytes(halves[lane])))
    }

    /// `factor` times signed bytes.
    #[inline(always)]
    fn signed(&self, i: usize, factor: &[f32; 16]) -> [f32; 16] {
        std::array::from_fn(|lane| factor[lane] * f32::from(self.bytes[i][lane] as i8))
    }
}

/// An f16 as f32, without a branch.
#[inline(always)]
fn widen(half: u16) -> f32 {
    let bits = u32::from(half & 0x7fff) << 13;
    // The exponent's bias is 112 too small; subnormals become what they are by the multiplication.
    let finite = f32::from_bits(bits) * f32::from_bits((127 + 112) << 23);
    let bits = if half & 0x7c00 == 0x7c00 {
        bits | 0x7f80_0000
    } else {
        finite.to_bits()
    };
    f32::from_bits(bits | u32::from(half & 0x8000) << 16)
}

const CENTRE: u32 = 0x8080_8080;

const fn table(levels: [i8; 16]) -> [u8; 16] {
    let mut table = [0; 16];
    let mut i = 0;
    while i < 16 {
        table[i] = (levels[i] as i32 + OFFSET) as u8;
        i += 1;
    }
    table
}

/// Decodes as many blocks as `runs` takes.
pub(super) fn decode(level: Level, dtype: DType, blocks: &[u8], runs: &mut [Run]) {
    const IQ4: [u8; 16] = table(IQ4_LEVELS);
    const E2M1: [u8; 16] = table(E2M1_DOUBLED);
    decode_codes(level, dtype, blocks, runs);
    let table = match dtype {
        DType::IQ4_NL | DType::IQ4_XS => &IQ4,
        DType::MXFP4 | DType::NVFP4 => &E2M1,
        _ => return,
    };
    runs.iter_mut().for_each(|run| lookup(level, table, run));
}

leveled! {
    fn decode_codes(dtype: DType, blocks: &[u8], runs: &mut [Run]) {
        match dtype {
            DType::Q2_K => each(dtype, blocks, runs, q2_k),
            DType::Q3_K => each(dtype, blocks, runs, q3_k),
            DType::TQ1_0 => each(dtype, blocks, runs, tq1_0),
            DType::TQ2_0 => each(dtype, blocks, runs, tq2_0),
            DType::IQ4_NL => each(dtype, blocks, runs, iq4_nl),
            DType::IQ4_XS => each(dtype, blocks, runs, iq4_xs),
            DType::MXFP4 => each(dtype, blocks, runs, mxfp4),
            DType::NVFP4 => each(dtype, blocks, runs, nvfp4),
            DType::Q8_1 => each(dtype, blocks, runs, q8_1),
            DType::Q8_K => each(dtype, blocks, runs, q8_k),
            _ => {}
        }
    }
}

/// Block by block: as many runs each as the decoder takes.
#[inline(always)]
fn each<const N: usize>(dtype: DType, blocks: &[u8], runs: &mut [Run], block: impl Fn(Lanes<'_>, &mut [Run; N])) {
    let Some(fields) = fields(dtype) else {
        return;
    };
    let blocks = blocks.chunks_exact(fields.bytes());
    for (b, runs) in blocks.zip(runs.as_chunks_mut::<N>().0) {
        let (words, rest) = b.split_at(fields.words * 64);
        let (halves, bytes) = rest.split_at(fields.halves * 32);
        let lanes = Lanes {
            words: words.as_chunks().0,
            halves: halves.as_chunks().0,
            bytes: bytes.as_chunks().0,
        };
        block(lanes, runs);
    }
}

/// Word by word.
#[inline(always)]
fn map(words: [u32; 16], f: impl Fn(u32) -> u32) -> [u32; 16] {
    std::array::from_fn(|lane| f(words[lane]))
}

#[inline(always)]
fn q2_k(b: Lanes<'_>, runs: &mut [Run; 8]) {
    let (d, dmin) = (b.half(0), b.half(1));
    for (r, run) in runs.iter_mut().enumerate() {
        for (g, codes) in run.codes.iter_mut().enumerate() {
            *codes = map(b.word(r / 4 * 8 + g), |w| w >> (r % 4 * 2) & 0x0303_0303 | CENTRE);
        }
        for half in 0..2 {
            let both = b.bytes[r * 2 + half];
            run.scales[half] = std::array::from_fn(|i| d[i] * f32::from(both[i] & 15));
            run.mins[half] = std::array::from_fn(|i| -(dmin[i] * f32::from(both[i] >> 4)));
        }
    }
}

#[inline(always)]
fn q3_k(b: Lanes<'_>, runs: &mut [Run; 8]) {
    let d = b.half(0);
    for (r, run) in runs.iter_mut().enumerate() {
        for (g, codes) in run.codes.iter_mut().enumerate() {
            let (high, low) = (b.word(g), b.word(8 + r / 4 * 8 + g));
            // Two bits, the third above them, less four.
            *codes = std::array::from_fn(|i| {
                (low[i] >> (r % 4 * 2) & 0x0303_0303 | (high[i] >> r & 0x0101_0101) << 2) + 0x7c7c_7c7c
            });
        }
        run.scales = [b.signed(r * 2, &d), b.signed(r * 2 + 1, &d)];
    }
}

/// Digit `power` of five digits of base 3 in each byte of a word, less one.
#[inline(always)]
fn ternary(word: [u32; 16], power: u32) -> [u32; 16] {
    map(word, |w| {
        // Two bytes at a time: the low eight bits of the product are a fraction, three times it is the digit.
        let digit = |pair: u32| ((((pair * power) & 0x00ff_00ff) * 3) >> 8) & 0x0003_0003;
        (digit(w & 0x00ff_00ff) | digit(w >> 8 & 0x00ff_00ff) << 8) + 0x7f7f_7f7f
    })
}

#[inline(always)]
fn tq1_0(b: Lanes<'_>, runs: &mut [Run; 8]) {
    const POWERS: [u32; 5] = [1, 3, 9, 27, 81];
    let d = b.half(0);
    for g in 0..8 {
        let word = b.word(g);
        for (run, power) in runs.iter_mut().zip(POWERS) {
            run.codes[g] = ternary(word, power);
        }
    }
    // The last 96 columns: five digits of 16 bytes, four of 4 bytes.
    for i in 0..24 {
        let (word, digit) = if i < 20 { (8 + i % 4, i / 4) } else { (12, i - 20) };
        runs[5 + i / 8].codes[i % 8] = ternary(b.word(word), POWERS[digit]);
    }
    runs.iter_mut().for_each(|run| run.scales[0] = d);
}

#[inline(always)]
fn tq2_0(b: Lanes<'_>, runs: &mut [Run; 8]) {
    let d = b.half(0);
    for (r, run) in runs.iter_mut().enumerate() {
        for (g, codes) in run.codes.iter_mut().enumerate() {
            *codes = map(b.word(r / 4 * 8 + g), |w| {
                (w >> (r % 4 * 2) & 0x0303_0303) + 0x7f7f_7f7f
            });
        }
        run.scales[0] = d;
    }
}

/// Nibbles of four words, low ones first.
#[inline(always)]
fn nibbles(b: &Lanes<'_>, first: usize, run: &mut Run) {
    for g in 0..4 {
        let word = b.word(first + g);
        run.codes[g] = map(word, |w| w & 0x0f0f_0f0f);
        run.codes[g + 4] = map(word, |w| w >> 4 & 0x0f0f_0f0f);
    }
}

#[inline(always)]
fn iq4_nl(b: Lanes<'_>, [run]: &mut [Run; 1]) {
    nibbles(&b, 0, run);
    run.scales[0] = b.half(0);
}

#[inline(always)]
fn iq4_xs(b: Lanes<'_>, runs: &mut [Run; 8]) {
    let d = b.half(0);
    for (r, run) in runs.iter_mut().enumerate() {
        nibbles(&b, r * 4, run);
        run.scales[0] = b.signed(r, &d);
    }
}

#[inline(always)]
fn mxfp4(b: Lanes<'_>, [run]: &mut [Run; 1]) {
    nibbles(&b, 0, run);
    // Half of 2^(e - 127): the two smallest are subnormal.
    run.scales[0] = std::array::from_fn(|i| {
        let e = u32::from(b.bytes[0][i]);
        f32::from_bits(if e < 2 {
            0x0020_0000 << e
        } else {
            e.wrapping_sub(1) << 23
        })
    });
}

#[inline(always)]
fn nvfp4(b: Lanes<'_>, runs: &mut [Run; 2]) {
    for (r, run) in runs.iter_mut().enumerate() {
        for half in 0..2 {
            for g in 0..2 {
                let word = b.word(r * 4 + half * 2 + g);
                run.codes[half * 4 + g] = map(word, |w| w & 0x0f0f_0f0f);
                run.codes[half * 4 + 2 + g] = map(word, |w| w >> 4 & 0x0f0f_0f0f);
            }
            let scales = &b.bytes[r * 2 + half];
            run.scales[half] = std::array::from_fn(|i| e4m3_half(scales[i]));
        }
    }
}

/// Half of an E4M3 number without sign; the pattern of a NaN is 0.
#[inline(always)]
fn e4m3_half(x: u8) -> f32 {
    let x = if x & 0x7f == 0x7f && x < 0x80 { 0 } else { x & 0x7f };
    // The same fields as those of an f16 with one exponent bit less: 2^7 times the number's half is 2^-9 of that.
    widen(u16::from(x) << 7) * 128.0
}

#[inline(always)]
fn q8_1(b: Lanes<'_>, [run]: &mut [Run; 1]) {
    for (g, codes) in run.codes.iter_mut().enumerate() {
        *codes = map(b.word(g), |w| w ^ CENTRE);
    }
    run.scales[0] = b.half(0);
}

#[inline(always)]
fn q8_k(b: Lanes<'_>, runs: &mut [Run; 8]) {
    let d = b.word(0).map(f32::from_bits);
    for (r, run) in runs.iter_mut().enumerate() {
        for (g, codes) in run.codes.iter_mut().enumerate() {
            *codes = map(b.word(1 + r * 8 + g), |w| w ^ CENTRE);
        }
        run.scales[0] = d;
    }
}
