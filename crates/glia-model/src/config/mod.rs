//! Files beside the weights (JSON, templates), read by one reader that checks their kind and size first.

mod generation;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::{Map, Value};

pub use generation::GenerationConfig;

/// More than any vocabulary or index of shards takes.
const MAX_BYTES: u64 = 256 << 20;
/// More than any configuration or template takes: as a tree, JSON needs many times its size.
pub(crate) const MAX_CONFIG_BYTES: u64 = 16 << 20;

/// Why a configuration cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {reason}")]
pub struct ConfigError {
    /// The file.
    pub file: String,
    /// What is wrong.
    pub reason: String,
}

/// The bytes of a vocabulary or index.
///
/// # Errors
/// [`ConfigError`]: not there, no regular file, more than 256 MiB.
pub fn read_file(path: &Path) -> Result<Vec<u8>, ConfigError> {
    read_up_to(path, MAX_BYTES)
}

/// The bytes of a regular file of at most `most` bytes.
pub(crate) fn read_up_to(path: &Path, most: u64) -> Result<Vec<u8>, ConfigError> {
    let error = |reason: String| ConfigError {
        file: path.display().to_string(),
        reason,
    };
    let io = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::NotFound => error("there is no such file".to_owned()),
        _ => error(e.to_string()),
    };
    // Before opening: a pipe would wait for a writer, a device has no end.
    let metadata = std::fs::metadata(path).map_err(io)?;
    if !metadata.is_file() {
        return Err(error("is no regular file".to_owned()));
    }
    let too_long = |len: u64| error(format!("has {len} bytes; at most {most} are read"));
    if metadata.len() > most {
        return Err(too_long(metadata.len()));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(io)?;
    file.take(most + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > most {
        return Err(too_long(bytes.len() as u64));
    }
    Ok(bytes)
}

/// The bytes of a file that may be absent.
pub(crate) fn read_if_there(path: &Path, most: u64) -> Result<Option<Vec<u8>>, ConfigError> {
    match std::fs::symlink_metadata(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        // A link that leads nowhere is told of, not passed over.
        _ => read_up_to(path, most).map(Some),
    }
}

/// The text of a file that may be absent.
pub(crate) fn text_if_there(path: &Path) -> Result<Option<String>, ConfigError> {
    let Some(bytes) = read_if_there(path, MAX_CONFIG_BYTES)? else {
        return Ok(None);
    };
    let text = String::from_utf8(bytes).map_err(|e| ConfigError {
        file: path.display().to_string(),
        reason: format!(
            "byte {} is not UTF-8: the file is damaged",
            e.utf8_error().valid_up_to()
        ),
    })?;
    Ok(Some(text))
}

/// A JSON object from a configuration file.
///
/// # Errors
/// [`ConfigError`] naming the file and, for bad JSON, line and column.
pub fn read_object(path: &Path) -> Result<Map<String, Value>, ConfigError> {
    object(path, &read_up_to(path, MAX_CONFIG_BYTES)?)
}

/// A JSON object from a file that may be absent.
pub(crate) fn object_if_there(path: &Path) -> Result<Map<String, Value>, ConfigError> {
    match read_if_there(path, MAX_CONFIG_BYTES)? {
        None => Ok(Map::new()),
        Some(bytes) => object(path, &bytes),
    }
}

/// The JSON object in the bytes of a file.
pub(crate) fn object(path: &Path, bytes: &[u8]) -> Result<Map<String, Value>, ConfigError> {
    let error = |reason: String| ConfigError {
        file: path.display().to_string(),
        reason,
    };
    if bytes.starts_with(b"version https://git-lfs") {
        return Err(error(
            "is a Git LFS pointer: fetch the file itself with `git lfs pull`".to_owned(),
        ));
    }
    // Some editors begin a file with a byte order mark.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(error("is JSON, but no object".to_owned())),
        Err(e) => Err(error(format!("is no valid JSON: {e}"))),
    }
}
