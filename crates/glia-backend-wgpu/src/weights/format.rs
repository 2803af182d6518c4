//! The packed forms, as data: bits of a code, where scales lie, how a value is made of both.

use glia_core::DType;

use crate::shader::KernelKey;

/// Where the scales of a row are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Scale {
    /// There are none: plain floats.
    None,
    /// An F16 per 32 elements, two in a word.
    Half,
    /// A word per 32 elements: F16 scale, F16 addend.
    HalfMin,
    /// A word per 16, 32 or 256 elements: F32 scale.
    Word(usize),
    /// Five words per 256: F16 `d` and `dmin`, eight bytes of scales, eight of minima.
    Super32Min,
    /// Five words per 256: F32 `d`, sixteen signed bytes of scales.
    Super16,
    /// Five words per 256: F16 `d` and `dmin`, sixteen bytes with scale and minimum in a nibble each.
    Super16Min,
}

/// A packed form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Format {
    /// The dtype that it holds.
    pub dtype: DType,
    /// Bits of a code in the first plane: 2, 4, 8, 16 or 32.
    pub low: usize,
    /// Bits of a code in the second plane: 0, 1 or 2.
    pub high: usize,
    pub scale: Scale,
    /// Subtracted from a code before it is scaled.
    pub offset: u32,
}

impl Format {
    /// The form in which kernels read a dtype; every one holds exactly what the file says. `None` for dtypes that are
    /// neither float of up to 32 bits nor quantised.
    pub fn of(dtype: DType) -> Option<Format> {
        let (low, high, scale, offset) = match dtype {
            DType::F32 => (32, 0, Scale::None, 0),
            DType::F16 | DType::BF16 => (16, 0, Scale::None, 0),
            DType::Q8_0 => (8, 0, Scale::Half, 0),
            DType::Q4_0 => (4, 0, Scale::Half, 8),
            DType::Q4_1 => (4, 0, Scale::HalfMin, 0),
            DType::Q5_0 => (4, 1, Scale::Half, 16),
            DType::Q5_1 => (4, 1, Scale::HalfMin, 0),
            DType::Q2_K => (2, 0, Scale::Super16Min, 0),
            DType::Q3_K => (2, 1, Scale::Super16, 4),
            DType::Q4_K => (4, 0, Scale::Super32Min, 0),
            DType::Q5_K => (4, 1, Scale::Super32Min, 0),
            DType::Q6_K => (4, 2, Scale::Super16, 32),
            DType::IQ4_NL => (4, 0, Scale::Half, 0),
            DType::MXFP4 => (4, 0, Scale::Word(32), 0),
            DType::IQ4_XS => (4, 0, Scale::Word(32), 0),
            DType::NVFP4 => (4, 0, Scale::Word(16), 0),
            DType::Q8_1 => (8, 0, Scale::Half, 0),
            DType::Q8_K => (8, 0, Scale::Word(256), 0),
            DType::TQ1_0 | DType::TQ2_0 => (2, 0, Scale::Word(256), 1),
            // The integers that the tables give, in bytes.
            DType::IQ1_S | DType::IQ2_XXS | DType::IQ3_XXS | DType::IQ3_S => (8, 0, Scale::Word(32), 0),
            DType::IQ1_M | DType::IQ2_XS | DType::IQ2_S => (8, 0, Scale::Word(16), 0),
            _ => return None,
        };
        Some(Format {
            dtype,
            low,
            high,
            scale,
            offset,
        })
    }

    /// Words of the first plane of a row of `k` elements. Rows are padded to whole blocks of 32.
    pub fn low_words(&self, k: usize) -> usize {
        k.div_ceil(32) * self.low
    }

    /// Words of both planes, in whole vectors of four.
    pub fn code_words(&self, k: usize) -> usize {
        (self.low_words(k) + k.div_ceil(32) * self.high).next_multiple_of(4)
    }

    /// Words of the scales of a row.
    pub fn scale_words(&self, k: usize) -> usize {
        match self.scale {
            Scale::None => 0,
            Scale::Half => k.div_ceil(64),
            Scale::HalfMin => k / 32,
            Scale::Word(per) => k / per,
            Scale::Super32Min | Scale::Super16 | Scale::Super16Min => k / 256 * 5,
        }
    }

    /// Whether codes are places in a table rather than numbers.
    pub fn is_tabled(&self) -> bool {
        self.has_levels() || self.is_fp4()
    }

    fn has_levels(&self) -> bool {
        matches!(self.dtype, DType::IQ4_NL | DType::IQ4_XS)
    }

    fn is_fp4(&self) -> bool {
        matches!(self.dtype, DType::MXFP4 | DType::NVFP4)
    }

    /// The definitions that the kernel part `weights` needs.
    pub fn define(&self, key: KernelKey) -> KernelKey {
        let is = |dtype| self.dtype == dtype;
        let (levels, fp4) = (self.has_levels(), self.is_fp4());
        let word = match self.scale {
            Scale::Word(per) => Some(per as u32),
            _ => None,
        };
        key.flag("F32", is(DType::F32))
            .flag("F16", is(DType::F16))
            .flag("BF16", is(DType::BF16))
            .flag("LOW2", self.low == 2)
            .flag("LOW4", self.low == 4)
            .flag("LOW8", self.low == 8)
            .flag("HIGH1", self.high == 1)
            .flag("HIGH2", self.high == 2)
            .flag("HALF", self.scale == Scale::Half)
            .flag("HALF_MIN", self.scale == Scale::HalfMin)
            .flag("WORD", word.is_some())
            .int("WORD_CHUNKS", word.unwrap_or(8) / 8)
            .flag("SUPER32_MIN", self.scale == Scale::Super32Min)
            .flag("SUPER16", self.scale == Scale::Super16)
            .flag("SUPER16_MIN", self.scale == Scale::Super16Min)
            .flag("TABLE_NL", levels)
            .flag("TABLE_E2M1", fp4)
            .flag("TABLED", levels || fp4)
            .flag("CODED", self.low < 8)
            .flag("PLAIN", self.scale == Scale::None)
            .flag(
                "MINS",
                matches!(self.scale, Scale::HalfMin | Scale::Super32Min | Scale::Super16Min),
            )
            .flag(
                "HALVES",
                matches!(self.scale, Scale::Word(16) | Scale::Super16 | Scale::Super16Min),
            )
            .int("LOW", self.low as u32)
            .int("OFFSET", self.offset)
    }
}
