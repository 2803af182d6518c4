//! Why a graph cannot be planned.

use glia_core::ValueType;

/// Why there is no plan; names the node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // Field names are the words of the messages.
pub enum PlanError {
    #[error("no backend was given: pass at least one")]
    NoBackends,
    #[error(
        "node `{node}`: no backend runs {op} on {}; asked: {}; add a backend that does, or another dtype of the weights",
        list(inputs), backends.join(", ")
    )]
    Unsupported {
        node: String,
        op: String,
        inputs: Vec<ValueType>,
        backends: Vec<String>,
    },
    #[error("`{value}` {ty} is too large to address at {max_step_tokens} rows and {max_context} tokens: lower them")]
    TooLarge {
        value: String,
        ty: String,
        max_step_tokens: usize,
        max_context: usize,
    },
}

fn list(types: &[ValueType]) -> String {
    let names: Vec<String> = types.iter().map(ToString::to_string).collect();
    names.join(", ")
}
