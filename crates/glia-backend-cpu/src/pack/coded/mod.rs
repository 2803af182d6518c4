//! Types whose codes are decoded to bytes as they are used, a few runs of 32 columns at a time: those with plain codes
//! from an interleaved copy of the file's blocks, those with codebooks from the file itself.

mod codebook;
mod interleave;
#[cfg(test)]
mod tests;

use std::ops::Range;

use glia_core::DType;

use super::{Format, Scales};
use crate::kernels::runs::{Kind, OFFSET, Run};
use crate::simd::Level;

/// How rows of activations are prepared for all of these types.
pub(super) const ACTS: Format = Format {
    bits: 8,
    has_min: false,
    n_scales: 2,
    offset: OFFSET,
    scales: Scales::Half,
    exact: false,
};

/// What the runs of a type have; `None` for types that are not coded.
pub(super) fn kind(dtype: DType) -> Option<Kind> {
    Some(match dtype {
        DType::Q2_K => Kind::TwoMins,
        DType::Q3_K | DType::NVFP4 | DType::IQ1_M | DType::IQ2_XS | DType::IQ2_S => Kind::Two,
        DType::Q8_1 | DType::Q8_K | DType::TQ1_0 | DType::TQ2_0 | DType::MXFP4 => Kind::One,
        DType::IQ1_S | DType::IQ2_XXS | DType::IQ3_XXS | DType::IQ3_S | DType::IQ4_NL | DType::IQ4_XS => Kind::One,
        _ => return None,
    })
}

/// Bytes of 16 interleaved blocks; 0 for types that are read from the file.
pub(super) fn block_bytes(dtype: DType) -> usize {
    interleave::fields(dtype).map_or(0, |f| f.bytes())
}

/// Puts the blocks of a tile's rows (up to 16, `row_bytes` apart) side by side in `tile`, which is zero.
pub(super) fn pack(dtype: DType, rows: &[u8], row_bytes: usize, tile: &mut [u8]) {
    interleave::pack(dtype, rows, row_bytes, 0, tile);
}

/// Where the codes of a tile are.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    /// Interleaved blocks.
    Packed(&'a [u8]),
    /// The rows of the file (up to 16) and the bytes of one.
    Rows(&'a [u8], usize),
}

/// Decodes a range of runs, which begins at a whole block.
pub(super) fn decode(level: Level, dtype: DType, source: Source<'_>, range: Range<usize>, runs: &mut [Run]) {
    let first = range.start * 32 / dtype.block_elems();
    let size = block_bytes(dtype);
    match source {
        Source::Packed(tile) => interleave::decode(level, dtype, &tile[first * size..], runs),
        Source::Rows(rows, row_bytes) if size == 0 => codebook::decode(level, dtype, rows, row_bytes, first, runs),
        Source::Rows(rows, row_bytes) => {
            let mut some = [0u8; interleave::MOST_BYTES];
            let some = &mut some[..runs.len() * 32 / dtype.block_elems() * size];
            interleave::pack(dtype, rows, row_bytes, first, some);
            interleave::decode(level, dtype, some, runs);
        }
    }
}
