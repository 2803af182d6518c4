//! The programs of a plan and the states of the sequences over them, as they are between two losses of a device. When
//! one is lost, its programs and all sequences go with it, and what is left is taken over by the next [`Compiled`].

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use glia_core::{
    Backend, BackendError, CompileOptions, InterpretedProgram, Program, ProgramState, SeqId, StateOptions,
};

use super::pool::{Pool, States};
use super::weights::Consts;
use super::{ExecConfig, ExecError, WeightSource};
use crate::plan::{Plan, Region};

/// What programs are compiled from, beside the weights.
#[derive(Clone, Copy)]
pub(super) struct Recipe<'a> {
    pub plan: &'a Plan,
    pub config: &'a ExecConfig,
    pub backends: &'a [Arc<dyn Backend>],
}

/// One program per region, in the order of the plan, and their states.
pub(super) struct Compiled {
    /// `None` is a program that was lost with its device.
    programs: Mutex<Vec<Option<Arc<dyn Program>>>>,
    pub pool: Pool,
    /// Whether the states are gone; the reason is with them.
    lost: AtomicBool,
}

impl Compiled {
    /// Compiles every region of which `survivors` has no program, and opens states over all of them.
    ///
    /// # Errors
    /// What a backend says, or that it panicked.
    pub fn new(
        recipe: Recipe<'_>,
        weights: &dyn WeightSource,
        survivors: Vec<Option<Arc<dyn Program>>>,
    ) -> Result<Compiled, ExecError> {
        let Recipe { plan, config, backends } = recipe;
        let consts = Consts {
            graph: &plan.graph,
            weights: &plan.weights,
            source: weights,
        };
        let mut options = CompileOptions::new(&consts, config.precision);
        options.max_step_tokens = plan.limits.max_step_tokens;
        options.max_context = config.max_context;
        options.kv_dtypes = config.kv_dtypes;
        let mut state_options = StateOptions::default();
        state_options.max_state_bytes = config.max_state_bytes;
        let mut survivors = survivors.into_iter();
        let (mut programs, mut states) = (Vec::new(), Vec::new());
        for region in &plan.regions {
            let survivor = survivors.next().flatten();
            // A backend of somebody else may panic: that is an error of prepare as any other.
            let made = catch_unwind(AssertUnwindSafe(|| {
                match survivor.map(|p| open(p, &state_options)) {
                    Some(Ok(opened)) => return Ok(opened),
                    Some(Err(e)) if !e.is_device_lost() => return Err(e),
                    // It did not survive.
                    Some(Err(_)) | None => {}
                }
                open(compile(region, &backends[region.backend], &options)?, &state_options)
            }));
            let (program, state) = made.unwrap_or_else(|panic| Err(BackendError::panicked(&*panic).into()))?;
            programs.push(Some(program));
            states.push(state);
        }
        Ok(Compiled {
            programs: Mutex::new(programs),
            pool: Pool::new(states),
            lost: AtomicBool::new(false),
        })
    }

    /// The programs; `None` for those that were lost.
    pub fn programs(&self) -> MutexGuard<'_, Vec<Option<Arc<dyn Program>>>> {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a loss is known. One that no call has met yet is found by [`Compiled::look_for_loss`].
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Asks every program whether its device is still there; returns why one is not.
    pub fn look_for_loss(&self, plan: &Plan) -> Option<String> {
        let lost: Vec<bool> = self
            .programs()
            .iter()
            .map(|p| p.as_ref().is_some_and(|p| p.is_lost()))
            .collect();
        let mut states = self.pool.lock();
        for (region, _) in plan.regions.iter().zip(lost).filter(|(_, lost)| *lost) {
            self.lose(plan, &mut states, Some(region.backend), "it was found gone");
        }
        states.lost.clone()
    }

    /// Notes the loss that an error of these states tells of, if it is one. `backend` is whose call it was, as far as
    /// that is known.
    pub fn note(&self, plan: &Plan, states: &mut States, backend: Option<usize>, error: &ExecError) {
        if let Some(BackendError::DeviceLost { reason }) = error.backend() {
            self.lose(plan, states, backend, reason);
        }
    }

    /// Lets go of all states, and of the programs of `backend`: what they hold may be needed to compile again.
    fn lose(&self, plan: &Plan, states: &mut States, backend: Option<usize>, reason: &str) {
        let mut programs = self.programs();
        for (program, region) in programs.iter_mut().zip(&plan.regions) {
            if backend.is_none_or(|b| b == region.backend) {
                *program = None;
            }
        }
        states.lose(reason);
        self.lost.store(true, Ordering::Release);
    }

    /// A new sequence, empty or with the first `from.1` tokens of another; returns its length.
    ///
    /// # Errors
    /// What a program says; [`BackendError::DeviceLost`] where the states are gone.
    pub fn add(&self, plan: &Plan, seq: SeqId, from: Option<(SeqId, usize)>) -> Result<usize, ExecError> {
        let mut states = self.pool.lock();
        states.check_alive()?;
        let added = match from {
            None => states.create(seq).map(|()| 0),
            Some((from, len)) => states.fork(from, seq, len),
        };
        added.map_err(|(program, e)| {
            let error = ExecError::from(e);
            let backend = plan.regions.get(program).map(|r| r.backend);
            self.note(plan, &mut states, backend, &error);
            error
        })
    }
}

/// A program and its states.
type Ready = (Arc<dyn Program>, Box<dyn ProgramState>);

fn open(program: Arc<dyn Program>, options: &StateOptions) -> Result<Ready, ExecError> {
    let state = program.clone().open(options)?;
    Ok((program, state))
}

fn compile(
    region: &Region,
    backend: &Arc<dyn Backend>,
    options: &CompileOptions<'_>,
) -> Result<Arc<dyn Program>, ExecError> {
    let mut options = *options;
    options.outputs_to_host = &region.exports_to_host;
    if !region.interpret
        && let Some(program) = backend.compile(&region.segment, &options)?
    {
        return Ok(program);
    }
    Ok(InterpretedProgram::new(
        backend.clone(),
        region.segment.clone(),
        &options,
    )?)
}
