//! JSON files beside the weights, read with their limits checked.

mod generation;

use std::path::Path;

use serde_json::{Map, Value};

pub use generation::GenerationConfig;

/// More than any configuration, vocabulary or template takes.
const MAX_BYTES: u64 = 256 << 20;

/// Why a configuration cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {reason}")]
pub struct ConfigError {
    /// The file.
    pub file: String,
    /// What is wrong.
    pub reason: String,
}

/// The bytes of a file of reasonable size.
///
/// # Errors
/// [`ConfigError`].
pub fn read_file(path: &Path) -> Result<Vec<u8>, ConfigError> {
    let error = |reason: String| ConfigError {
        file: path.display().to_string(),
        reason,
    };
    let len = std::fs::metadata(path).map_err(|e| error(e.to_string()))?.len();
    if len > MAX_BYTES {
        return Err(error(format!("has {len} bytes; at most {MAX_BYTES} are read")));
    }
    std::fs::read(path).map_err(|e| error(e.to_string()))
}

/// A JSON object from a file.
///
/// # Errors
/// [`ConfigError`] naming the file and, for bad JSON, line and column.
pub fn read_object(path: &Path) -> Result<Map<String, Value>, ConfigError> {
    let bytes = read_file(path)?;
    let error = |reason: String| ConfigError {
        file: path.display().to_string(),
        reason,
    };
    if bytes.starts_with(b"version https://git-lfs") {
        return Err(error(
            "is a Git LFS pointer: fetch the file itself with `git lfs pull`".to_owned(),
        ));
    }
    match serde_json::from_slice(&bytes) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(error("is JSON, but no object".to_owned())),
        Err(e) => Err(error(format!("is no valid JSON: {e}"))),
    }
}
