//! The vocabulary of glia: dtypes, tensors, ops with their shape rules, the [`Backend`] trait and plain-data
//! [`Segment`]s. Knows no file format and no device.
//!
//! ```
//! use glia_core::{DType, Dim, Op, Tensor, ValueType, quant};
//!
//! // Shapes are known before anything runs; `T` is the number of rows of a step.
//! let x = ValueType::new(DType::F32, [Dim::T, 64.into()]);
//! let w = ValueType::fixed(DType::Q8_0, &[256, 64]);
//! let y = Op::MatMul.infer(&[x, w])?;
//! assert_eq!(y[0].to_string(), "f32[T, 256]");
//!
//! // A quantised tensor keeps its blocks; decoding is exact.
//! let values: Vec<f32> = (-32..32).map(|i| i as f32).collect();
//! let mut blocks = vec![0; DType::Q8_0.size_bytes(64).unwrap()];
//! quant::quantize(DType::Q8_0, &values, &mut blocks)?;
//! let tensor = Tensor::from_bytes(DType::Q8_0, [1, 64], &blocks)?;
//! let mut decoded = vec![0.0; 64];
//! quant::dequantize(DType::Q8_0, tensor.bytes()?, &mut decoded)?;
//! assert!((decoded[63] - 31.0).abs() < 0.2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod backend;
#[cfg(feature = "conformance")]
pub mod conformance;
mod dim;
mod dtype;
mod error;
mod interpret;
mod op;
pub mod quant;
#[cfg(feature = "reference")]
pub mod reference;
mod segment;
mod shape;
mod storage;
mod tensor;
#[cfg(feature = "testing")]
pub mod testing;

pub use backend::{
    Backend, CancelToken, CompileOptions, ConstSource, MemoryHints, MemorySpace, NodeCx, NodeView, OpTime, Packed,
    Precision, ProfileSink, Program, ProgramState, SeqId, SeqRows, StateOptions, Step, check_rows,
};
pub use dim::{Dim, Sizes, Symbol, ValueType};
pub use dtype::DType;
pub use error::BackendError;
pub use interpret::{InterpretedProgram, interpreter_runs, read_indices, read_ints};
pub use op::{
    Binary, Cost, CostValue, Decomposition, Gate, Op, OpParseError, Operand, Part, Rope, RopePairing, Sdpa, StateKind,
    StateSpec, Traffic, Unary,
};
pub use segment::{ConstId, InputRole, Instr, Segment, Slot, SlotId, StateDef, StateId, ValueDef, ValueId, ValueKind};
pub use shape::{MAX_RANK, Shape};
pub use storage::{ALIGN_BYTES, ByteSource};
pub use tensor::{Tensor, TensorError, tensor_bytes};
