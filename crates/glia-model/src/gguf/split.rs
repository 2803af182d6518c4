//! Split sets: which files belong together, and what went wrong when they do not.

use std::path::{Path, PathBuf};

use super::header::Part;
use super::{GgufError, part_path};

/// More parts than any model has.
const MAX_PARTS: u64 = 10_000;

/// How many parts the name of a part says there are.
fn named_count(path: &Path) -> Option<usize> {
    let (_, count) = path.file_stem()?.to_str()?.rsplit_once("-of-")?;
    count.parse().ok().filter(|&n| n > 1 && n as u64 <= MAX_PARTS)
}

/// The files of the set that `part`, at `path`, belongs to.
pub(super) fn paths(path: &Path, part: &Part) -> Result<Vec<PathBuf>, GgufError> {
    let error = |reason: String| GgufError::Split {
        file: part.file.clone(),
        reason,
    };
    let count = match part.get("split.count") {
        None => 0,
        Some(value) => value
            .as_u64()
            .ok_or_else(|| error(format!("split.count must be a whole number, not {value}")))?,
    };
    if count <= 1 {
        // A merged file may keep its name; beside other parts, name and header contradict each other.
        let other = named_count(path).and_then(|n| {
            (0..n)
                .filter_map(|i| part_path(path, i, n))
                .find(|p| p != path && p.is_file())
        });
        return match other {
            None => Ok(vec![path.to_owned()]),
            Some(other) => Err(error(format!(
                "the name and {} beside it say that this is a part of a set, the header says that it is whole \
                 (split.count = {count}): rename the file if it is, else fetch the parts again",
                other.display()
            ))),
        };
    }
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
