//! Scripts of steps and state changes, run alike on the backend's program and on the oracle's, and compared.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::{Built, MixedBackend};
use crate::conformance::case::guarded;
use crate::conformance::data::{Random, plain};
use crate::conformance::op::repeat;
use crate::conformance::ran::Ran;
use crate::{
    Backend, BackendError, CancelToken, CompileOptions, DType, InputRole, Instr, InterpretedProgram, NodeView,
    Precision, ProfileSink, Program, ProgramState, SeqId, SeqRows, StateOptions, Step, Tensor, ValueId, ValueKind,
};

/// Something done to a pool of sequences.
#[derive(Clone, Debug)]
pub(in crate::conformance) enum Action {
    Create(u64),
    /// Rows of one or several sequences: (sequence, tokens), wanted rows of the step.
    Step(Vec<(u64, Range<i32>)>, Wanted),
    /// A step that is cancelled at every check in turn, then runs through.
    CancelEverywhere(Vec<(u64, Range<i32>)>),
    /// A step that is run and rolled back.
    RolledBack(Vec<(u64, Range<i32>)>),
    /// A step that must be refused, with an error that says this.
    Refused(Bad, &'static str),
    Truncate(u64, usize),
    Fork(u64, u64, usize),
    /// `fork` or `create` with ids that are unknown or taken.
    RefusedFork(u64, u64),
    RefusedCreate(u64),
    Free(u64),
    /// The states hold no bytes.
    Empty,
}

/// Which rows of a step are wanted.
#[derive(Clone, Debug)]
pub(in crate::conformance) enum Wanted {
    All,
    Last,
    None,
    These(Vec<u32>),
}

/// Steps that no program may run.
#[derive(Clone, Debug)]
pub(in crate::conformance) enum Bad {
    /// Of a sequence that does not exist, or behind a wrong number of tokens.
    Rows(Vec<SeqRows>),
    /// More tokens than fit.
    Tokens(u64, Range<i32>),
    /// One row too few in every input.
    Inputs(u64, Range<i32>),
}

/// What an action gave.
#[derive(Clone, Debug)]
pub(in crate::conformance) enum Event {
    Outputs(Vec<Tensor>),
    Length(usize),
    Done,
}

impl Event {
    /// The bytes of each output.
    pub fn bytes(&self) -> Vec<Vec<u8>> {
        match self {
            Event::Outputs(list) => list.iter().map(|t| t.bytes().unwrap_or_default().to_vec()).collect(),
            _ => Vec::new(),
        }
    }
}

/// How a segment is compiled and opened.
#[derive(Clone, Copy, Debug)]
pub(in crate::conformance) struct Setup {
    pub precision: Precision,
    pub kv: DType,
    pub max_context: usize,
    pub max_state_bytes: usize,
    /// Node by node, even where the backend compiles.
    pub interpret: bool,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            precision: Precision::Exact,
            kv: DType::F32,
            max_context: 4096,
            max_state_bytes: 0,
            interpret: false,
        }
    }
}

/// A program with its sequences, as a script sees them.
pub(in crate::conformance) struct Rig {
    backend: Arc<dyn Backend>,
    built: Built,
    pub program: Arc<dyn Program>,
    pub state: Box<dyn ProgramState>,
    lens: BTreeMap<u64, usize>,
    pub ran: Ran,
}

/// Whether the backend runs every node itself; else whether it runs any that the interpreter does not.
pub(in crate::conformance) fn support(backend: &dyn Backend, built: &Built) -> (bool, bool) {
    let (lacking, any) = lacking(backend, built);
    (lacking.is_none(), any)
}

/// The first node that the backend does not run, and whether it runs any that the interpreter does not.
fn lacking(backend: &dyn Backend, built: &Built) -> (Option<String>, bool) {
    let (mut lacking, mut any) = (None, false);
    for instr in &built.segment.instrs {
        let yes = takes(backend, built, instr);
        if !yes {
            lacking.get_or_insert_with(|| format!("`{}` ({})", instr.node, instr.op.kind()));
        }
        any |= yes && !instr.op.is_view() && !instr.op.is_stateful();
    }
    (lacking, any)
}

/// Whether the backend runs this node of the segment.
pub(in crate::conformance) fn takes(backend: &dyn Backend, built: &Built, instr: &Instr) -> bool {
    let segment = &built.segment;
    let (inputs, outputs) = (segment.types(&instr.inputs), segment.types(&instr.outputs));
    let constant = |id: &ValueId| matches!(segment.value(segment.resolve(*id)).kind, ValueKind::Const(_));
    let consts: Vec<bool> = instr.inputs.iter().map(constant).collect();
    backend.supports_node(&NodeView::new(&instr.node, &instr.op, &inputs, &outputs, &consts))
}

