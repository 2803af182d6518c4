//! Exit codes, as the help text documents them, and the error that carries one.

use std::error::Error;
use std::fmt;
use std::path::Path;

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

    /// Says once of which file this is.
    #[must_use]
    pub fn of_file(mut self, file: &Path) -> CliError {
        let prefix = format!("{}: ", file.display());
        if let Some(rest) = self.message.strip_prefix(&prefix).filter(|m| m.starts_with(&prefix)) {
            self.message = rest.to_owned();
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
