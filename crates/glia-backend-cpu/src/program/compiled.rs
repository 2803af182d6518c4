//! A compiled program and the pool of its sequences.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use glia_core::{
    BackendError, CompileOptions, ConstId, Instr, Program, ProgramState, Segment, SeqId, StateOptions, Step, Tensor,
    ValueKind,
};

use super::builder::{Builder, Lowered, is_weight};
use super::run::{Runner, run_step};
use crate::error::NAME;
use crate::isa::Isa;
use crate::pack::{PackedMatrix, Store, pack_all};
use crate::simd::Level;
use crate::state::{KvLayout, SequencePool};
use crate::threads::Team;

pub(crate) struct CompiledProgram {
    pub segment: Segment,
    pub lowered: Lowered,
    pub team: Arc<Team>,
    pub level: Level,
    layout: KvLayout,
    max_context: usize,
    packed_bytes: usize,
    description: String,
}

/// Lowers a segment; `None` leaves it to the interpreter.
///
/// # Errors
/// [`BackendError`], naming the node.
pub(crate) fn compile(
    segment: &Segment,
    options: &CompileOptions<'_>,
    team: &Arc<Team>,
    (isa, level): (Isa, Level),
    store: Store,
    description: String,
) -> Result<Option<Arc<CompiledProgram>>, BackendError> {
    let Some(layout) = KvLayout::new(segment, options.kv_dtypes)? else {
        return Ok(None);
    };
    segment.check_ids()?;
    let packed = pack_weights(segment, options, team, (isa, store))?;
    let packed_bytes = packed.values().map(|m| m.size_bytes()).sum();
    let Some(builder) = Builder::new(segment, options, &layout, packed)? else {
        return Ok(None);
    };
    let Some(lowered) = builder.lower()? else {
        return Ok(None);
    };
    Ok(Some(Arc::new(CompiledProgram {
        segment: segment.clone(),
        lowered,
        team: team.clone(),
        level,
        layout,
        max_context: options.max_context,
        packed_bytes,
        description,
    })))
}

/// Packs the constant matrices of all products, spread over the team; one that is used twice is packed once.
fn pack_weights(
    segment: &Segment,
    options: &CompileOptions<'_>,
    team: &Arc<Team>,
    (isa, store): (Isa, Store),
) -> Result<HashMap<ConstId, Arc<PackedMatrix>>, BackendError> {
    let mut jobs: Vec<(ConstId, &Instr)> = Vec::new();
    for instr in &segment.instrs {
        if let Some(&id) = instr.inputs.get(1)
            && is_weight(segment, instr, id)
            && let ValueKind::Const(c) = segment.value(id).kind
            && jobs.iter().all(|(other, _)| *other != c)
        {
            jobs.push((c, instr));
        }
    }
    let named = |i: usize, e: BackendError| match jobs.get(i) {
        Some((_, instr)) => e.at(NAME, &instr.node, "matmul"),
        None => e,
    };
    let mut weights = Vec::with_capacity(jobs.len());
    for (i, (id, _)) in jobs.iter().enumerate() {
        let tensor = options.consts.tensor(*id).map_err(|e| named(i, e))?;
        segment.check_weight(*id, &tensor).map_err(|e| named(i, e))?;
        weights.push(tensor);
    }
    let turn = team.take_turn();
    let panicked = OnceLock::new();
    let packed = pack_all(&weights, options.precision, isa, store, &mut |n, job| {
        team.for_each(&turn, n, &|i| {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| job(i))) {
                let _ = panicked.set(BackendError::panicked(&*panic));
            }
        });
    });
    drop(turn);
    if let Some(e) = panicked.into_inner() {
        return Err(e);
    }
    let packed = packed.map_err(|(i, e)| named(i, e))?;
    Ok(jobs
        .iter()
        .map(|(id, _)| *id)
        .zip(packed.into_iter().map(Arc::new))
        .collect())
}

impl Program for CompiledProgram {
    fn open(self: Arc<Self>, options: &StateOptions) -> Result<Box<dyn ProgramState>, BackendError> {
        let pool = SequencePool::new(self.layout.block_bytes, self.max_context, options.max_state_bytes);
        let runner = Runner::new(&self);
        Ok(Box::new(CompiledState {
            program: self,
            pool,
            runner,
        }))
    }

    fn weight_bytes(&self) -> usize {
        let kept = self.lowered.consts.iter().filter(|t| !t.is_shared_source());
        kept.map(Tensor::size_bytes)
            .sum::<usize>()
            .saturating_add(self.packed_bytes)
    }

    fn describe(&self) -> String {
        let n = self.lowered.groups.len();
        format!("{}, {} stages, {n} groups", self.description, self.lowered.stages.len())
    }
}

struct CompiledState {
    program: Arc<CompiledProgram>,
    pool: SequencePool,
    runner: Runner,
}

impl ProgramState for CompiledState {
    fn run(&mut self, step: &Step<'_>) -> Result<Vec<Tensor>, BackendError> {
        step.check_cancelled()?;
        self.pool.begin(step.rows, &mut self.runner.seqs)?;
        // Kernels that panic are caught where they run; this is for what is done around them.
        let ran = catch_unwind(AssertUnwindSafe(|| run_step(&self.program, &mut self.runner, step)));
        ran.unwrap_or_else(|panic| Err(BackendError::panicked(&*panic)))
    }

    fn commit(&mut self) {
        self.pool.commit();
    }

    fn rollback(&mut self) {
        self.pool.rollback();
    }

    fn create(&mut self, seq: SeqId) -> Result<(), BackendError> {
        self.pool.create(seq)
    }

    fn fork(&mut self, from: SeqId, to: SeqId, len: usize) -> Result<usize, BackendError> {
        self.pool.fork(from, to, len)
    }

    fn truncate(&mut self, seq: SeqId, len: usize) -> usize {
        self.pool.truncate(seq, len)
    }

    fn free(&mut self, seq: SeqId) {
        self.pool.free(seq);
    }

    fn state_bytes(&self) -> usize {
        self.pool.state_bytes()
    }
}
