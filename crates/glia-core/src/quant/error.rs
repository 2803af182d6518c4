//! Why a run of blocks cannot be decoded or encoded.

use crate::DType;

/// Error of [`dequantize`](super::dequantize) and [`quantize`](super::quantize).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // Field names are the words of the messages.
pub enum QuantError {
    #[error("{n_elems} elements are no whole number of {dtype} blocks of {}", dtype.block_elems())]
    PartialBlock { dtype: DType, n_elems: usize },
    #[error("{n_elems} elements of {dtype} take {needed} bytes, got {got}")]
    WrongLength {
        dtype: DType,
        n_elems: usize,
        needed: usize,
        got: usize,
    },
    #[error("{n_elems} elements of {dtype} are too many to address")]
    TooLarge { dtype: DType, n_elems: usize },
    #[error(
        "no quantiser for {dtype}; there is one for f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, mxfp4, tq1_0, tq2_0"
    )]
    CannotEncode { dtype: DType },
    #[error("element {index} is NaN or infinite: a {dtype} block cannot hold it")]
    NonFinite { dtype: DType, index: usize },
}
