//! Why a GGUF file was refused: file, offset, field and cure.

/// An error of the GGUF reader.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // Field names are the words of the messages.
pub enum GgufError {
    #[error("{file}: {source}")]
    Io { file: String, source: std::io::Error },
    #[error("{file}: {reason}")]
    NotGguf { file: String, reason: String },
    #[error(
        "{file}: GGUF version {version} is not supported (2 and 3 are){}",
        if *.version == 1 { "; convert the model again with a current converter" } else { "" }
    )]
    Version { file: String, version: u32 },
    #[error(
        "{file}: ends at byte {len}: {what} at byte {offset} needs {needed} bytes, {} are left; the download is incomplete or \
         the file damaged",
        .len.saturating_sub(*.offset)
    )]
    ShortRead {
        file: String,
        what: String,
        offset: usize,
        needed: u64,
        len: usize,
    },
    #[error("{file}: {what} {count} cannot fit in a {len}-byte file: it is damaged")]
    Count {
        file: String,
        what: String,
        count: u64,
        len: usize,
    },
    #[error("{file}: byte {offset}: {reason}")]
    Malformed {
        file: String,
        offset: usize,
        reason: String,
    },
    #[error("{file}: {key}: {reason}")]
    Key { file: String, key: String, reason: String },
    #[error("{file}: tensor `{tensor}`: {reason}")]
    Tensor {
        file: String,
        tensor: String,
        reason: String,
    },
    #[error("{file}: {reason}")]
    Split { file: String, reason: String },
}
