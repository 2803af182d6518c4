//! Model families: a configuration becomes a [`DecoderSpec`](spec::DecoderSpec), and that a graph.

pub mod decoder;
mod fields;
pub mod gguf;
pub mod hf;
pub mod rope;
pub mod spec;

/// Why a configuration and its weights make no graph.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FamilyError {
    /// The family is not built.
    #[error("model family `{family}` is not supported; supported: {supported}")]
    UnknownFamily {
        /// What the file says.
        family: String,
        /// What is supported.
        supported: String,
    },
    /// A field of the configuration.
    #[error("{field} {reason}")]
    Config {
        /// The field of the configuration, or the key of the GGUF file.
        field: String,
        /// What is wrong.
        reason: String,
    },
    /// A weight is not there.
    #[error("weight `{name}` is missing: the file is incomplete, or its configuration promises more than it holds")]
    MissingWeight {
        /// Hugging Face name.
        name: String,
    },
    /// A weight has another shape than the configuration says.
    #[error("weight `{name}` is {got}, the configuration needs {expected}")]
    WeightShape {
        /// Hugging Face name.
        name: String,
        /// What the configuration needs.
        expected: String,
        /// What the file holds.
        got: String,
    },
    /// A rotation cannot be made.
    #[error(transparent)]
    Rope(#[from] rope::RopeError),
    /// The graph was refused.
    #[error(transparent)]
    Graph(#[from] glia_ir::GraphError),
}
