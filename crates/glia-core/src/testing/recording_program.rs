//! Programs and states of a [`RecordingBackend`](super::RecordingBackend).

use std::sync::Arc;

use super::recording::Log;
use super::{Call, listed_tensors};
use crate::{Backend, BackendError, Program, ProgramState, SeqId, StateOptions, Step, Tensor};

pub(super) struct RecordingProgram {
    inner: Arc<dyn Program>,
    backend: Arc<dyn Backend>,
    log: Log,
}

impl RecordingProgram {
    pub fn new(inner: Arc<dyn Program>, backend: Arc<dyn Backend>, log: Log) -> RecordingProgram {
        RecordingProgram { inner, backend, log }
    }
}

impl Program for RecordingProgram {
    fn open(self: Arc<Self>, options: &StateOptions) -> Result<Box<dyn ProgramState>, BackendError> {
        let limit = match options.max_state_bytes {
            0 => String::new(),
            n => format!(", states of at most {n} bytes"),
        };
        let call = (Call::Open, format!("open{limit}"));
        let inner = self.log.around_any(
            call,
            || self.inner.clone().open(options),
            |_, _| Ok(()),
            |_| String::new(),
        )?;
        Ok(Box::new(RecordingState {
            inner,
            backend: self.backend.clone(),
            log: self.log.clone(),
        }))
    }

    fn weight_bytes(&self) -> usize {
        self.inner.weight_bytes()
    }

    fn is_lost(&self) -> bool {
        self.inner.is_lost()
    }

    fn describe(&self) -> String {
        format!("{}, recorded", self.inner.describe())
    }
}

struct RecordingState {
    inner: Box<dyn ProgramState>,
    backend: Arc<dyn Backend>,
    log: Log,
}

fn nothing<T>(_: &T) -> String {
    String::new()
}

fn reached(asked: usize) -> impl Fn(&usize) -> String {
    move |&n| {
        if n == asked { String::new() } else { format!(" -> {n}") }
    }
}

impl ProgramState for RecordingState {
    fn run(&mut self, step: &Step<'_>) -> Result<Vec<Tensor>, BackendError> {
        let rows: Vec<String> = step
            .rows
            .iter()
            .map(|r| format!("{}@{}+{}", r.seq.0, r.pos, r.n_rows))
            .collect();
        let text = format!(
            "run {} wanting {:?} of {}",
            rows.join(" "),
            step.wanted_rows,
            listed_tensors(step.inputs)
        );
        self.log
            .around((Call::Run, text), &*self.backend, || self.inner.run(step))
    }

    fn commit(&mut self) {
        self.log
            .plain(Call::Commit, "commit".to_owned(), || self.inner.commit(), nothing);
    }

    fn rollback(&mut self) {
        self.log
            .plain(Call::Rollback, "rollback".to_owned(), || self.inner.rollback(), nothing);
    }

    fn create(&mut self, seq: SeqId) -> Result<(), BackendError> {
        let call = (Call::Create, format!("create {}", seq.0));
        self.log
            .around_any(call, || self.inner.create(seq), |_, ()| Ok(()), nothing)
    }

    fn fork(&mut self, from: SeqId, to: SeqId, len: usize) -> Result<usize, BackendError> {
        let call = (Call::Fork, format!("fork {} to {} at {len}", from.0, to.0));
        self.log
            .around_any(call, || self.inner.fork(from, to, len), |_, _| Ok(()), reached(len))
    }

    fn truncate(&mut self, seq: SeqId, len: usize) -> usize {
        let text = format!("truncate {} to {len}", seq.0);
        self.log
            .plain(Call::Truncate, text, || self.inner.truncate(seq, len), reached(len))
    }

    fn free(&mut self, seq: SeqId) {
        self.log
            .plain(Call::Free, format!("free {}", seq.0), || self.inner.free(seq), nothing);
    }

    fn state_bytes(&self) -> usize {
        self.inner.state_bytes()
    }
}
