//! The vocabulary of glia: dtypes, tensors, ops with their shape rules, the [`Backend`] trait and plain-data
//! [`Segment`]s. Knows no file format and no device.

#![forbid(unsafe_code)]

mod dim;
mod dtype;
mod shape;
mod storage;
mod tensor;

pub use dim::{Dim, Sizes, Symbol, ValueType};
pub use dtype::DType;
pub use shape::{MAX_RANK, Shape};
pub use storage::{ALIGN_BYTES, ByteSource};
pub use tensor::{Tensor, TensorError, tensor_bytes};
