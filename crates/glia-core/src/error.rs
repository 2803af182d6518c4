//! Errors of backends and shape rules: structured, naming backend, op and node, and keeping their source.

use crate::{DType, Op, TensorError};

/// Why a backend or a shape rule refused or failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // Field names are the words of the messages.
pub enum BackendError {
    #[error("backend {backend} does not run {op}")]
    UnsupportedOp { backend: String, op: String },
    #[error("backend {backend} does not run {op} on {dtype}")]
    UnsupportedDtype { backend: String, op: String, dtype: DType },
    #[error("{op}: {reason}")]
    ShapeMismatch { op: String, reason: String },
    #[error("{op}: {reason}")]
    InvalidInput { op: String, reason: String },
    #[error("{op} takes {expected} inputs, got {got}")]
    WrongArity { op: String, expected: String, got: usize },
    #[error("{op} returned {got} outputs instead of {expected}")]
    WrongOutputs { op: String, expected: usize, got: usize },
    #[error("out of memory: {what} needs {needed_bytes} bytes, {}", limit(.limit_bytes))]
    OutOfMemory {
        what: String,
        needed_bytes: usize,
        limit_bytes: usize,
    },
    #[error("the context is full: {needed} tokens needed, {max} fit; raise the context size or shorten the input")]
    ContextOverflow { needed: usize, max: usize },
    #[error("{value} holds NaN or infinity (first at element {index}): the weights or inputs are damaged, or overflow")]
    NonFinite { value: String, index: usize },
    #[error("the device was lost: {reason}")]
    DeviceLost { reason: String },
    #[error("the step was cancelled; the session is as before it")]
    Cancelled,
    #[error("the backend panicked, which is a bug of its: {message}")]
    Panicked { message: String },
    #[error("unknown {what} {id}")]
    UnknownId { what: &'static str, id: u64 },
    #[error(transparent)]
    Tensor(#[from] TensorError),
    #[error("node `{node}` ({op}) on backend {backend}: {source}")]
    At {
        backend: String,
        node: String,
        op: String,
        #[source]
        source: Box<BackendError>,
    },
    #[error("{0}")]
    Other(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// What stands in the way of memory: no limit at all is what an address space holds.
fn limit(limit_bytes: &usize) -> String {
    match *limit_bytes >= isize::MAX as usize {
        true => "which the system does not give: free memory, raise the limit on this process, or use less".to_owned(),
        false => format!("the limit is {limit_bytes}"),
    }
}

impl BackendError {
    /// Adds the backend, node and op on the way up; an error that knows its node already is left alone.
    pub fn at(self, backend: &str, node: &str, op: &str) -> BackendError {
        match self {
            BackendError::At { .. } | BackendError::Cancelled | BackendError::ContextOverflow { .. } => self,
            _ => BackendError::At {
                backend: backend.to_owned(),
                node: node.to_owned(),
                op: op.to_owned(),
                source: Box::new(self),
            },
        }
    }

    /// An op that `backend` does not run: what `execute` returns for whatever `supports` refuses.
    pub fn unsupported(backend: &str, op: &Op) -> BackendError {
        BackendError::UnsupportedOp {
            backend: backend.to_owned(),
            op: op.to_string(),
        }
    }

    /// What a caught panic said.
    pub fn panicked(payload: &(dyn std::any::Any + Send)) -> BackendError {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        BackendError::Panicked {
            message: text.unwrap_or("without a message").to_owned(),
        }
    }

    /// The innermost error, below the names of nodes.
    pub fn root(&self) -> &BackendError {
        match self {
            BackendError::At { source, .. } => source.root(),
            other => other,
        }
    }

    /// An input of `op` whose values, or an attribute that, cannot be worked with: ids out of range, say.
    pub fn invalid(op: &str, reason: impl Into<String>) -> BackendError {
        BackendError::InvalidInput {
            op: op.to_owned(),
            reason: reason.into(),
        }
    }

    /// Shapes or dtypes that `op` cannot work with.
    pub fn shape(op: &str, reason: impl Into<String>) -> BackendError {
        BackendError::ShapeMismatch {
            op: op.to_owned(),
            reason: reason.into(),
        }
    }
}
