//! Our own medians in a file, to compare two builds. A peer's figures are never saved.

use std::collections::BTreeMap;
use std::path::Path;

use crate::Outcome;

/// Tokens per second by model, test and thread count.
pub type Medians = BTreeMap<String, f64>;

/// Reads saved medians.
pub fn read(path: &Path) -> Result<Medians, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    serde_json::from_str(&text).map_err(|e| format!("{}: {e}: make it with --save", path.display()))
}

/// Saves medians.
pub fn write(path: &Path, medians: &Medians) -> Outcome {
    let text = serde_json::to_string_pretty(medians).map_err(|e| e.to_string())?;
    std::fs::write(path, text + "\n").map_err(|e| format!("{}: {e}", path.display()))
}
