//! What lies in a file or folder, whether or not it makes a model that can run.

use std::fmt;
use std::path::Path;

use super::source::Files;
use super::{ModelError, card};
use crate::printable::printable;

/// Tensors and metadata of files of any family, for `inspect` to list what it cannot explain.
pub struct Contents {
    path: String,
    files: Files,
}

impl Contents {
    /// Opens a GGUF file, a safetensors file or a folder of them.
    ///
    /// # Errors
    /// [`ModelError`] when the file itself is damaged.
    pub fn open(path: &Path, mmap: bool) -> Result<Contents, ModelError> {
        Ok(Contents {
            path: path.display().to_string(),
            files: Files::open(path, mmap)?,
        })
    }

    /// A line per tensor.
    pub fn tensors(&self) -> Vec<String> {
        self.files.tensors()
    }

    /// Metadata entries as text.
    pub fn metadata(&self) -> Vec<(String, String)> {
        self.files.metadata()
    }

    /// A summary that says why these files cannot be run.
    pub fn card(&self, problem: &str) -> impl fmt::Display {
        // The summary names the file already.
        let named = format!("{}: ", self.path);
        let problem = problem.strip_prefix(&named).unwrap_or(problem).to_owned();
        Card {
            contents: self,
            problem,
        }
    }
}

struct Card<'a> {
    contents: &'a Contents,
    problem: String,
}

impl fmt::Display for Card<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, files) = (&self.contents.path, &self.contents.files);
        let architecture = match files {
            Files::Gguf { arch, .. } if !arch.is_empty() => format!("{}: ", printable(arch)),
            _ => String::new(),
        };
        card::head(
            f,
            path,
            files,
            &format!("{architecture}cannot be run: {}", self.problem),
        )?;
        writeln!(f, "tensors     {}", files.n_tensors())?;
        card::weights(f, files)
    }
}
