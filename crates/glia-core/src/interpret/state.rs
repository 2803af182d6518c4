//! The pool of sequences of an interpreted program. Rows beyond a sequence's length are tentative, so commit adds to
//! the length and rollback leaves it alone.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::InterpretedProgram;
use super::rows::{Rows, round_through};
use crate::{BackendError, ProgramState, SeqId, SeqRows, StateId, Step, Tensor, check_rows};

pub(super) struct Pool {
    pub program: Arc<InterpretedProgram>,
    seqs: BTreeMap<SeqId, Sequence>,
    /// What the running step appends, kept or dropped by commit or rollback.
    pending: Vec<SeqRows>,
    max_state_bytes: usize,
}

#[derive(Clone)]
struct Sequence {
    len: usize,
    states: Vec<[Rows; 2]>,
}

impl Pool {
    pub fn new(program: Arc<InterpretedProgram>, max_state_bytes: usize) -> Pool {
        Pool {
            program,
            seqs: BTreeMap::new(),
            pending: Vec::new(),
            max_state_bytes,
        }
    }

    /// Appends tentatively to one part of a state and returns all rows of it.
    pub fn append(&mut self, seq: SeqId, state: StateId, part: usize, new: &Tensor) -> Result<Tensor, BackendError> {
        let program = self.program.clone();
        let new = round_through(program.kv_dtypes[part], new)?;
        let max_rows = program.max_context;
        let sequence = self.seqs.get(&seq).ok_or(seq.unknown())?;
        let len = sequence.len;
        let growth = sequence.states[state.index()][part].growth_bytes(len, &new, max_rows);
        if self.max_state_bytes > 0 && growth > 0 {
            let needed_bytes = self.state_bytes().saturating_add(growth);
            if needed_bytes > self.max_state_bytes {
                return Err(BackendError::OutOfMemory {
                    what: "the KV state".to_owned(),
                    needed_bytes,
                    limit_bytes: self.max_state_bytes,
                });
            }
        }
        let sequence = self.seqs.get_mut(&seq).ok_or(seq.unknown())?;
        sequence.states[state.index()][part].append(len, &new, max_rows)
    }
}

impl Sequence {
    fn release_if_empty(&mut self) {
        if self.len == 0 {
            self.states.iter_mut().for_each(|parts| *parts = Default::default());
        }
    }
}

impl ProgramState for Pool {
    fn run(&mut self, step: &Step<'_>) -> Result<Vec<Tensor>, BackendError> {
        if !self.pending.is_empty() {
            let reason = "the last step was neither committed nor rolled back";
            return Err(BackendError::invalid("step", reason));
        }
        check_rows(step.rows, self.program.max_context, |seq| {
            self.seqs.get(&seq).map(|s| s.len)
        })?;
        self.pending = step.rows.to_vec();
        super::run::run(self, step)
    }

    fn commit(&mut self) {
        for row in self.pending.drain(..) {
            if let Some(seq) = self.seqs.get_mut(&row.seq) {
                seq.len = seq.len.saturating_add(row.n_rows);
            }
        }
    }

    fn rollback(&mut self) {
        for row in self.pending.drain(..) {
            if let Some(seq) = self.seqs.get_mut(&row.seq) {
                seq.release_if_empty();
            }
        }
    }

    fn create(&mut self, seq: SeqId) -> Result<(), BackendError> {
        if self.seqs.contains_key(&seq) {
            return Err(seq.taken());
        }
        let states = vec![<[Rows; 2]>::default(); self.program.segment.states.len()];
        self.seqs.insert(seq, Sequence { len: 0, states });
        Ok(())
    }

    fn fork(&mut self, from: SeqId, to: SeqId, len: usize) -> Result<usize, BackendError> {
        if self.seqs.contains_key(&to) {
            return Err(to.taken());
        }
        let mut copy = self.seqs.get(&from).ok_or(from.unknown())?.clone();
        copy.len = copy.len.min(len);
        let reached = copy.len;
        self.seqs.insert(to, copy);
        Ok(reached)
    }

    fn truncate(&mut self, seq: SeqId, len: usize) -> usize {
        let Some(seq) = self.seqs.get_mut(&seq) else { return 0 };
        seq.len = seq.len.min(len);
        seq.release_if_empty();
        seq.len
    }

    fn free(&mut self, seq: SeqId) {
        self.seqs.remove(&seq);
    }

    fn state_bytes(&self) -> usize {
        let parts = self.seqs.values().flat_map(|s| s.states.iter().flatten());
        let held: HashSet<(*const u8, usize)> = parts.filter_map(Rows::held).collect();
        held.iter().map(|(_, bytes)| bytes).sum()
    }
}
