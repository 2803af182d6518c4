//! Wraps any backend, writes each call into a journal, and injects faults on demand.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::recording_program::RecordingProgram;
use super::{Call, Entry, Fault, Journal, kv, listed, listed_tensors};
use crate::{
    Backend, BackendError, CompileOptions, InterpretedProgram, MemoryHints, MemorySpace, NodeCx, NodeView, Op, Packed,
    Program, Segment, Tensor, interpreter_runs,
};

type Hook = Box<dyn FnMut(&Entry) -> Option<Fault> + Send>;

/// Passes every call on to another backend and writes it into a [`Journal`], for tests of whoever calls backends:
/// which node ran where, what crossed memories, in which order programs were committed or rolled back.
///
/// Support queries, names and hints are passed on unrecorded. Where the wrapped backend does not compile a segment,
/// the segment is interpreted on the recording, so calls of its program are recorded too; but an executor does not
/// offer a segment for compilation when some of its nodes are left to the interpreter: see
/// [`RecordingBackend::with_programs`].
///
/// Clones share the journal and the faults.
#[derive(Clone)]
pub struct RecordingBackend {
    inner: Arc<dyn Backend>,
    pub(super) log: Log,
    n_programs: Arc<AtomicUsize>,
    claims_interpreted: bool,
}

/// Where calls go, and what is done to them.
#[derive(Clone)]
pub(super) struct Log {
    who: String,
    journal: Journal,
    hook: Arc<Mutex<Option<Hook>>>,
}

impl Log {
    /// Asks the hook about a call; the entry is written by [`Log::done`].
    pub fn begin(&self, call: Call, text: String) -> (Entry, Option<Fault>) {
        let who = self.who.clone();
        let entry = Entry { who, call, text };
        let mut hook = self.hook.lock().unwrap_or_else(PoisonError::into_inner);
        let fault = hook.as_mut().and_then(|hook| hook(&entry));
        (entry, fault)
    }

    /// Makes a call that has outputs, or none, and writes its line.
    pub fn around(
        &self,
        (call, text): (Call, String),
        backend: &dyn Backend,
        make: impl FnOnce() -> Result<Vec<Tensor>, BackendError>,
    ) -> Result<Vec<Tensor>, BackendError> {
        self.around_any(
            (call, text),
            make,
            |fault, outputs| fault.after(backend, outputs),
            |outputs| {
                if outputs.is_empty() {
                    String::new()
                } else {
                    format!(" -> {}", listed_tensors(outputs))
                }
            },
        )
    }

    /// Makes any call that can fail and writes its line: with what `show` says, or the error.
    pub fn around_any<T>(
        &self,
        (call, text): (Call, String),
        make: impl FnOnce() -> Result<T, BackendError>,
        spoil: impl FnOnce(Fault, &mut T) -> Result<(), BackendError>,
        show: impl FnOnce(&T) -> String,
    ) -> Result<T, BackendError> {
        let (mut entry, fault) = self.begin(call, text);
        if fault == Some(Fault::Panics) {
            entry.text += ", which panics";
            self.journal.push(entry);
            return Fault::Panics.before().and_then(|()| make());
        }
        let made = match fault {
            None => make(),
            Some(fault) => fault.before().and_then(|()| make()).and_then(|mut made| {
                spoil(fault, &mut made)?;
                Ok(made)
            }),
        };
        match &made {
            Ok(made) => entry.text += &show(made),
            Err(error) => entry.text += &format!(" fails: {error}"),
        }
        self.journal.push(entry);
        made
    }

    /// Makes a call that cannot fail.
    pub fn plain<T>(&self, call: Call, text: String, make: impl FnOnce() -> T, show: impl FnOnce(&T) -> String) -> T {
        let (mut entry, fault) = self.begin(call, text);
        if fault == Some(Fault::Panics) {
            entry.text += ", which panics";
            self.journal.push(entry);
            panic!("told to");
        }
        let made = make();
        entry.text += &show(&made);
        self.journal.push(entry);
        made
    }
}

impl RecordingBackend {
    /// Records the calls of `inner` into a journal of its own.
    pub fn new(inner: Arc<dyn Backend>) -> RecordingBackend {
        let log = Log {
            who: inner.name().to_owned(),
            journal: Journal::new(),
            hook: Arc::default(),
        };
        RecordingBackend {
            inner,
            log,
            n_programs: Arc::default(),
            claims_interpreted: false,
        }
    }

    /// Writes into this journal, which several backends may share: their calls are then in one order.
    #[must_use]
    pub fn writing_to(mut self, journal: &Journal) -> RecordingBackend {
        self.log.journal = journal.clone();
        self
    }

    /// Claims what the interpreter runs for every backend (views, caches, lookups), so that whole segments are offered
    /// to [`Backend::compile`] and the calls of their programs are recorded. Plans may differ from those of the
    /// wrapped backend: a lookup that nobody claims follows its reader, one that is claimed stays here.
    #[must_use]
    pub fn with_programs(mut self) -> RecordingBackend {
        self.claims_interpreted = true;
        self
    }

    /// What has been recorded.
    pub fn journal(&self) -> &Journal {
        &self.log.journal
    }

