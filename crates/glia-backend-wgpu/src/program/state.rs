//! The mutable half of a program: device memory that grows with what steps need, the cached rows, and the step itself.

use std::sync::Arc;

use glia_core::{BackendError, ProgramState, SeqId, Sizes, StateDef, StateId, StateOptions, Step, Tensor, check_rows};

use super::apart;
use super::compiled::Compiled;
use super::run::Bound;
use super::seqs::{BLOCK_TOKENS, BlockCopy, Seqs};
use super::step::{self, StepInfo, TableHeader};
use crate::ops::cache::row_bytes;

/// Blocks that memory is first taken for; it doubles from there.
const FIRST_BLOCKS: usize = 32;

pub(super) struct State {
    program: Arc<Compiled>,
    seqs: Seqs,
    bound: Bound,
    /// Blocks that the cache has memory for.
    n_blocks: usize,
    max_state_bytes: usize,
}

impl State {
    pub fn new(program: Arc<Compiled>, options: &StateOptions) -> State {
        State {
            bound: Bound::new(&program),
            program,
            seqs: Seqs::default(),
            n_blocks: 0,
            max_state_bytes: options.max_state_bytes,
        }
    }

    /// Bytes that a block takes over all states.
    fn block_bytes(&self) -> usize {
        let parts = |def: &StateDef| -> usize {
            let bytes = |(part, ty): (usize, &glia_core::ValueType)| {
                row_bytes(
                    self.program.kv_dtype(part),
                    ty.as_fixed().and_then(|s| s.checked_elems()).unwrap_or(0),
                )
            };
            def.spec.parts.iter().enumerate().map(bytes).sum()
        };
        let per_row: usize = self.program.segment.states.iter().map(parts).sum();
        per_row.saturating_mul(BLOCK_TOKENS)
    }

    /// Memory for as many blocks as there are, doubled each time that it runs out.
    fn grow_cache(&mut self) -> Result<(), BackendError> {
        let needed = self.seqs.n_blocks();
        if needed <= self.n_blocks || self.program.segment.states.is_empty() {
            return Ok(());
        }
        let most = self.program.max_context.div_ceil(BLOCK_TOKENS).max(needed);
        let n_blocks = needed.next_power_of_two().max(FIRST_BLOCKS).min(most).max(needed);
        for (s, def) in self.program.segment.states.iter().enumerate() {
            for (part, ty) in def.spec.parts.iter().enumerate() {
                let n_elems = ty.as_fixed().and_then(|s| s.checked_elems()).unwrap_or(0);
                let bytes = row_bytes(self.program.kv_dtype(part), n_elems).saturating_mul(BLOCK_TOKENS * n_blocks);
                self.bound
                    .grow_kv(&self.program, StateId(s as u32), part, bytes as u64)?;
            }
        }
        self.n_blocks = n_blocks;
        Ok(())
    }

    fn check_limit(&self) -> Result<(), BackendError> {
        let needed_bytes = self.seqs.n_used().saturating_mul(self.block_bytes());
        if self.max_state_bytes > 0 && needed_bytes > self.max_state_bytes {
            return Err(BackendError::OutOfMemory {
                what: "the KV state".to_owned(),
                needed_bytes,
                limit_bytes: self.max_state_bytes,
            });
        }
        Ok(())
    }

    fn step(&mut self, step: &Step<'_>) -> Result<Vec<Tensor>, BackendError> {
        let program = self.program.clone();
        let sizes = step.check_inputs(&program.segment)?;
        step::check_sizes(&program.segment, &sizes)?;
        let copies = self.seqs.begin(step.rows)?;
        self.check_limit()?;
        self.grow_cache()?;
        if !program.one_sequence || step.rows.len() == 1 {
            return self.run_rows(step, sizes, &copies);
        }
        let mut of_parts = Vec::with_capacity(step.rows.len());
        for (i, part) in apart::parts(&program.gpu, &program.segment, step)?.iter().enumerate() {
            let mut alone = Step::new(&part.rows, &part.inputs, &part.wanted);
            alone.cancel = step.cancel;
            alone.profile = step.profile;
            alone.wanted_outputs = step.wanted_outputs;
            let sizes = alone.check_inputs(&program.segment)?;
            of_parts.push(self.run_rows(&alone, sizes, if i == 0 { &copies } else { &[] })?);
        }
        let mut outputs = Vec::with_capacity(program.segment.outputs.len());
        for (i, &id) in program.segment.outputs.iter().enumerate() {
            let pieces: Vec<Tensor> = of_parts.iter().map(|part| part[i].clone()).collect();
            outputs.push(if step.wants(i) {
                apart::join(&program.gpu, &program.segment, id, &pieces)?
            } else {
                pieces[0].clone()
            });
        }
        Ok(outputs)
    }

    /// Runs rows whose blocks are there.
    fn run_rows(&mut self, step: &Step<'_>, sizes: Sizes, copies: &[BlockCopy]) -> Result<Vec<Tensor>, BackendError> {
        let program = self.program.clone();
        let info = StepInfo {
            sizes,
            rows: step.rows,
            table: TableHeader::of(step.rows, &self.seqs),
        };
        let table = step::table_words(step.rows, &self.seqs, &info.table);
        let block_bytes = |state: StateId, part: usize| {
            let ty = &program.segment.states[state.index()].spec.parts[part];
            let n_elems = ty.as_fixed().and_then(|s| s.checked_elems()).unwrap_or(0);
            (row_bytes(program.kv_dtype(part), n_elems) * BLOCK_TOKENS) as u64
        };
        self.bound.run(&program, step, &info, &table, copies, &block_bytes)
    }
}

impl ProgramState for State {
    fn run(&mut self, step: &Step<'_>) -> Result<Vec<Tensor>, BackendError> {
        self.program.gpu.check_alive()?;
        if self.seqs.in_step() {
            return Err(BackendError::InvalidInput {
                op: "step".to_owned(),
                reason: "the last step was neither committed nor rolled back".to_owned(),
            });
        }
        check_rows(step.rows, self.program.max_context, |seq| self.seqs.len(seq))?;
        let done = self.step(step);
        if let Err(BackendError::OutOfMemory { .. }) = done {
            // What a large step had taken must not keep a small one from running.
            self.bound.release(&self.program);
        }
        done
    }

    fn commit(&mut self) {
        self.seqs.commit();
    }

    fn rollback(&mut self) {
        self.seqs.rollback();
    }

    fn create(&mut self, seq: SeqId) -> Result<(), BackendError> {
        self.seqs.create(seq)
    }

    fn fork(&mut self, from: SeqId, to: SeqId, len: usize) -> Result<usize, BackendError> {
        self.seqs.fork(from, to, len)
    }

    fn truncate(&mut self, seq: SeqId, len: usize) -> usize {
        self.seqs.truncate(seq, len)
    }

    fn free(&mut self, seq: SeqId) {
        self.seqs.free(seq);
    }

    fn state_bytes(&self) -> usize {
        self.seqs.n_used().saturating_mul(self.block_bytes())
    }
}
