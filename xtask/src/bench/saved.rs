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

/// Whether medians can be saved there: asked before hours of measuring. What the file holds stays.
pub fn check(path: &Path) -> Outcome {
    let opened = std::fs::OpenOptions::new().create(true).append(true).open(path);
    opened.map(drop).map_err(|e| format!("{}: {e}", path.display()))
}

/// Saves medians.
pub fn write(path: &Path, medians: &Medians) -> Outcome {
    let text = serde_json::to_string_pretty(medians).map_err(|e| e.to_string())?;
    std::fs::write(path, text + "\n").map_err(|e| format!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_come_back_and_a_place_that_is_none_is_refused_early() {
        let path = std::env::temp_dir().join(format!("glia-medians-{}.json", std::process::id()));
        check(&path).unwrap();
        assert!(read(&path).unwrap_err().contains("--save"));
        let medians = Medians::from([("a.gguf pp512 1".to_owned(), 12.5)]);
        write(&path, &medians).unwrap();
        check(&path).unwrap();
        assert_eq!(read(&path).unwrap(), medians);
        std::fs::remove_file(&path).unwrap();
        assert!(check(&path.join("below")).unwrap_err().contains("below"));
    }
}
