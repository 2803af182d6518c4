//! What can be wrong with a vocabulary, a text or a token id. Every message names the field and the cure.

/// Error of the tokenizer layer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// `tokenizer.ggml.pre` names a text splitter that is not known.
    #[error(
        "`{value}` (tokenizer.ggml.pre, or what overrides it) is not a known pre-tokenizer; give the one the model was \
         trained with (--pre-tokenizer, `Options::pre_tokenizer`; supported: {supported})"
    )]
    UnknownPre {
        /// The value found.
        value: String,
        /// Comma-separated list of the values that are known.
        supported: String,
    },
    /// `tokenizer.ggml.model` names an algorithm that is not known.
    #[error("tokenizer.ggml.model is `{value}`; supported are {supported}")]
    UnknownModel {
        /// The value found.
        value: String,
        /// Comma-separated list of the values that are known.
        supported: &'static str,
    },
    /// A metadata field contradicts another or itself.
    #[error("{field}: {problem}")]
    BadVocab {
        /// The field, in the file's own spelling.
        field: String,
        /// What is wrong and, where there is one, the cure.
        problem: String,
    },
    /// A tokenizer file could not be read.
    #[error("{file}: {problem}")]
    BadFile {
        /// The file's name.
        file: &'static str,
        /// The parser's message.
        problem: String,
    },
    /// A token id outside the vocabulary.
    #[error("token id {id} out of range 0..{n_tokens}")]
    IdOutOfRange {
        /// The id given.
        id: u64,
        /// Size of the vocabulary.
        n_tokens: usize,
    },
    /// A text has a character that no token, byte token or unknown token covers.
    #[error("character {ch:?} is not in the vocabulary, which has neither byte tokens nor an unknown token")]
    NotInVocab {
        /// The character.
        ch: char,
    },
    /// The text is too long for 32-bit offsets.
    #[error("text of {len_bytes} bytes is longer than the {limit_bytes} bytes a tokenizer takes at once")]
    TextTooLong {
        /// Length given.
        len_bytes: usize,
        /// Longest text accepted.
        limit_bytes: usize,
    },
    /// The library behind `tokenizer.json` refused the text.
    #[error("tokenizer.json: {0}")]
    Library(String),
}

impl TokenizerError {
    /// A [`TokenizerError::BadVocab`] from its two parts.
    pub(crate) fn vocab(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::BadVocab {
            field: field.into(),
            problem: problem.into(),
        }
    }
}

/// Result of the tokenizer layer.
pub type Result<T> = std::result::Result<T, TokenizerError>;

/// Runs a call of the `tokenizers` library, whose panics are [`TokenizerError::Library`].
pub(super) fn within_library<T>(call: impl FnOnce() -> T) -> Result<T> {
    crate::wall::within(call).map_err(|e| TokenizerError::Library(format!("the tokenizers library failed: {e}")))
}
