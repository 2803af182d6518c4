//! Compiled segments: what `compile` is told, the program it returns, and the state that steps change.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::{BackendError, ConstId, DType, Tensor};

/// How exactly a backend must compute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// F32 activations, whatever the dtype of the weights.
    Exact,
    /// Int8 or bf16 activations where that is the fast kernel.
    #[default]
    Fast,
}

/// Resolves weights by id, lazily: a tensor that was packed can be let go.
pub trait ConstSource: Send + Sync {
    /// The weight.
    ///
    /// # Errors
    /// When it cannot be read.
    fn tensor(&self, id: ConstId) -> Result<Tensor, BackendError>;

    /// How many weights there are; ids are below.
    fn n_consts(&self) -> usize;
}

/// What [`Backend::compile`](crate::Backend::compile) is told beside the segment.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct CompileOptions<'a> {
    /// The weights.
    pub consts: &'a dyn ConstSource,
    /// How exactly to compute.
    pub precision: Precision,
    /// Most rows of a step: `T` never exceeds it.
    pub max_step_tokens: usize,
    /// Most tokens of a sequence: `P + T` never exceeds it.
    pub max_context: usize,
    /// Storage dtypes of the keys and values of KV caches: F32, F16 or Q8_0.
    pub kv_dtypes: [DType; 2],
    /// For each output of the segment, whether only the host reads it: it is returned to the caller, or goes to a
    /// backend in main memory. Empty when nothing is known. See [`ProgramState::run`].
    pub outputs_to_host: &'a [bool],
}

impl<'a> CompileOptions<'a> {
    /// Options with F32 caches.
    pub fn new(consts: &'a dyn ConstSource, precision: Precision) -> CompileOptions<'a> {
        let kv_dtypes = [DType::F32; 2];
        CompileOptions {
            consts,
            precision,
            max_step_tokens: 512,
            max_context: 4096,
            kv_dtypes,
            outputs_to_host: &[],
        }
    }

    /// Whether only the host reads the segment's output `i`.
    pub fn is_output_to_host(&self, i: usize) -> bool {
        self.outputs_to_host.get(i).copied().unwrap_or(false)
    }
}

/// What [`Program::open`] is told.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct StateOptions {
    /// Bytes that states may take in all; 0 is unlimited. A step that would need more fails before any work with
    /// [`BackendError::OutOfMemory`].
    pub max_state_bytes: usize,
}

/// A sequence in the pool of a program; the executor gives the ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeqId(pub u64);

/// Which rows of a step belong to which sequence. Rows of a step are dense and in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeqRows {
    /// The sequence.
    pub seq: SeqId,
    /// First row of the step.
    pub first_row: usize,
    /// Rows, at least one.
    pub n_rows: usize,
    /// Tokens already in the sequence: position of its first row.
    pub pos: usize,
}

/// Asks a running step to stop. Clones share the flag.
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<Flag>);

#[derive(Debug, Default)]
struct Flag {
    cancelled: AtomicBool,
    /// Checks until the token cancels itself; `None` is never.
    checks_left: Option<AtomicUsize>,
}

impl CancelToken {
    /// A token that nobody has cancelled.
    pub fn new() -> CancelToken {
        CancelToken::default()
    }

    /// A token that lets `n` checks pass and cancels itself at the next: tests of backends stop a step with it at
    /// every place where it can stop.
    pub fn after_checks(n: usize) -> CancelToken {
        CancelToken(Arc::new(Flag {
            cancelled: AtomicBool::new(n == 0),
            checks_left: Some(AtomicUsize::new(n)),
        }))
    }

    /// Asks to stop.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::Relaxed);
    }

    /// Whether someone asked.
    pub fn is_cancelled(&self) -> bool {
        if self.0.cancelled.load(Ordering::Relaxed) {
            return true;
        }
        if let Some(left) = &self.0.checks_left
            && left.fetch_sub(1, Ordering::Relaxed) <= 1
        {
            self.cancel();
        }
        false
    }
}

/// Time of one instruction, or of one part of it: an instruction may have several entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpTime {
    /// Index into the segment's instructions.
    pub instr: usize,
    /// When it began, since the step did.
    pub start: Duration,
    /// How long it took.
    pub time: Duration,
    /// Measured by the device's own clock rather than the host's.
    pub device_clock: bool,
}

/// Collects times during a profiled step, whose clock starts with the sink.
#[derive(Debug)]
pub struct ProfileSink {
    began: Instant,
    times: Mutex<Vec<OpTime>>,
}

impl Default for ProfileSink {
    fn default() -> ProfileSink {
        ProfileSink {
            began: Instant::now(),
            times: Mutex::default(),
        }
    }
}

impl ProfileSink {
    /// When the step began.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// Adds a time.
    pub fn add(&self, time: OpTime) {
        self.times.lock().unwrap_or_else(|e| e.into_inner()).push(time);
    }

    /// Adds an instruction that began at `started` and ends now, by the host's clock.
    pub fn add_since(&self, instr: usize, started: Instant) {
        self.add(OpTime {
            instr,
            start: started.saturating_duration_since(self.began),
            time: started.elapsed(),
            device_clock: false,
        });
    }

    /// Takes all times.
    pub fn take(&self) -> Vec<OpTime> {
        std::mem::take(&mut self.times.lock().unwrap_or_else(|e| e.into_inner()))
    }
}

