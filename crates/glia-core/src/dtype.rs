//! Element types and their storage geometry.
//!
//! Owns the list of dtypes and how many bytes a run of elements takes. Decoding a block is in
//! [`crate::quant`]; the numbers that file formats give these types belong to the readers.

use std::fmt;

/// Element type of a [`Tensor`](crate::Tensor).
///
/// Plain types hold one element per block. Quantised types hold `block_elems()` elements in
/// `block_bytes()` bytes, laid out as in the GGUF specification (ggml's block structs), little endian.
#[allow(missing_docs)] // The variant names are the field's own names for these formats.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DType {
    F32,
    F16,
    BF16,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    Bool,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q8_1,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    Q8_K,
    IQ1_S,
    IQ1_M,
    IQ2_XXS,
    IQ2_XS,
    IQ2_S,
    IQ3_XXS,
    IQ3_S,
    IQ4_NL,
    IQ4_XS,
    TQ1_0,
    TQ2_0,
    MXFP4,
    NVFP4,
}

use DType::*;

impl DType {
    /// Every dtype, in declaration order.
    pub const ALL: &'static [DType] = &[
        F32, F16, BF16, F64, I8, I16, I32, I64, U8, Bool, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q8_1, Q2_K, Q3_K, Q4_K, Q5_K,
        Q6_K, Q8_K, IQ1_S, IQ1_M, IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S, IQ4_NL, IQ4_XS, TQ1_0, TQ2_0, MXFP4, NVFP4,
    ];

    /// Elements in one block and bytes that a block takes.
    pub const fn block(self) -> (usize, usize) {
        match self {
            F32 | I32 => (1, 4),
            F16 | BF16 | I16 => (1, 2),
            F64 | I64 => (1, 8),
            I8 | U8 | Bool => (1, 1),
            Q4_0 | IQ4_NL => (32, 18),
            Q4_1 => (32, 20),
            Q5_0 => (32, 22),
            Q5_1 => (32, 24),
            Q8_0 => (32, 34),
            Q8_1 => (32, 36),
            MXFP4 => (32, 17),
            NVFP4 => (64, 36),
            Q2_K => (256, 84),
            Q3_K | IQ3_S => (256, 110),
            Q4_K => (256, 144),
            Q5_K => (256, 176),
            Q6_K => (256, 210),
            Q8_K => (256, 292),
            IQ1_S => (256, 50),
            IQ1_M => (256, 56),
            IQ2_XXS => (256, 66),
            IQ2_XS => (256, 74),
            IQ2_S => (256, 82),
            IQ3_XXS => (256, 98),
            IQ4_XS => (256, 136),
            TQ1_0 => (256, 54),
            TQ2_0 => (256, 66),
        }
    }

    /// Elements in one block: 1 for plain types.
    pub const fn block_elems(self) -> usize {
        self.block().0
    }

    /// Bytes that one block takes.
    pub const fn block_bytes(self) -> usize {
        self.block().1
    }

    /// Whether a block holds more than one element.
    pub const fn is_quantized(self) -> bool {
        self.block_elems() > 1
    }

    /// F32, F16, BF16 or F64.
    pub const fn is_float(self) -> bool {
        matches!(self, F32 | F16 | BF16 | F64)
    }

    /// I8 to I64 and U8; not Bool.
    pub const fn is_int(self) -> bool {
        matches!(self, I8 | I16 | I32 | I64 | U8)
    }

    /// Bytes of `n_elems` elements in a row. `None` when they are no whole number of blocks or the size
    /// does not fit in `usize`.
    pub fn size_bytes(self, n_elems: usize) -> Option<usize> {
        let (elems, bytes) = self.block();
        if !n_elems.is_multiple_of(elems) {
            return None;
        }
        (n_elems / elems).checked_mul(bytes)
    }

    /// The name as users write it: `f32`, `q4_k`, `iq2_xxs`.
    pub const fn name(self) -> &'static str {
        match self {
            F32 => "f32",
            F16 => "f16",
            BF16 => "bf16",
            F64 => "f64",
            I8 => "i8",
            I16 => "i16",
            I32 => "i32",
            I64 => "i64",
            U8 => "u8",
            Bool => "bool",
            Q4_0 => "q4_0",
            Q4_1 => "q4_1",
            Q5_0 => "q5_0",
            Q5_1 => "q5_1",
            Q8_0 => "q8_0",
            Q8_1 => "q8_1",
            Q2_K => "q2_k",
            Q3_K => "q3_k",
            Q4_K => "q4_k",
            Q5_K => "q5_k",
            Q6_K => "q6_k",
            Q8_K => "q8_k",
            IQ1_S => "iq1_s",
            IQ1_M => "iq1_m",
            IQ2_XXS => "iq2_xxs",
            IQ2_XS => "iq2_xs",
            IQ2_S => "iq2_s",
            IQ3_XXS => "iq3_xxs",
            IQ3_S => "iq3_s",
            IQ4_NL => "iq4_nl",
            IQ4_XS => "iq4_xs",
            TQ1_0 => "tq1_0",
            TQ2_0 => "tq2_0",
            MXFP4 => "mxfp4",
            NVFP4 => "nvfp4",
        }
    }

    /// The dtype with this [`name`](DType::name), in any letter case.
    pub fn from_name(name: &str) -> Option<DType> {
        Self::ALL.iter().copied().find(|d| d.name().eq_ignore_ascii_case(name))
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for &d in DType::ALL {
            assert_eq!(DType::from_name(&d.name().to_uppercase()), Some(d));
        }
        assert_eq!(DType::from_name("q9_9"), None);
    }

    #[test]
    fn sizes_are_checked() {
        assert_eq!(Q4_0.size_bytes(64), Some(36));
        assert_eq!(Q4_0.size_bytes(65), None);
        assert_eq!(F64.size_bytes(usize::MAX), None);
        // More than 2^31 elements: 65536 x 65536 of each type.
        for &d in DType::ALL {
            let (elems, bytes) = d.block();
            assert_eq!(d.size_bytes(65536 * 65536), Some(65536 * 65536 / elems * bytes), "{d}");
        }
    }
}
