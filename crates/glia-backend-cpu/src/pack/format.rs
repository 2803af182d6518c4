//! Integer forms of quantised rows: unsigned codes, scales and perhaps minima per 32 elements.

use glia_core::{DType, Precision};
use half::f16;

/// What the tiles of a quantised matrix hold: `value = scale * (code - offset) + min`.
///
/// A tile is a sequence of units of [`Format::unit_bytes`], each of [`Format::runs`] runs of 32 elements of 16 rows and a
/// tail. A run is codes, then scales, then minima.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    /// Stored bits of a code: 4 (nibbles), 5 (nibbles and a bit plane), 6 (nibbles and planes of two bits) or 8.
    pub bits: u8,
    /// Whether there are minima.
    pub has_min: bool,
    /// Scales per 32 elements: 1 or 2.
    pub n_scales: usize,
    /// How scales and minima are kept.
    pub scales: Scales,
    /// Subtracted from each code.
    pub offset: i32,
    /// Activations are F32, and values exactly what the format defines.
    pub exact: bool,
}

/// How scales and minima are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scales {
    /// As F16 in each run.
    Half,
    /// As signed bytes in each run, times an F16 for each row in the tail of a unit of 256: first that of the scales, then
    /// that of the minima. The products are exact in F32.
    Super,
}

impl Format {
    /// The integer form of a dtype; `None` where rows are decoded to f32 instead.
    pub(crate) const fn of(dtype: DType, precision: Precision) -> Option<Format> {
        use Scales::{Half, Super};
        let (bits, has_min, n_scales, scales, offset) = match dtype {
            DType::Q4_0 => (4, false, 1, Half, 8),
            DType::Q4_1 => (4, true, 1, Half, 0),
            DType::Q5_0 => (5, false, 1, Half, 16),
            DType::Q5_1 => (5, true, 1, Half, 0),
            DType::Q8_0 => (8, false, 1, Half, 128),
            DType::Q4_K => (4, true, 1, Super, 0),
            DType::Q5_K => (5, true, 1, Super, 0),
            DType::Q6_K => (6, false, 2, Super, 32),
            _ => return None,
        };
        Some(Format {
            bits,
            has_min,
            n_scales,
            scales,
            offset,
            exact: matches!(precision, Precision::Exact),
        })
    }

    /// Bytes of the codes of a run.
    pub(crate) const fn code_bytes(self) -> usize {
        self.bits as usize * 64
    }

    /// Bytes of the scales, or of the minima, of 16 rows.
    const fn lane_bytes(self) -> usize {
        match self.scales {
            Scales::Half => 32,
            Scales::Super => 16,
        }
    }

    /// Where in a run the scales `s` begin.
    pub(crate) const fn scale_at(self, s: usize) -> usize {
        self.code_bytes() + s * self.lane_bytes()
    }

    /// Where in a run the minima begin, if there are any.
    pub(crate) const fn min_at(self) -> usize {
        self.scale_at(self.n_scales)
    }

    /// Bytes of a run.
    pub(crate) const fn run_bytes(self) -> usize {
        self.min_at() + if self.has_min { self.lane_bytes() } else { 0 }
    }

    /// Runs of a unit.
    pub(crate) const fn runs(self) -> usize {
        match self.scales {
            Scales::Half => 1,
            Scales::Super => 8,
        }
    }

    /// Bytes of a unit: its runs and its tail.
    pub(crate) const fn unit_bytes(self) -> usize {
        let tail = match self.scales {
            Scales::Half => 0,
            Scales::Super => 32 << self.has_min as usize,
        };
        self.runs() * self.run_bytes() + tail
    }

    /// Bytes of a tile of `k` columns, a multiple of what a unit holds; `None` on overflow.
    pub(crate) fn tile_bytes(self, k: usize) -> Option<usize> {
        (k / (32 * self.runs())).checked_mul(self.unit_bytes())
    }

