//! Split sets: which files belong together, and what went wrong when they do not.

use std::path::{Path, PathBuf};

use super::header::Part;
use super::{GgufError, part_path};

/// More parts than any model has.
const MAX_PARTS: u64 = 10_000;

/// The files of the set that `part`, at `path`, belongs to.
pub(super) fn paths(path: &Path, part: &Part) -> Result<Vec<PathBuf>, GgufError> {
    let Some(count) = part.get("split.count") else {
        return Ok(vec![path.to_owned()]);
    };
    let error = |reason: String| GgufError::Split {
        file: part.file.clone(),
        reason,
    };
    let count = match count.as_u64() {
        Some(0 | 1) => return Ok(vec![path.to_owned()]),
        Some(count) => count,
        None => return Err(error(format!("split.count must be a whole number, not {count}"))),
    };
    if count > MAX_PARTS {
        return Err(error(format!(
            "split.count = {count} is no number of files (at most {MAX_PARTS})"
        )));
    }
    let count = count as usize;
    let mut paths = Vec::with_capacity(count);
    for index in 0..count {
        let sibling = part_path(path, index, count).ok_or_else(|| {
            error(format!(
                "split.count = {count}, but the name does not end in -0000N-of-{count:05}.gguf: it was renamed, or the \
                 parts were joined with cat; keep the {count} parts under their own names, or merge them with a tool \
                 that rewrites the header (llama-gguf-split --merge)"
            ))
        })?;
        if !sibling.is_file() {
            return Err(error(format!(
                "split.count = {count}: part {} is missing: {}",
                index + 1,
                sibling.display()
            )));
        }
        paths.push(sibling);
    }
    Ok(paths)
}

/// Checks that a part says of itself what its name says.
pub(super) fn check_part(part: &Part, index: usize, count: usize) -> Result<(), GgufError> {
    let number = |key: &str| part.get(key).and_then(|v| v.as_u64());
    if number("split.count") != Some(count as u64) || number("split.no") != Some(index as u64) {
        let shown = |key: &str| number(key).map_or("missing".to_owned(), |n| n.to_string());
        let reason = format!(
            "is part {} of {count} by its name, but split.no = {} and split.count = {}",
            index + 1,
            shown("split.no"),
            shown("split.count")
        );
        return Err(GgufError::Split {
            file: part.file.clone(),
            reason,
        });
    }
    Ok(())
}
