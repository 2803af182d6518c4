//! One step: inputs checked, addresses resolved, then the team walks the stages together.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use glia_core::{BackendError, Sizes, Step, Tensor};

use super::compiled::CompiledProgram;
use super::memory::{fresh_outputs, resolve};
use crate::arena::{Arena, Chunk, Partials, RawValue, Values};
use crate::error::{NAME, invalid};
use crate::kernel::{Scratch, StepCx, Work, grown};
use crate::state::SeqBlocks;
use crate::threads::Barrier;

/// What survives from step to step: memory, never meaning.
pub(crate) struct Runner {
    pub seqs: Vec<SeqBlocks>,
    arena: Arena,
    values: Vec<RawValue>,
    work: Vec<Work>,
    next: Vec<AtomicUsize>,
    scratch: Vec<Mutex<Scratch>>,
    partials: Vec<f32>,
}

impl Runner {
    pub fn new(program: &CompiledProgram) -> Runner {
        Runner {
            seqs: Vec::new(),
            arena: Arena::default(),
            values: Vec::new(),
            work: Vec::new(),
            next: program.lowered.stages.iter().map(|_| AtomicUsize::new(0)).collect(),
            scratch: (0..program.team.n_threads()).map(|_| Mutex::default()).collect(),
            partials: Vec::new(),
        }
    }
}

/// Runs a step whose rows the pool has checked and made room for.
///
/// # Errors
/// [`BackendError`]; tentative rows may have been written.
pub(crate) fn run_step(
    program: &CompiledProgram,
    runner: &mut Runner,
    step: &Step<'_>,
) -> Result<Vec<Tensor>, BackendError> {
    let sizes = step.check_inputs(&program.segment)?;
    let aligned: Vec<Tensor> = step.inputs.iter().map(aligned).collect::<Result<_, _>>()?;
    let mut fresh = fresh_outputs(&program.lowered, &sizes)?;
    resolve(
        &program.lowered,
        &sizes,
        &mut runner.arena,
        &aligned,
        &mut fresh,
        &mut runner.values,
    )?;
    let mut cx = StepCx {
        values: Values(&runner.values),
        rows: step.rows,
        seqs: &runner.seqs,
        n_threads: program.team.n_threads(),
        level: program.level,
        partials: Partials::new(&mut []),
    };
    runner.work.clear();
    let mut n_partials = 0;
    for stage in &program.lowered.stages {
        let (work, floats) = (stage.kernel.work(&cx), stage.kernel.partial_floats(&cx));
        let named = |e| named(program, stage.instr, e);
        runner.work.push(work.map_err(named)?);
        n_partials = n_partials.max(floats.map_err(named)?);
    }
    cx.partials = Partials::new(grown(&mut runner.partials, n_partials));
    runner.next.iter_mut().for_each(|n| *n.get_mut() = 0);
    let turn = program.team.take_turn();
    let walk = Walk {
        program,
        step,
        cx: &cx,
        work: &runner.work,
        next: &runner.next,
        barrier: Barrier::new(program.team.n_threads()),
        failure: Mutex::new(None),
    };
    let scratch = &runner.scratch;
    program.team.walk(&turn, &|thread| walk.thread(thread, scratch));
    drop(turn);
    if let Some(e) = walk.failure.into_inner().unwrap_or_else(|e| e.into_inner()) {
        return Err(e);
    }
    outputs(program, &sizes, &aligned, &fresh)
}

fn named(program: &CompiledProgram, instr: usize, e: BackendError) -> BackendError {
    let instr = &program.segment.instrs[instr];
    e.at(NAME, &instr.node, instr.op.kind())
}

/// Inputs are read in place when their address suits every plain dtype.
fn aligned(tensor: &Tensor) -> Result<Tensor, BackendError> {
    let suits = tensor.bytes()?.as_ptr().addr().is_multiple_of(8);
    Ok(if suits {
        tensor.clone()
    } else {
        tensor.to_owned_aligned()?
    })
}