impl Rig {
    /// Compiled where the backend does that, else interpreted; nodes that it lacks run on the oracle, as the planner
    /// would give them to another backend.
    pub fn new(backend: &Arc<dyn Backend>, built: &Built, setup: Setup) -> Result<Rig, BackendError> {
        let mut options = CompileOptions::new(&*built.weights, setup.precision);
        options.max_context = setup.max_context;
        options.kv_dtypes = [setup.kv; 2];
        let (lacking, _) = lacking(&**backend, built);
        let compiled = if lacking.is_none() && !setup.interpret {
            guarded(|| backend.compile(&built.segment, &options))?
        } else {
            None
        };
        let interpreted = |runs| InterpretedProgram::new(runs, built.segment.clone(), &options);
        let (program, ran): (Arc<dyn Program>, Ran) = match (compiled, lacking) {
            (Some(program), _) => (program, Ran::Compiled),
            (None, None) => (interpreted(backend.clone())?, Ran::Declined),
            (None, Some(node)) => (
                interpreted(Arc::new(MixedBackend(backend.clone())))?,
                Ran::NotAsked(node),
            ),
        };
        let state_options = StateOptions {
            max_state_bytes: setup.max_state_bytes,
        };
        let state = guarded(|| program.clone().open(&state_options))?;
        Ok(Rig {
            backend: backend.clone(),
            built: built.clone(),
            program,
            state,
            lens: BTreeMap::new(),
            ran,
        })
    }

    fn rows(&self, seqs: &[(u64, Range<i32>)]) -> Vec<SeqRows> {
        let mut first_row = 0;
        seqs.iter()
            .map(|(seq, tokens)| {
                let rows = SeqRows {
                    seq: SeqId(*seq),
                    first_row,
                    n_rows: tokens.len(),
                    pos: self.lens.get(seq).copied().unwrap_or(0),
                };
                first_row += tokens.len();
                rows
            })
            .collect()
    }

    /// Inputs of a step: what a token gives depends on the token alone.
    fn inputs(&self, rows: &[SeqRows], tokens: &[i32], wanted: &[u32]) -> Result<Vec<Tensor>, BackendError> {
        let segment = &self.built.segment;
        let mut inputs = Vec::new();
        for &id in &segment.inputs {
            let def = segment.value(id);
            let ValueKind::Input(role) = &def.kind else { continue };
            inputs.push(match role {
                InputRole::Pos => Tensor::from_i32([1], &[rows.first().map_or(0, |r| r.pos as i32)])?,
                InputRole::Positions => {
                    let of = |r: &SeqRows| (r.pos..r.pos + r.n_rows).map(|p| p as i32).collect::<Vec<_>>();
                    let all: Vec<i32> = rows.iter().flat_map(of).collect();
                    Tensor::from_i32([all.len()], &all)?
                }
                InputRole::WantedRows => {
                    let all: Vec<i32> = wanted.iter().map(|&w| w as i32).collect();
                    Tensor::from_i32([all.len()], &all)?
                }
                InputRole::Named(_) if def.ty.dtype.is_int() => {
                    // Vocabularies of the suite have 48 entries.
                    let ids: Vec<i32> = tokens.iter().map(|t| t.rem_euclid(48)).collect();
                    Tensor::from_i32([ids.len()], &ids)?
                }
                InputRole::Named(name) => {
                    let row: Vec<usize> = def.ty.dims[1..].iter().filter_map(|d| d.as_fixed()).collect();
                    let width: usize = row.iter().product();
                    let of = |t: &i32| Random::of(&format!("{name}{t}")).floats(width, 1.0);
                    let all: Vec<f64> = tokens.iter().flat_map(of).map(f64::from).collect();
                    let shape: Vec<usize> = [tokens.len()].into_iter().chain(row).collect();
                    plain(def.ty.dtype, &shape, &all)
                }
            });
        }
        Ok(inputs)
    }

    /// A step whose times go to `sink`.
    pub fn profiled(&mut self, seqs: &[(u64, Range<i32>)], sink: &ProfileSink) -> Result<Vec<Tensor>, String> {
        let ran = self.run(seqs, &Wanted::All, (None, Some(sink)));
        self.commit(seqs);
        ran.map_err(|e| e.to_string())
    }

