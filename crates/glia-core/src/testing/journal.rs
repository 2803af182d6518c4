//! What a [`RecordingBackend`](super::RecordingBackend) has seen: one readable line per call, in order, also across
//! several backends that share a journal.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// A call of the `Backend`, `Program` or `ProgramState` trait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // Named as the methods are; `Execute` is `execute` and `execute_node`.
pub enum Call {
    Pack,
    Upload,
    Download,
    Execute,
    Compile,
    Open,
    Run,
    Commit,
    Rollback,
    Create,
    Fork,
    Truncate,
    Free,
}

/// One call: who got it and what it said. Prints as its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The backend's name; a program adds its number: `cpu.0`.
    pub who: String,
    /// Which call.
    pub call: Call,
    /// The line without the name: `run 1@0+4 wanting [3]`.
    pub text: String,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.who, self.text)
    }
}

/// A shared list of calls. Clones write to the same list.
#[derive(Clone, Debug, Default)]
pub struct Journal(Arc<Mutex<Vec<Entry>>>);

impl Journal {
    /// An empty journal.
    pub fn new() -> Journal {
        Journal::default()
    }

    /// The lines so far; they are gone afterwards.
    pub fn take(&self) -> Vec<String> {
        self.take_entries().iter().map(ToString::to_string).collect()
    }

    /// As [`Journal::take`], showing only these calls.
    pub fn take_only(&self, calls: &[Call]) -> Vec<String> {
        let entries = self.take_entries();
        let wanted = entries.iter().filter(|e| calls.contains(&e.call));
        wanted.map(ToString::to_string).collect()
    }

    /// The entries so far; they are gone afterwards.
    pub fn take_entries(&self) -> Vec<Entry> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How often a call was made since the journal was last taken.
    pub fn count(&self, call: Call) -> usize {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.iter().filter(|e| e.call == call).count()
    }

    pub(super) fn push(&self, entry: Entry) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
    }
}