    /// What the accumulators of a block's halves begin with, given the sums of the activations' codes; the first is of
    /// the whole block where there is one scale.
    #[inline(always)]
    pub(crate) const fn starts(self, first: i32, second: i32) -> [i32; 2] {
        match self.n_scales {
            2 => [-self.offset * first, -self.offset * second],
            _ => [-self.offset * (first + second), 0],
        }
    }

    /// Columns of a tile.
    pub(crate) const fn columns(self, tile: &[u8]) -> usize {
        tile.len() / self.unit_bytes() * self.runs() * 32
    }
}

/// A run of a tile, for kernels that are not written for one machine.
#[derive(Clone, Copy)]
pub(crate) struct PackedRun<'a> {
    format: Format,
    run: &'a [u8],
    tail: &'a [u8],
}

impl<'a> PackedRun<'a> {
    /// The runs of a tile in order of k.
    #[inline(always)]
    pub(crate) fn of_tile(format: Format, tile: &'a [u8]) -> impl Iterator<Item = PackedRun<'a>> {
        tile.chunks_exact(format.unit_bytes()).flat_map(move |unit| {
            let (runs, tail) = unit.split_at(format.runs() * format.run_bytes());
            let runs = runs.chunks_exact(format.run_bytes());
            runs.map(move |run| PackedRun { format, run, tail })
        })
    }

    /// Scales `s` of the 16 rows.
    #[inline(always)]
    pub(crate) fn scales(&self, s: usize) -> [f32; 16] {
        self.lanes(self.format.scale_at(s), 0)
    }

    /// Minima of the 16 rows.
    #[inline(always)]
    pub(crate) fn mins(&self) -> [f32; 16] {
        self.lanes(self.format.min_at(), 32)
    }

    #[inline(always)]
    fn lanes(&self, at: usize, unit_at: usize) -> [f32; 16] {
        let halves = |b: &[u8]| -> [f32; 16] {
            let halves = b[..32].as_chunks().0;
            std::array::from_fn(|i| f16::from_le_bytes(halves[i]).to_f32())
        };
        match self.format.scales {
            Scales::Half => halves(&self.run[at..]),
            Scales::Super => {
                let (steps, unit) = (&self.run[at..at + 16], halves(&self.tail[unit_at..]));
                std::array::from_fn(|i| f32::from(steps[i] as i8) * unit[i])
            }
        }
    }

    /// Codes of group `g` (0 to 7): elements `4 g` to `4 g + 3` of each row, a word per row.
    #[inline(always)]
    pub(crate) fn words(&self, g: usize) -> [u32; 16] {
        let w = self.run;
        let sixteen = |at: usize| -> [u32; 16] {
            let words = w[at..at + 64].as_chunks().0;
            std::array::from_fn(|i| u32::from_le_bytes(words[i]))
        };
        if self.format.bits == 8 {
            return sixteen(g * 64);
        }
        let mut codes = sixteen(g % 4 * 64).map(|word| word >> (g / 4 * 4) & 0x0f0f_0f0f);
        if self.format.bits == 5 {
            for (row, word) in codes.iter_mut().enumerate() {
                let high = u32::from(w[256 + g * 8 + row / 2] >> (row % 2 * 4) & 15);
                // The four bits, one per byte.
                *word |= (high.wrapping_mul(0x0020_4081) & 0x0101_0101) << 4;
            }
        }
        if self.format.bits == 6 {
            let planes = sixteen(256 + g / 4 * 64);
            for (word, plane) in codes.iter_mut().zip(planes) {
                *word |= (plane >> (g % 4 * 2) & 0x0303_0303) << 4;
            }
        }
        codes
    }
}

/// 6-bit scale and minimum `j` of a Q4_K or Q5_K block.
pub(super) fn scale_min(s: &[u8], j: usize) -> (u8, u8) {
    if j < 4 {
        (s[j] & 63, s[j + 4] & 63)
    } else {
        (s[j + 4] & 15 | s[j - 4] >> 6 << 4, s[j + 4] >> 4 | s[j] >> 6 << 4)
    }
}
