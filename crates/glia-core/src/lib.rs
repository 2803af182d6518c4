//! The vocabulary of glia: dtypes, tensors, ops with their shape rules, the [`Backend`] trait and plain-data
//! [`Segment`]s. Knows no file format and no device.

#![forbid(unsafe_code)]

mod backend;
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

pub use backend::{
    Backend, CancelToken, CompileOptions, ConstSource, MemoryHints, MemorySpace, NodeCx, NodeView, OpTime, Packed,
    Precision, ProfileSink, Program, ProgramState, SeqId, SeqRows, StateOptions, Step, check_rows,
};
pub use dim::{Dim, Sizes, Symbol, ValueType};
pub use dtype::DType;
pub use error::BackendError;
pub use interpret::{InterpretedProgram, interpreter_runs, read_indices, read_ints};
pub use op::{
    Binary, Decomposition, Gate, Op, OpParseError, Operand, Part, Rope, RopePairing, Sdpa, StateKind, StateSpec, Unary,
};
pub use segment::{ConstId, InputRole, Instr, Segment, Slot, SlotId, StateDef, StateId, ValueDef, ValueId, ValueKind};
pub use shape::{MAX_RANK, Shape};
pub use storage::{ALIGN_BYTES, ByteSource};
pub use tensor::{Tensor, TensorError, tensor_bytes};
