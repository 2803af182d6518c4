//! From blocks of the file to units of a tile, whole words at a time: four codes are a word on both sides, and all that
//! is done to a word is a shift and a mask. Opening a model is mostly this.
//!
//! The plain definition is `one_by_one`, which tests compare with.

use glia_core::{DType, Precision};

use super::format::{Format, scale_min};
use crate::simd::leveled;

/// Low nibbles of a word.
const LOW: u32 = 0x0f0f_0f0f;

/// The form of a dtype that has one.
const fn form(dtype: DType) -> Format {
    match Format::of(dtype, Precision::Fast) {
        Some(format) => format,
        None => panic!("a dtype without integer codes"),
    }
}

/// A block of the file and the row of the unit that it becomes.
struct To<'a> {
    raw: &'a [u8],
    unit: &'a mut [u8],
    row: usize,
}

impl To<'_> {
    /// `N` words of the block.
    #[inline(always)]
    fn words<const N: usize>(&self, at: usize) -> [u32; N] {
        let words = self.raw[at..at + 4 * N].as_chunks::<4>().0;
        std::array::from_fn(|i| u32::from_le_bytes(words[i]))
    }

    /// Four codes.
    #[inline(always)]
    fn put(&mut self, at: usize, word: u32) {
        self.unit[at..at + 64].as_chunks_mut::<4>().0[self.row % 16] = word.to_le_bytes();
    }

    /// A scale or a minimum.
    #[inline(always)]
    fn put_half(&mut self, at: usize, half: [u8; 2]) {
        self.unit[at..at + 32].as_chunks_mut::<2>().0[self.row % 16] = half;
    }

    #[inline(always)]
    fn put_byte(&mut self, at: usize, byte: u8) {
        self.unit[at..at + 16][self.row % 16] = byte;
    }

    #[inline(always)]
    fn half(&self, at: usize) -> [u8; 2] {
        [self.raw[at], self.raw[at + 1]]
    }

    /// The nibbles of a run, of which the first 16 are the low ones, as both sides have them.
    #[inline(always)]
    fn nibbles(&mut self, from: usize) {
        let words: [u32; 4] = self.words(from);
        (0..4).for_each(|g| self.put(g * 64, words[g]));
    }

    /// The fifth bits of a run, four a group.
    #[inline(always)]
    fn bits(&mut self, at: usize, bits: u32) {
        for g in 0..8 {
            self.fifth(at, g, bits >> (4 * g));
        }
    }

    /// The fifth bits of a group: the low four of `bits`.
    #[inline(always)]
    fn fifth(&mut self, at: usize, g: usize, bits: u32) {
        let bytes = &mut self.unit[at + 256 + g * 8..][..8];
        bytes[self.row / 2 % 8] |= (bits as u8 & 15) << (self.row % 2 * 4);
    }

    /// A run of codes of four bits: groups 0 to 3 are low nibbles, the others high ones.
    #[inline(always)]
    fn pairs(&mut self, at: usize, codes: [u32; 8]) {
        (0..4).for_each(|g| self.put(at + g * 64, codes[g] & LOW | (codes[g + 4] & LOW) << 4));
    }

    /// Q4_K and Q5_K.
    #[inline(always)]
    fn with_mins<const FIVE: bool>(&mut self, format: Format) {
        let tail = 8 * format.run_bytes();
        let [low, high] = self.half(2);
        self.put_half(tail, self.half(0));
        // The file subtracts the minimum.
        self.put_half(tail + 32, [low, high ^ 0x80]);
        let fifth: [u32; 8] = if FIVE { self.words(16) } else { [0; 8] };
        for pair in 0..4 {
            let codes: [u32; 8] = self.words(if FIVE { 48 } else { 16 } + pair * 32);
            for (j, shift) in [(pair * 2, 0), (pair * 2 + 1, 4)] {
                let at = j * format.run_bytes();
                self.pairs(at, codes.map(|word| word >> shift));
                if FIVE {
                    for (g, word) in fifth.iter().enumerate() {
                        // The bits of four bytes, side by side: multiplying gathers them in the top nibble.
                        self.fifth(at, g, (word >> j & 0x0101_0101).wrapping_mul(0x1020_4080) >> 28);
                    }
                }
                let (scale, min) = scale_min(&self.raw[4..16], j);
                self.put_byte(at + format.scale_at(0), scale);
                self.put_byte(at + format.min_at(), min);
            }
        }
    }

    /// Q6_K.
    #[inline(always)]
    fn with_planes(&mut self, format: Format) {
        self.put_half(8 * format.run_bytes(), self.half(208));
        for half in 0..2 {
            let high: [u32; 8] = self.words(128 + half * 32);
            for part in 0..4 {
                let at = (half * 4 + part) * format.run_bytes();
                let codes: [u32; 8] = self.words(half * 64 + part % 2 * 32);
                self.pairs(at, codes.map(|word| word >> (part / 2 * 4)));
                for plane in 0..2 {
                    let twos = (0..4).map(|i| (high[plane * 4 + i] >> (part * 2) & 0x0303_0303) << (i * 2));
                    self.put(at + 256 + plane * 64, twos.fold(0, |all, two| all | two));
                }
                for s in 0..2 {
                    self.put_byte(at + format.scale_at(s), self.raw[192 + (half * 4 + part) * 2 + s]);
                }
            }
        }
    }
}