    /// Median time of a step with its outputs brought to the host, always behind the same tokens.
    pub fn time(&mut self, seqs: &[(u64, Range<i32>)], wanted: &[u32]) -> Result<Duration, BackendError> {
        let rows = self.rows(seqs);
        let tokens: Vec<i32> = seqs.iter().flat_map(|(_, t)| t.clone()).collect();
        let inputs = self.inputs(&rows, &tokens, wanted)?;
        repeat(|| {
            let ran = guarded(|| self.state.run(&Step::new(&rows, &inputs, wanted)));
            self.state.rollback();
            for tensor in ran?.iter().filter(|t| t.check_on_host().is_err()) {
                self.backend.download(tensor)?;
            }
            Ok(())
        })
    }

    fn run(
        &mut self,
        seqs: &[(u64, Range<i32>)],
        wanted: &Wanted,
        (cancel, profile): (Option<&CancelToken>, Option<&ProfileSink>),
    ) -> Result<Vec<Tensor>, BackendError> {
        let rows = self.rows(seqs);
        let tokens: Vec<i32> = seqs.iter().flat_map(|(_, t)| t.clone()).collect();
        let n = tokens.len() as u32;
        let wanted: Vec<u32> = match wanted {
            Wanted::All => (0..n).collect(),
            Wanted::Last => n.checked_sub(1).into_iter().collect(),
            Wanted::None => Vec::new(),
            Wanted::These(list) => list.clone(),
        };
        let inputs = self.inputs(&rows, &tokens, &wanted)?;
        let mut step = Step::new(&rows, &inputs, &wanted);
        step.cancel = cancel;
        step.profile = profile;
        let outputs = guarded(|| self.state.run(&step))?;
        let home = |t: Tensor| {
            if t.check_on_host().is_ok() {
                Ok(t)
            } else {
                self.backend.download(&t)
            }
        };
        let outputs: Vec<Tensor> = outputs.into_iter().map(home).collect::<Result<_, _>>()?;
        match outputs.iter().find_map(Tensor::overrun) {
            Some(place) => Err(BackendError::invalid(
                "step",
                format!("a write past the end of an output: {place}"),
            )),
            None => Ok(outputs),
        }
    }

    /// What an action does, at the lengths that sequences have now.
    pub fn in_words(&self, action: &Action) -> String {
        let rows = |seqs: &[(u64, Range<i32>)]| {
            let of = |(seq, tokens): &(u64, Range<i32>)| {
                let pos = self.lens.get(seq).copied().unwrap_or(0);
                format!(
                    "sequence {seq} at position {pos}, tokens {}..{}",
                    tokens.start, tokens.end
                )
            };
            seqs.iter().map(of).collect::<Vec<_>>().join(" and ")
        };
        match action {
            Action::Create(seq) => format!("create {seq}"),
            Action::Step(seqs, Wanted::All) => format!("a step of {}", rows(seqs)),
            Action::Step(seqs, wanted) => format!("a step of {}, wanted rows {wanted:?}", rows(seqs)),
            Action::CancelEverywhere(seqs) => format!("a step cancelled at every check, of {}", rows(seqs)),
            Action::RolledBack(seqs) => format!("a step that is rolled back, of {}", rows(seqs)),
            Action::Refused(Bad::Rows(bad), _) => format!("a step that must be refused, of {bad:?}"),
            Action::Refused(Bad::Tokens(seq, tokens), _) => {
                format!("a step that must be refused, of {}", rows(&[(*seq, tokens.clone())]))
            }
            Action::Refused(Bad::Inputs(seq, tokens), _) => {
                format!("a step with a row too few, of {}", rows(&[(*seq, tokens.clone())]))
            }
            Action::Truncate(seq, len) => format!("truncate {seq} to {len}"),
            Action::Fork(from, to, len) => format!("fork {from} to {to} at {len}"),
            Action::RefusedFork(from, to) => format!("fork {from} to {to}, which must be refused"),
            Action::RefusedCreate(seq) => format!("create {seq}, which must be refused"),
            Action::Free(seq) => format!("free {seq}"),
            Action::Empty => "look at the bytes of states".to_owned(),
        }
    }

    fn commit(&mut self, seqs: &[(u64, Range<i32>)]) {
        self.state.commit();
        for (seq, tokens) in seqs {
            *self.lens.entry(*seq).or_default() += tokens.len();
        }
    }

