//! One step: inputs checked, addresses resolved, then the team goes through the groups of stages together.

use std::ops::Range;
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
use crate::threads::{Patience, Progress};

/// What survives from step to step: memory, never meaning.
pub(crate) struct Runner {
    pub seqs: Vec<SeqBlocks>,
    arena: Arena,
    values: Vec<RawValue>,
    work: Vec<Work>,
    next: Vec<AtomicUsize>,
    left: Vec<AtomicUsize>,
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
            left: program.lowered.stages.iter().map(|_| AtomicUsize::new(0)).collect(),
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
    // A profile tells the stages apart.
    let stages = 0..program.lowered.stages.len();
    let apart: Vec<Range<usize>> = match step.profile {
        Some(_) => stages.map(|i| i..i + 1).collect(),
        None => Vec::new(),
    };
    let groups = if step.profile.is_some() {
        &apart
    } else {
        &program.lowered.groups
    };
    runner.next.iter_mut().for_each(|n| *n.get_mut() = 0);
    for (left, group) in runner.left.iter_mut().zip(groups) {
        *left.get_mut() = runner.work[group.clone()].iter().map(|w| w.n_items).sum();
    }
    let turn = program.team.take_turn();
    let walk = Walk {
        program,
        step,
        cx: &cx,
        work: &runner.work,
        groups,
        next: &runner.next,
        left: &runner.left,
        progress: Progress::new(program.team.may_spin(), groups.len()),
        failure: Mutex::new(None),
        since: Mutex::new(Instant::now()),
    };
    walk.begin();
    let scratch = &runner.scratch;
    program.team.walk(&turn, &|thread| walk.thread(&scratch[thread]));
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
    /// Runs of stages that do not depend on each other.
    groups: &'a [Range<usize>],
    /// For each stage, the first item that nobody has taken.
    next: &'a [AtomicUsize],
    /// For each group, the items that are not done.
    left: &'a [AtomicUsize],
    progress: Progress,
    failure: Mutex<Option<BackendError>>,
    /// When the team came to the group it is at.
    since: Mutex<Instant>,
}

impl Walk<'_> {
    /// Goes to the first group that has work.
    fn begin(&self) {
        match self.step.check_cancelled() {
            Ok(()) => self.progress.advance(0, self.with_work(0)),
            Err(e) => self.fail(e),
        }
    }

    /// The first group from `group` on that has work.
    fn with_work(&self, group: usize) -> usize {
        let ahead = self.left[group..self.groups.len()].iter();
        group + ahead.take_while(|left| left.load(Ordering::Relaxed) == 0).count()
    }

    /// All of one thread's part. Never panics: a panic in a kernel ends the step with an error.
    fn thread(&self, scratch: &Mutex<Scratch>) {
        let mut at = 0;
        let walked = catch_unwind(AssertUnwindSafe(|| {
            let mut scratch = scratch.lock().unwrap_or_else(|e| e.into_inner());
            let (mut group, mut patience) = (0, Patience::default());
            while let Some(here) = self.progress.reach(group, &mut patience) {
                self.group(here, &mut scratch, &mut at)?;
                group = here + 1;
            }
            Ok(())
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
        self.progress.end();
    }

    /// Does what is left to take of a group; who finishes it moves the team on. `at` is the stage the thread is at.
    fn group(&self, group: usize, scratch: &mut Scratch, at: &mut usize) -> Result<(), BackendError> {
        let mut done = 0;
        for stage in self.groups[group].clone() {
            *at = stage;
            done += self.stage(stage, scratch)?;
        }
        // What others did happened before their count, and before ours: it is seen by all who come to the next group.
        if done == 0 || self.left[group].fetch_sub(done, Ordering::AcqRel) != done {
            return Ok(());
        }
        if let Some(sink) = self.step.profile {
            let mut since = self.since.lock().unwrap_or_else(|e| e.into_inner());
            sink.add_since(self.program.lowered.stages[*at].instr, *since);
            *since = Instant::now();
        }
        self.step.check_cancelled()?;
        self.progress.advance(group, self.with_work(group + 1));
        Ok(())
    }

    /// Does items of a stage while there are any; how many.
    fn stage(&self, index: usize, scratch: &mut Scratch) -> Result<usize, BackendError> {
        let (stage, Work { n_items, per_chunk }) = (&self.program.lowered.stages[index], self.work[index]);
        let per_chunk = per_chunk.max(1);
        let mut done = 0;
        // A look first: who comes late must not push the counter on for ever.
        while self.next[index].load(Ordering::Relaxed) < n_items && !self.progress.has_ended() {
            let first = self.next[index].fetch_add(per_chunk, Ordering::Relaxed);
            if first >= n_items {
                break;
            }
            let items = first..n_items.min(first.saturating_add(per_chunk));
            let n = items.len();
            // SAFETY: the counter gives every item of the stage to one thread, once.
            let mut chunk = unsafe { Chunk::new(items) };
            let ran = stage.kernel.run(self.cx, &mut chunk, scratch);
            ran.map_err(|e| named(self.program, stage.instr, e))?;
            done += n;
        }
        Ok(done)
    }
}
