//! Exit codes, as the help text documents them, and the error that carries one.

use std::error::Error;
use std::fmt;
use std::path::Path;

use glia_model::ModelError;

use crate::cure;

/// Done.
pub const OK: u8 = 0;
/// The work failed: a file, the model or the step.
pub const FAILED: u8 = 1;
/// The command line was wrong.
pub const USAGE: u8 = 2;

/// Why a command ended early.
#[derive(Debug)]
pub struct CliError {
    code: u8,
    message: String,
    help: Option<String>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl CliError {
    /// A wrong command line.
    pub fn usage(message: impl Into<String>) -> CliError {
        CliError {
            code: USAGE,
            message: message.into(),
            help: None,
            source: None,
        }
    }

    /// Work that failed.
    pub fn failed(message: impl Into<String>) -> CliError {
        CliError {
            code: FAILED,
            message: message.into(),
            help: None,
            source: None,
        }
    }

    /// The exit code.
    pub fn code(&self) -> u8 {
        self.code
    }

    /// What to do about it, where the message does not say.
    pub fn help(&self) -> Option<&str> {
        self.help.as_deref()
    }

    /// Whether the context asked for is too long.
    pub fn is_of_context(&self) -> bool {
        let error = self.source.as_ref().and_then(|e| e.downcast_ref::<ModelError>());
        matches!(
            error,
            Some(ModelError::DoesNotFit { largest_ctx: 1.., .. } | ModelError::ContextTooLong { .. })
        )
    }

    /// The same with another cure.
    #[must_use]
    pub fn with_help(mut self, help: &str) -> CliError {
        self.help = Some(help.to_owned());
        self
    }

    /// Says once of which file this is.
    #[must_use]
    pub fn of_file(mut self, file: &Path) -> CliError {
        let prefix = format!("{}: ", file.display());
        // A file that another error has named in passing is named at the beginning, and what is said twice once.
        while let Some(at) = self.message.find(&prefix) {
            let (head, tail) = (&self.message[..at], &self.message[at + prefix.len()..]);
            self.message = match tail.starts_with(head) {
                true => tail.to_owned(),
                false => format!("{head}{tail}"),
            };
        }
        if !self.message.contains(prefix.trim_end_matches(": ")) {
            self.message.insert_str(0, &prefix);
        }
        self
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for CliError {
    fn from(error: E) -> CliError {
        CliError {
            code: FAILED,
            message: error.to_string(),
            help: cure::of(&error),
            source: Some(Box::new(error)),
        }
    }
}

impl CliError {
    /// The errors below this one whose words it does not already hold.
    pub fn causes(&self) -> Vec<String> {
        let mut causes: Vec<String> = Vec::new();
        let mut next = self.source.as_ref().and_then(|e| e.source());
        while let Some(error) = next {
            let text = error.to_string();
            let said = causes.last().unwrap_or(&self.message);
            if !said.contains(&text) {
                causes.push(text);
            }
            next = error.source();
        }
        causes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_once_and_first() {
        for (message, expected) in [
            ("key: is bad", "a.gguf: key: is bad"),
            ("a.gguf: key: is bad", "a.gguf: key: is bad"),
            ("a.gguf: a.gguf: key: is bad", "a.gguf: key: is bad"),
            ("key: a.gguf: key: is bad", "a.gguf: key: is bad"),
            ("tokens: a.gguf: key: is bad", "a.gguf: tokens: key: is bad"),
            ("in folder/a.gguf key is bad", "in folder/a.gguf key is bad"),
        ] {
            let error = CliError::failed(message).of_file(Path::new("a.gguf"));
            assert_eq!(error.to_string(), expected);
        }
    }
}
