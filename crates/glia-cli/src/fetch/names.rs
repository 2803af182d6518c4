//! Which file names may be joined to a folder. Asked before any write, whoever gave the name.

use super::error::FetchError;

/// Names that Windows gives to devices, with or without an extension.
const RESERVED: &[&str] = &["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"];

/// Refuses every name that is not one plain path component on every platform.
pub fn check(name: &str) -> Result<(), FetchError> {
    let stem = name.split('.').next().unwrap_or("").trim_end().to_ascii_uppercase();
    let port = |kind: &str| {
        stem.strip_prefix(kind)
            .is_some_and(|n| n.len() == 1 && n.chars().all(|c| c.is_ascii_digit()))
    };
    let bad = name.is_empty()
        || name.len() > 200
        || name == "."
        || name.contains("..")
        || name.ends_with(['.', ' '])
        || name.chars().any(|c| c.is_control() || "/\\:*?\"<>|".contains(c))
        || RESERVED.contains(&stem.as_str())
        || port("COM")
        || port("LPT");
    if bad {
        Err(FetchError::UnsafeName { name: name.to_owned() })
    } else {
        Ok(())
    }
}
