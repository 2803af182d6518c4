//! What can go wrong at prepare or in a run; every error names the node, input, weight or limit, and the cure.

use glia_core::{BackendError, TensorError, ValueType};

use crate::graph::GraphError;
use crate::plan::PlanError;

/// Why an executor could not be prepared or a run failed. After a failed run the sessions are as before it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // Field names are the words of the messages.
pub enum ExecError {
    #[error("the graph has no output `{name}`; it declares {}", declared.join(", "))]
    UnknownOutput { name: String, declared: Vec<String> },
    #[error(transparent)]
    Graph(#[from] GraphError),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Backend(BackendError),
    #[error("configuration: {field} {reason}")]
    BadConfig { field: &'static str, reason: String },
    #[error("weight `{name}` is missing: the graph needs it as {expected}")]
    MissingWeight { name: String, expected: ValueType },
    #[error("weight `{name}` is {got}, but the graph needs {expected}")]
    WeightMismatch {
        name: String,
        expected: ValueType,
        got: ValueType,
    },
    #[error("weight `{name}` cannot be read: {source}")]
    WeightRead {
        name: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error(
        "intermediates need {needed_bytes} bytes, but max_intermediate_bytes is {limit_bytes}: raise it, or lower {lower}"
    )]
    IntermediateMemory {
        needed_bytes: usize,
        limit_bytes: usize,
        lower: &'static str,
    },
    #[error("input `{name}` is missing: the graph takes {expected}")]
    MissingInput { name: String, expected: ValueType },
    #[error("input `{name}` is unknown: the graph takes {}", known.join(", "))]
    UnknownInput { name: String, known: Vec<String> },
    #[error("input `{name}` is given twice")]
    DuplicateInput { name: String },
    #[error("input `{name}` is injected by the executor: leave it out")]
    InjectedInput { name: String },
    #[error("input `{name}`: {reason}")]
    BadInput { name: String, reason: String },
    #[error("the run has no tokens: give at least one")]
    NoTokens,
    #[error("wanted rows: {reason}")]
    BadWantedRows { reason: String },
    #[error("the context is full: {needed} tokens needed, {max} fit; raise max_context or shorten the input")]
    ContextOverflow { needed: usize, max: usize },
    #[error(
        "{given} rows are more than the {max} of a step, and the run cannot be split: {why}; raise max_step_tokens or give fewer"
    )]
    TooManyRows { given: usize, max: usize, why: String },
    #[error(
        "output `{output}` holds NaN or infinity (first at element {index}): the weights or inputs are damaged, or values overflow"
    )]
    NonFinite { output: String, index: usize },
    #[error("backend {backend} returned {got} outputs instead of {expected}, nodes {}", nodes.join(" to "))]
    WrongOutputs {
        backend: String,
        nodes: Vec<String>,
        expected: usize,
        got: usize,
    },
    #[error("backend {backend} returned `{value}` as {got} instead of {expected}")]
    WrongOutput {
        backend: String,
        value: String,
        expected: ValueType,
        got: ValueType,
    },
    #[error("backend {backend} returned `{value}` on a device, but says that it works in main memory")]
    NotOnHost { backend: String, value: String },
    #[error("the run was cancelled; the session is as before it")]
    Cancelled,
    #[error("the device was lost ({reason}), and the weights cannot be read again: {source}")]
    WeightsReopen {
        reason: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("session {index} of the batch belongs to another executor")]
    ForeignSession { index: usize },
}

impl ExecError {
    /// The error of the backend or interpreter below, without the names added on the way up.
    pub fn backend(&self) -> Option<&BackendError> {
        match self {
            ExecError::Backend(e) => Some(e.root()),
            _ => None,
        }
    }

    /// Whether a device was lost: the sessions that were on it are gone, new ones can be opened.
    pub fn is_device_lost(&self) -> bool {
        matches!(self.backend(), Some(BackendError::DeviceLost { .. }))
    }
}

impl From<BackendError> for ExecError {
    fn from(error: BackendError) -> ExecError {
        match error {
            BackendError::Cancelled => ExecError::Cancelled,
            BackendError::ContextOverflow { needed, max } => ExecError::ContextOverflow { needed, max },
            other => ExecError::Backend(other),
        }
    }
}

impl From<TensorError> for ExecError {
    fn from(error: TensorError) -> ExecError {
        ExecError::Backend(error.into())
    }
}