/// One step over the rows of one or many sequences.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Step<'a> {
    /// Who owns which rows.
    pub rows: &'a [SeqRows],
    /// One tensor per [`Segment::inputs`](crate::Segment::inputs), injected ones included (`pos` is that of the first
    /// sequence; programs with several take it from `rows`). What the caller gave and what is injected lies on the
    /// host, whatever the backend's memory space; what another region made lies in the backend's own. See
    /// [`ProgramState::run`].
    pub inputs: &'a [Tensor],
    /// Rows of the step whose outputs are wanted, rising; the values of the injected `wanted_rows`.
    pub wanted_rows: &'a [u32],
    /// For each of the segment's outputs whether anybody reads it; `None` is all of them. A program may return anything
    /// in the place of one that nobody reads.
    pub wanted_outputs: Option<&'a [bool]>,
    /// Asked by [`Step::check_cancelled`].
    pub cancel: Option<&'a CancelToken>,
    /// Where times go; `None` costs nothing. With a sink, the program adds the time of each instruction, or of those
    /// that run as one under the first of them.
    pub profile: Option<&'a ProfileSink>,
}

impl<'a> Step<'a> {
    /// A step without cancel and profile.
    pub fn new(rows: &'a [SeqRows], inputs: &'a [Tensor], wanted_rows: &'a [u32]) -> Step<'a> {
        Step {
            rows,
            inputs,
            wanted_rows,
            wanted_outputs: None,
            cancel: None,
            profile: None,
        }
    }

    /// Rows in all.
    pub fn n_rows(&self) -> usize {
        self.rows.iter().map(|r| r.n_rows).sum()
    }

    /// Whether anybody reads output `i` of the segment.
    pub fn wants(&self, i: usize) -> bool {
        self.wanted_outputs
            .is_none_or(|wanted| wanted.get(i).copied().unwrap_or(true))
    }

    /// Fails once someone has cancelled. A program asks at least once before it begins to work, and then between
    /// instructions, or between the pieces that it hands to a device. It passes the error on; after `rollback` all is as
    /// before the step.
    ///
    /// # Errors
    /// [`BackendError::Cancelled`].
    pub fn check_cancelled(&self) -> Result<(), BackendError> {
        match self.cancel {
            Some(token) if token.is_cancelled() => Err(BackendError::Cancelled),
            _ => Ok(()),
        }
    }
}

/// A compiled segment: packed weights, pipelines. Immutable, shared.
pub trait Program: Send + Sync {
    /// Opens a pool of sequences.
    ///
    /// # Errors
    /// [`BackendError::OutOfMemory`] and the backend's own.
    fn open(self: Arc<Self>, options: &StateOptions) -> Result<Box<dyn ProgramState>, BackendError>;

    /// Bytes held for weights outside the memory map: packed forms, copies on a device. 0 says that all weights are
    /// read where they lie.
    fn weight_bytes(&self) -> usize {
        0
    }

    /// Whether its device is gone, so that every step fails with [`BackendError::DeviceLost`] from now on. The executor
    /// asks when a session is opened, and then compiles the segment again: a backend that opens a new device in
    /// [`Backend::compile`](crate::Backend::compile) works on. Where a program cannot tell, a step that returns that
    /// error does.
    fn is_lost(&self) -> bool {
        false
    }

    /// How it runs, a line for `inspect --plan`: `compiled for avx512-vnni, 2 threads`.
    fn describe(&self) -> String {
        String::new()
    }
}

/// The mutable half of a program: arena and the states of many sequences.
///
/// `run` is tentative until `commit`; `rollback` undoes it. The executor calls exactly one of the two after each
/// `run`, also after one that failed (then always `rollback`).
pub trait ProgramState: Send {
    /// Runs a step. Never returns memory that the next step overwrites. Outputs are in the order of the segment.
    ///
    /// A program with a memory of its own takes two kinds of inputs, told apart by
    /// [`Tensor::check_on_host`](crate::Tensor::check_on_host): tensors of its own space, and host tensors, which it
    /// brings over itself, best in the submit that reads them (ids and positions are a few bytes, and a call of
    /// [`Backend::upload`](crate::Backend::upload) each would be a submit each). It may return outputs on the host as
    /// well, read back in that same submit; [`CompileOptions::outputs_to_host`] says which are read nowhere else.
    /// Other outputs stay in its space, so that the next region of that space takes them without a copy.
    ///
    /// # Errors
    /// [`BackendError`]; the states are as before after `rollback`.
    fn run(&mut self, step: &Step<'_>) -> Result<Vec<Tensor>, BackendError>;

    /// Keeps what the last `run` appended.
    fn commit(&mut self);

    /// Forgets what the last `run` appended.
    fn rollback(&mut self);

    /// Adds an empty sequence.
    ///
    /// # Errors
    /// When memory is out or the id is taken.
    fn create(&mut self, seq: SeqId) -> Result<(), BackendError>;

    /// Adds `to` with the first `len` tokens of `from`; returns how many it got (fewer when a state cannot rewind).
    ///
    /// # Errors
    /// When memory is out or an id is unknown or taken.
    fn fork(&mut self, from: SeqId, to: SeqId, len: usize) -> Result<usize, BackendError>;

    /// Shortens a sequence; returns the length reached, at most `len`.
    fn truncate(&mut self, seq: SeqId, len: usize) -> usize;

    /// Drops a sequence. Unknown ids are ignored.
    fn free(&mut self, seq: SeqId);

    /// Bytes that the states hold now, which [`StateOptions::max_state_bytes`] limits: at least the rows of all tokens,
    /// those that forks share once; 0 when no sequence holds a token. The default is for programs without states.
    fn state_bytes(&self) -> usize {
        0
    }
}