fn outputs(
    program: &CompiledProgram,
    sizes: &Sizes,
    inputs: &[Tensor],
    fresh: &[Tensor],
) -> Result<Vec<Tensor>, BackendError> {
    use super::builder::Place;
    let mut all = Vec::with_capacity(program.segment.outputs.len());
    for &id in &program.segment.outputs {
        let root = program.segment.resolve(id);
        let tensor = match program.lowered.places[root.index()] {
            Place::Output(i) => &fresh[i],
            Place::Input(i) => &inputs[i],
            Place::Const(i) => &program.lowered.consts[i],
            _ => {
                return Err(invalid(
                    "plan",
                    format!("output `{}` has no memory", program.segment.value(id).name),
                ));
            }
        };
        let ty = &program.segment.value(id).ty;
        let wanted = ty.shape(sizes).ok_or_else(|| crate::error::too_large("an output"))?;
        all.push(tensor.reshaped(wanted)?);
    }
    Ok(all)
}

struct Walk<'a> {
    program: &'a CompiledProgram,
    step: &'a Step<'a>,
    cx: &'a StepCx<'a>,
    work: &'a [Work],
    /// For each stage, the first item that nobody has taken.
    next: &'a [AtomicUsize],
    barrier: Barrier,
    failure: Mutex<Option<BackendError>>,
}

impl Walk<'_> {
    /// All of one thread's part. Never panics: a panic in a kernel ends the step with an error.
    fn thread(&self, thread: usize, scratch: &[Mutex<Scratch>]) {
        let mut at = 0;
        let walked = catch_unwind(AssertUnwindSafe(|| {
            let mut scratch = scratch[thread].lock().unwrap_or_else(|e| e.into_inner());
            self.walk(thread == 0, &mut scratch, &mut at)
        }));
        match walked {
            Ok(Ok(())) => {}
            Ok(Err(e)) => self.fail(e),
            Err(panic) => {
                let stage = &self.program.lowered.stages[at];
                self.fail(named(self.program, stage.instr, BackendError::panicked(&*panic)));
            }
        }
    }

    fn fail(&self, e: BackendError) {
        let mut failure = self.failure.lock().unwrap_or_else(|e| e.into_inner());
        failure.get_or_insert(e);
        drop(failure);
        self.barrier.poison();
    }

    /// `at` is the stage that the thread is at.
    fn walk(&self, leader: bool, scratch: &mut Scratch, at: &mut usize) -> Result<(), BackendError> {
        for group in &self.program.lowered.groups {
            if leader {
                self.step.check_cancelled()?;
            }
            if self.step.profile.is_none() {
                let mut busy = false;
                for stage in group.clone() {
                    *at = stage;
                    busy |= self.work[stage].n_items > 0;
                    self.stage(stage, scratch)?;
                }
                if busy && !self.barrier.wait() {
                    return Ok(());
                }
                continue;
            }
            for stage in group.clone() {
                *at = stage;
                let started = Instant::now();
                self.stage(stage, scratch)?;
                if !self.barrier.wait() {
                    return Ok(());
                }
                if let (true, Some(sink)) = (leader, self.step.profile) {
                    sink.add_since(self.program.lowered.stages[stage].instr, started);
                }
            }
        }
        Ok(())
    }

    fn stage(&self, index: usize, scratch: &mut Scratch) -> Result<(), BackendError> {
        let (stage, Work { n_items, per_chunk }) = (&self.program.lowered.stages[index], self.work[index]);
        let per_chunk = per_chunk.max(1);
        loop {
            let first = self.next[index].fetch_add(per_chunk, Ordering::Relaxed);
            if first >= n_items || self.barrier.is_poisoned() {
                return Ok(());
            }
            // SAFETY: the counter gives every item of the stage to one thread, once.
            let mut chunk = unsafe { Chunk::new(first..n_items.min(first.saturating_add(per_chunk))) };
            stage
                .kernel
                .run(self.cx, &mut chunk, scratch)
                .map_err(|e| named(self.program, stage.instr, e))?;
        }
    }
}