/// Calls `put` for every block of the rows, unit after unit, so that what is written stays near.
#[inline(always)]
fn each<const SIZE: usize, const UNIT: usize>(
    rows: &[u8],
    row_bytes: usize,
    tile: &mut [u8],
    mut put: impl FnMut(&mut To<'_>),
) {
    for (i, unit) in tile.as_chunks_mut::<UNIT>().0.iter_mut().enumerate() {
        for (row, blocks) in rows.chunks_exact(row_bytes).take(16).enumerate() {
            if let Some(raw) = blocks.as_chunks::<SIZE>().0.get(i) {
                put(&mut To { raw, unit, row });
            }
        }
    }
}

leveled! {
    /// Packs up to 16 rows of a dtype that has integer codes into `tile`, which is zero.
    pub(super) fn fill(dtype: DType, rows: &[u8], row_bytes: usize, tile: &mut [u8]) {
        const Q4_0: Format = form(DType::Q4_0);
        const Q4_1: Format = form(DType::Q4_1);
        const Q5_0: Format = form(DType::Q5_0);
        const Q5_1: Format = form(DType::Q5_1);
        const Q8_0: Format = form(DType::Q8_0);
        const Q4_K: Format = form(DType::Q4_K);
        const Q5_K: Format = form(DType::Q5_K);
        const Q6_K: Format = form(DType::Q6_K);
        match dtype {
            DType::Q4_0 => each::<18, { Q4_0.unit_bytes() }>(rows, row_bytes, tile, |to| {
                to.put_half(Q4_0.scale_at(0), to.half(0));
                to.nibbles(2);
            }),
            DType::Q4_1 => each::<20, { Q4_1.unit_bytes() }>(rows, row_bytes, tile, |to| {
                to.put_half(Q4_1.scale_at(0), to.half(0));
                to.put_half(Q4_1.min_at(), to.half(2));
                to.nibbles(4);
            }),
            DType::Q5_0 => each::<22, { Q5_0.unit_bytes() }>(rows, row_bytes, tile, |to| {
                to.put_half(Q5_0.scale_at(0), to.half(0));
                to.bits(0, to.words::<1>(2)[0]);
                to.nibbles(6);
            }),
            DType::Q5_1 => each::<24, { Q5_1.unit_bytes() }>(rows, row_bytes, tile, |to| {
                to.put_half(Q5_1.scale_at(0), to.half(0));
                to.put_half(Q5_1.min_at(), to.half(2));
                to.bits(0, to.words::<1>(4)[0]);
                to.nibbles(8);
            }),
            DType::Q8_0 => each::<34, { Q8_0.unit_bytes() }>(rows, row_bytes, tile, |to| {
                to.put_half(Q8_0.scale_at(0), to.half(0));
                let words: [u32; 8] = to.words(2);
                (0..8).for_each(|g| to.put(g * 64, words[g] ^ 0x8080_8080));
            }),
            DType::Q4_K => each::<144, { Q4_K.unit_bytes() }>(rows, row_bytes, tile, |to| to.with_mins::<false>(Q4_K)),
            DType::Q5_K => each::<176, { Q5_K.unit_bytes() }>(rows, row_bytes, tile, |to| to.with_mins::<true>(Q5_K)),
            DType::Q6_K => each::<210, { Q6_K.unit_bytes() }>(rows, row_bytes, tile, |to| to.with_planes(Q6_K)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::one_by_one::{Block32, store, unpack};
    use super::*;
    use crate::isa::Isa;
    use crate::simd::Level;

    /// The plain definition.
    fn plain(dtype: DType, rows: &[u8], row_bytes: usize, tile: &mut [u8]) {
        let format = form(dtype);
        let mut blocks = [Block32::ZERO; 8];
        for (lane, row) in rows.chunks_exact(row_bytes).enumerate() {
            let units = tile.chunks_exact_mut(format.unit_bytes());
            for (raw, unit) in row.chunks_exact(dtype.block_bytes()).zip(units) {
                unpack(dtype, raw, &mut blocks[..format.runs()]);
                for (index, block) in blocks[..format.runs()].iter().enumerate() {
                    store(format, lane, index, block, unit);
                }
            }
        }
    }

    #[test]
    fn words_are_packed_as_codes_are_one_by_one() {
        use DType::*;
        let mut seed = 1u64;
        let mut byte = || {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 40) as u8
        };
        for dtype in [Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K] {
            for (n_rows, n_blocks) in [(16, 3), (1, 1), (7, 5), (16, 1)] {
                // Any bytes, those of numbers that are not finite too.
                let row_bytes = n_blocks * dtype.block_bytes();
                let rows: Vec<u8> = std::iter::repeat_with(&mut byte).take(n_rows * row_bytes).collect();
                let mut expected = vec![0; n_blocks * form(dtype).unit_bytes()];
                plain(dtype, &rows, row_bytes, &mut expected);
                for isa in Isa::all_available() {
                    let mut tile = vec![0; expected.len()];
                    fill(Level::of(isa), dtype, &rows, row_bytes, &mut tile);
                    assert!(tile == expected, "{dtype}, {n_rows} rows, {}", isa.name());
                }
            }
        }
    }
}