    /// Calls `hook` before each recorded call with the line as far as it is known then; the fault that it returns
    /// strikes. Replaces an earlier hook and [`RecordingBackend::arm`]. The hook must not call the backend.
    pub fn on_call(&self, hook: impl FnMut(&Entry) -> Option<Fault> + Send + 'static) {
        *self.log.hook.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(hook));
    }

    /// Lets the `n`-th call of this kind from now on go wrong, counted from 1, over all programs.
    pub fn arm(&self, call: Call, n: usize, fault: Fault) {
        let mut seen = 0usize;
        self.on_call(move |entry| {
            seen += usize::from(entry.call == call);
            (entry.call == call && seen == n).then_some(fault)
        });
    }

    /// Lets all calls go right again.
    pub fn disarm(&self) {
        *self.log.hook.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Backend for RecordingBackend {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn supports(&self, op: &Op) -> bool {
        self.inner.supports(op)
    }

    fn execute(&self, op: &Op, inputs: &[&Tensor]) -> Result<Vec<Tensor>, BackendError> {
        let text = format!("execute {op} of {}", listed_tensors(inputs.iter().copied()));
        self.log
            .around((Call::Execute, text), &*self.inner, || self.inner.execute(op, inputs))
    }

    fn supports_node(&self, node: &NodeView<'_>) -> bool {
        self.inner.supports_node(node) || (self.claims_interpreted && interpreter_runs(node))
    }

    fn pack(&self, node: &NodeView<'_>, input: usize, weight: &Tensor) -> Result<Option<Packed>, BackendError> {
        let text = format!(
            "pack `{}` {} input {input}, {}",
            node.name,
            node.op.kind(),
            listed_tensors([weight])
        );
        let show = |packed: &Option<Packed>| match packed {
            Some(packed) => format!(" -> {} bytes", packed.size_bytes),
            None => " -> kept".to_owned(),
        };
        self.log.around_any(
            (Call::Pack, text),
            || self.inner.pack(node, input, weight),
            |_, _| Ok(()),
            show,
        )
    }

    fn execute_node(&self, cx: &mut NodeCx<'_>) -> Result<(), BackendError> {
        let inputs: Vec<String> = cx
            .inputs
            .iter()
            .enumerate()
            .map(|(i, tensor)| match cx.packed.get(i) {
                Some(Some(_)) => format!("packed {}", listed([&cx.node.inputs[i]])),
                _ => listed_tensors([tensor]),
            })
            .collect();
        let text = format!("execute `{}` {} of {}", cx.node.name, cx.node.op, inputs.join(", "));
        let inner = &*self.inner;
        *cx.outputs = self.log.around((Call::Execute, text), inner, || {
            inner.execute_node(cx)?;
            Ok(std::mem::take(cx.outputs))
        })?;
        Ok(())
    }

    fn space(&self) -> MemorySpace {
        self.inner.space()
    }

    fn upload(&self, host: &Tensor) -> Result<Tensor, BackendError> {
        let text = format!("upload {}", listed_tensors([host]));
        self.log.around_any(
            (Call::Upload, text),
            || self.inner.upload(host),
            |_, _| Ok(()),
            |_| String::new(),
        )
    }

    fn download(&self, tensor: &Tensor) -> Result<Tensor, BackendError> {
        let text = format!("download {}", listed_tensors([tensor]));
        self.log.around_any(
            (Call::Download, text),
            || self.inner.download(tensor),
            |_, _| Ok(()),
            |_| String::new(),
        )
    }

    fn memory_hints(&self) -> MemoryHints {
        self.inner.memory_hints()
    }

    fn compile(
        &self,
        segment: &Segment,
        options: &CompileOptions<'_>,
    ) -> Result<Option<Arc<dyn Program>>, BackendError> {
        let number = self.n_programs.fetch_add(1, Ordering::Relaxed);
        let text = format!(
            "compile {} nodes as {}.{number}, steps of {}, contexts of {}, {:?}, caches of {}",
            segment.instrs.len(),
            self.inner.name(),
            options.max_step_tokens,
            options.max_context,
            options.precision,
            kv(options.kv_dtypes),
        );
        let log = Log {
            who: format!("{}.{number}", self.log.who),
            ..self.log.clone()
        };
        let make = || {
            if let Some(program) = self.inner.compile(segment, options)? {
                return Ok((program, true));
            }
            // The interpreter must meet the backend's own answers: it runs itself what is only claimed.
            let honest = RecordingBackend {
                claims_interpreted: false,
                ..self.clone()
            };
            let program = InterpretedProgram::new(Arc::new(honest), Arc::new(segment.clone()), options)?;
            Ok((program, false))
        };
        let show = |(_, own): &(Arc<dyn Program>, bool)| if *own { "" } else { ", interpreted" }.to_owned();
        let (program, _) = self.log.around_any((Call::Compile, text), make, |_, _| Ok(()), show)?;
        Ok(Some(Arc::new(RecordingProgram::new(program, self.inner.clone(), log))))
    }
}

impl fmt::Debug for RecordingBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordingBackend({})", self.inner.name())
    }
}