    /// Does one thing; an error says what went otherwise than it must.
    pub fn act(&mut self, action: &Action) -> Result<Event, String> {
        let said = |e: BackendError| format!("failed: {e}");
        match action {
            Action::Create(seq) => {
                self.state.create(SeqId(*seq)).map_err(said)?;
                self.lens.insert(*seq, 0);
                Ok(Event::Done)
            }
            Action::Step(seqs, wanted) => match self.run(seqs, wanted, (None, None)) {
                Ok(outputs) => {
                    self.commit(seqs);
                    Ok(Event::Outputs(outputs))
                }
                Err(e) => {
                    self.state.rollback();
                    Err(said(e))
                }
            },
            Action::CancelEverywhere(seqs) => {
                // Room that a step has made may stay, but not more of it than the step itself needs.
                let mut most = 0;
                for n in 0.. {
                    let token = CancelToken::after_checks(n);
                    match self.run(seqs, &Wanted::All, (Some(&token), None)) {
                        Ok(_) if n == 0 => {
                            self.state.rollback();
                            return Err("a step ran through although it was cancelled before it began: ask \
                                 `step.check_cancelled()` before the work and between its pieces"
                                .to_owned());
                        }
                        Ok(outputs) => {
                            self.commit(seqs);
                            let needed = self.state.state_bytes();
                            if most > needed {
                                return Err(format!(
                                    "cancelled steps leave {most} bytes of states, one that runs through {needed}"
                                ));
                            }
                            return Ok(Event::Outputs(outputs));
                        }
                        Err(e) if matches!(e.root(), BackendError::Cancelled) => self.state.rollback(),
                        Err(e) => return Err(format!("cancelled at check {n}, the step says: {e}")),
                    }
                    most = most.max(self.state.state_bytes());
                }
                Ok(Event::Done)
            }
            Action::RolledBack(seqs) => {
                let ran = self.run(seqs, &Wanted::All, (None, None));
                self.state.rollback();
                ran.map(Event::Outputs).map_err(said)
            }
            Action::Refused(bad, says) => self.refused(bad, says),
            Action::Truncate(seq, len) => {
                let reached = self.state.truncate(SeqId(*seq), *len);
                if let Some(now) = self.lens.get_mut(seq) {
                    *now = reached.min(*now);
                }
                Ok(Event::Length(reached))
            }
            Action::Fork(from, to, len) => {
                let reached = self.state.fork(SeqId(*from), SeqId(*to), *len).map_err(said)?;
                self.lens.insert(*to, reached);
                Ok(Event::Length(reached))
            }
            Action::RefusedFork(from, to) => match self.state.fork(SeqId(*from), SeqId(*to), 1) {
                Ok(_) => Err(format!(
                    "sequence {from} was forked to {to}; one is unknown or the other is taken"
                )),
                Err(_) => Ok(Event::Done),
            },
            Action::RefusedCreate(seq) => match self.state.create(SeqId(*seq)) {
                Ok(()) => Err(format!("sequence {seq} was created twice")),
                Err(_) => Ok(Event::Done),
            },
            Action::Free(seq) => {
                self.state.free(SeqId(*seq));
                self.lens.remove(seq);
                Ok(Event::Done)
            }
            Action::Empty => match self.state.state_bytes() {
                0 => Ok(Event::Done),
                n => Err(format!("no sequence holds a token, states hold {n} bytes")),
            },
        }
    }

    fn refused(&mut self, bad: &Bad, says: &str) -> Result<Event, String> {
        let said = |e: BackendError| e.to_string();
        let ran = match bad {
            Bad::Tokens(seq, tokens) => self.run(&[(*seq, tokens.clone())], &Wanted::Last, (None, None)),
            Bad::Rows(rows) => {
                let n: usize = rows.iter().map(|r| r.n_rows).sum();
                let inputs = self.inputs(rows, &vec![1; n], &[]).map_err(said)?;
                guarded(|| self.state.run(&Step::new(rows, &inputs, &[])))
            }
            Bad::Inputs(seq, tokens) => {
                let rows = self.rows(&[(*seq, tokens.clone())]);
                let fewer: Vec<i32> = tokens.clone().skip(1).collect();
                let short = [SeqRows {
                    n_rows: fewer.len(),
                    ..rows[0]
                }];
                let inputs = self.inputs(&short, &fewer, &[]).map_err(said)?;
                guarded(|| self.state.run(&Step::new(&rows, &inputs, &[])))
            }
        };
        self.state.rollback();
        match ran {
            Ok(_) => Err(format!("ran instead of being refused ({says})")),
            Err(e) if matches!(e.root(), BackendError::Panicked { .. }) => Err(said(e)),
            Err(e) => match e.to_string().contains(says) {
                true => Ok(Event::Done),
                false => Err(format!("the error must say `{says}`, it says: {e}")),
            },
        }
    }
}
