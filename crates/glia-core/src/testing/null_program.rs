//! Programs of a [`NullBackend`]: no values, only the lengths of sequences, kept as the contract asks.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::NullBackend;
use crate::{
    BackendError, CompileOptions, Program, ProgramState, Segment, SeqId, SeqRows, StateOptions, Step, Tensor,
    ValueType, check_rows,
};

pub(super) struct NullProgram {
    backend: NullBackend,
    segment: Segment,
    max_context: usize,
    outputs_to_host: Vec<bool>,
}

impl NullProgram {
    pub fn new(backend: NullBackend, segment: Segment, options: &CompileOptions<'_>) -> NullProgram {
        NullProgram {
            backend,
            outputs_to_host: (0..segment.outputs.len())
                .map(|i| options.is_output_to_host(i))
                .collect(),
            segment,
            max_context: options.max_context,
        }
    }

    /// The length that a rewind to `len` reaches.
    fn rewind(&self, current: usize, len: usize) -> usize {
        if len >= current {
            current
        } else {
            len - len % self.backend.checkpoints
        }
    }
}

impl Program for NullProgram {
    fn open(self: Arc<Self>, _: &StateOptions) -> Result<Box<dyn ProgramState>, BackendError> {
        Ok(Box::new(NullState {
            program: self,
            lengths: BTreeMap::new(),
            pending: None,
        }))
    }

    fn describe(&self) -> String {
        format!("compiled to nothing on {}", self.backend.name)
    }
}

struct NullState {
    program: Arc<NullProgram>,
    lengths: BTreeMap<SeqId, usize>,
    /// The rows of a step that is neither committed nor rolled back.
    pending: Option<Vec<SeqRows>>,
}

impl ProgramState for NullState {
    fn run(&mut self, step: &Step<'_>) -> Result<Vec<Tensor>, BackendError> {
        if self.pending.is_some() {
            let reason = "the last step was neither committed nor rolled back";
            return Err(BackendError::invalid("step", reason));
        }
        self.pending = Some(step.rows.to_vec());
        let NullProgram { backend, segment, .. } = &*self.program;
        check_rows(step.rows, self.program.max_context, |seq| {
            self.lengths.get(&seq).copied()
        })?;
        let sizes = step.check_inputs(segment)?;
        // What no region made is given on the host.
        let of_device = step.inputs.iter().filter(|t| t.check_on_host().is_err());
        of_device.into_iter().try_for_each(|t| backend.check_place(t))?;
        step.check_cancelled()?;
        let made = segment
            .outputs
            .iter()
            .zip(&self.program.outputs_to_host)
            .map(|(&id, to_host)| {
                let ty = &segment.value(id).ty;
                let shape = ty
                    .shape(&sizes)
                    .ok_or_else(|| BackendError::shape("step", format!("{ty} is too large to address")))?;
                if *to_host {
                    return Ok(Tensor::zeros(ty.dtype, shape)?);
                }
                backend.zeros(&ValueType::fixed(ty.dtype, &shape))
            });
        made.collect()
    }

    fn commit(&mut self) {
        for row in self.pending.take().into_iter().flatten() {
            if let Some(len) = self.lengths.get_mut(&row.seq) {
                *len = len.saturating_add(row.n_rows);
            }
        }
    }

    fn rollback(&mut self) {
        self.pending = None;
    }

    fn create(&mut self, seq: SeqId) -> Result<(), BackendError> {
        if self.lengths.contains_key(&seq) {
            return Err(seq.taken());
        }
        self.lengths.insert(seq, 0);
        Ok(())
    }

    fn fork(&mut self, from: SeqId, to: SeqId, len: usize) -> Result<usize, BackendError> {
        let current = *self.lengths.get(&from).ok_or(from.unknown())?;
        if self.lengths.contains_key(&to) {
            return Err(to.taken());
        }
        let reached = self.program.rewind(current, len);
        self.lengths.insert(to, reached);
        Ok(reached)
    }

    fn truncate(&mut self, seq: SeqId, len: usize) -> usize {
        let Some(current) = self.lengths.get_mut(&seq) else {
            return 0;
        };
        *current = self.program.rewind(*current, len);
        *current
    }

    fn free(&mut self, seq: SeqId) {
        self.lengths.remove(&seq);
    }
}
