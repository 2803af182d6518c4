//! The states of all programs behind one lock, taken once per step. Sequences move in step in every program.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use glia_core::{BackendError, ProgramState, SeqId};

pub(super) struct Pool {
    states: Mutex<States>,
    /// Sequences of dropped sessions, freed by whoever takes the lock next.
    released: Mutex<Vec<SeqId>>,
    next: AtomicU64,
}

/// One state per program, in the order of the plan.
pub(super) struct States {
    pub programs: Vec<Box<dyn ProgramState>>,
    /// Why the states are gone, if they are: then there are none.
    pub lost: Option<String>,
    /// What a run has to restore should it not end: sequences and their lengths before it.
    unfinished: Vec<(SeqId, usize)>,
}

impl Pool {
    pub fn new(programs: Vec<Box<dyn ProgramState>>) -> Pool {
        Pool {
            states: Mutex::new(States {
                programs,
                unfinished: Vec::new(),
                lost: None,
            }),
            released: Mutex::new(Vec::new()),
            next: AtomicU64::new(0),
        }
    }

    /// The states; what a panicking backend left behind is undone first, and dropped sessions are freed.
    pub fn lock(&self) -> MutexGuard<'_, States> {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        self.tidy(&mut states);
        states
    }

    fn tidy(&self, states: &mut States) {
        states.restore();
        let released = std::mem::take(&mut *self.released.lock().unwrap_or_else(PoisonError::into_inner));
        for seq in released {
            states.free(seq);
        }
    }

    /// A number that no sequence has had.
    pub fn next_id(&self) -> SeqId {
        SeqId(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Frees a sequence now, or queues it while a step runs.
    pub fn release(&self, seq: SeqId) {
        self.released.lock().unwrap_or_else(PoisonError::into_inner).push(seq);
        let states = match self.states.try_lock() {
            Ok(states) => states,
            Err(TryLockError::Poisoned(e)) => e.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let mut states = states;
        self.tidy(&mut states);
    }
}

impl States {
    /// Fails once the states are gone.
    ///
    /// # Errors
    /// [`BackendError::DeviceLost`].
    pub fn check_alive(&self) -> Result<(), BackendError> {
        match &self.lost {
            None => Ok(()),
            Some(reason) => Err(BackendError::DeviceLost {
                reason: format!("{reason}; the session's tokens went with it: begin a new one"),
            }),
        }
    }

    /// Lets the states of a lost device go, and with them those of all others: a sequence is in step in all or is gone.
    /// The first reason stands.
    pub fn lose(&mut self, reason: &str) {
        self.programs.clear();
        self.unfinished.clear();
        self.lost.get_or_insert_with(|| reason.to_owned());
    }

    /// Adds an empty sequence to every program, or to none; an error comes with the program's index.
    pub fn create(&mut self, seq: SeqId) -> Result<(), (usize, BackendError)> {
        let mut programs = self.programs.iter_mut().enumerate();
        let made = programs.try_for_each(|(i, p)| p.create(seq).map_err(|e| (i, e)));
        made.inspect_err(|_| self.free(seq))
    }

    /// Copies the first `len` tokens in every program, or in none; returns how many all of them have. An error comes
    /// with the program's index.
    pub fn fork(&mut self, from: SeqId, to: SeqId, len: usize) -> Result<usize, (usize, BackendError)> {
        let mut least = len;
        for i in 0..self.programs.len() {
            match self.programs[i].fork(from, to, len) {
                Ok(reached) => least = least.min(reached),
                Err(e) => {
                    self.free(to);
                    return Err((i, e));
                }
            }
        }
        Ok(self.truncate(to, least))
    }

    /// Shortens a sequence to the same length in every program.
    pub fn truncate(&mut self, seq: SeqId, len: usize) -> usize {
        let mut least = len;
        // A program may reach less than asked for; the others then follow, until all agree.
        loop {
            let asked = least;
            for program in &mut self.programs {
                least = least.min(program.truncate(seq, least));
            }
            if least == asked {
                return least;
            }
        }
    }

    /// Drops a sequence.
    pub fn free(&mut self, seq: SeqId) {
        self.programs.iter_mut().for_each(|p| p.free(seq));
    }

    /// Remembers how long the sequences of a run are, for [`States::restore`].
    pub fn begin(&mut self, seqs: impl Iterator<Item = (SeqId, usize)>) {
        self.unfinished = seqs.collect();
    }

    /// The run has succeeded.
    pub fn finish(&mut self) {
        self.unfinished.clear();
    }

    /// Undoes an unfinished run: its open step, and the steps that it has committed.
    pub fn restore(&mut self) {
        let unfinished = std::mem::take(&mut self.unfinished);
        if unfinished.is_empty() {
            return;
        }
        self.programs.iter_mut().for_each(|p| p.rollback());
        for (seq, len) in unfinished {
            self.truncate(seq, len);
        }
    }

    pub fn state_bytes(&self) -> usize {
        self.programs
            .iter()
            .map(|p| p.state_bytes())
            .fold(0, usize::saturating_add)
    }
}
