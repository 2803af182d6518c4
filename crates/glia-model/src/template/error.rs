//! What can be wrong with a chat template or the conversation given to it.

/// Error of a chat template.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// There is no template.
    #[error("model has no chat template (base model?); use completion or give one with --chat-template")]
    Missing,
    /// The template does not parse.
    #[error("chat template does not parse: {0}")]
    Parse(String),
    /// The template itself refused the conversation: the text it gave.
    #[error("{}", crate::printable::printable(&.0.replace(['\r', '\n'], " ")))]
    Raised(String),
    /// Rendering failed.
    #[error("chat template failed: {0}")]
    Render(String),
    /// Rendering took more steps or memory than a template may.
    #[error("chat template exceeds {limit}")]
    Limit {
        /// The limit met.
        limit: &'static str,
    },
    /// An extra variable has the name of one that the template is given anyway.
    #[error("template variable `{0}` is reserved")]
    Reserved(String),
    /// The input is not a conversation.
    #[error("{field}: {problem}")]
    BadInput {
        /// The field.
        field: String,
        /// What is wrong.
        problem: String,
    },
}

/// Says that `raise_exception` was called, on the way through the template engine.
#[derive(Debug)]
pub(super) struct Raised(pub(super) String);

impl std::fmt::Display for Raised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}
