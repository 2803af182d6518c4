//! How the programs of a case ran: compiled by the backend, or node by node because it compiled nothing.

use std::fmt;
use std::sync::Mutex;

/// How a case came by its programs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ran {
    /// `compile` gave a program.
    Compiled,
    /// `compile` was asked and returned `None`.
    Declined,
    /// `compile` was not asked: the backend does not support this node (its name and op).
    NotAsked(String),
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ran::Compiled => f.write_str("compiled"),
            Ran::Declined => f.write_str("interpreted, compile returned None"),
            Ran::NotAsked(node) => write!(f, "interpreted, compile was not asked: {node} is not supported"),
        }
    }
}

/// What a case notes of its programs: the worst counts, an interpreted one among compiled ones shows.
#[derive(Debug, Default)]
pub(super) struct Programs(Mutex<Option<Ran>>);

impl Programs {
    pub fn note(&self, ran: &Ran) {
        let mut noted = self.0.lock().unwrap_or_else(|e| e.into_inner());
        if matches!(*noted, None | Some(Ran::Compiled)) {
            *noted = Some(ran.clone());
        }
    }

    pub fn take(self) -> Option<Ran> {
        self.0.into_inner().unwrap_or_else(|e| e.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interpreted_program_shows_among_compiled_ones() {
        let programs = Programs::default();
        for ran in [Ran::Compiled, Ran::Declined, Ran::Compiled] {
            programs.note(&ran);
        }
        assert_eq!(programs.take(), Some(Ran::Declined));
        assert_eq!(Programs::default().take(), None);
    }
}
