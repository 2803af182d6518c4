//! Runs a script on the backend and on the oracle and compares what came back.

use std::sync::Arc;

use super::{Action, Built, Event, Rig, Setup, blame, support};
use crate::conformance::case::{Cx, Failure, Outcome};
use crate::conformance::compare::compare;
use crate::conformance::fault::StateFault;
use crate::conformance::limits::{Element, Limit};
use crate::conformance::ran::Ran;
use crate::conformance::state::TENTATIVE;
use crate::reference::ReferenceBackend;
use crate::{Backend, DType, Precision, Tensor};

/// A segment, how it is compiled, and what is done with it.
pub(in crate::conformance) struct Check {
    pub what: String,
    pub built: Built,
    pub setup: Setup,
    pub script: Vec<Action>,
    /// Dtype of the matrices, for the limits.
    weights: DType,
    /// Whether a segment counts without a node that computes.
    any_node: bool,
    /// What a failure looks like when no known mistake gives just its outputs.
    pub(super) symptom: Option<&'static str>,
}

impl Check {
    pub fn new(what: impl Into<String>, built: Built, setup: Setup, script: Vec<Action>) -> Check {
        Check {
            what: what.into(),
            built,
            setup,
            script,
            weights: DType::F32,
            any_node: false,
            symptom: None,
        }
    }

    /// Runs also where the backend computes no node of the segment.
    pub fn any_node(mut self) -> Check {
        self.any_node = true;
        self
    }

    pub fn weights(mut self, dtype: DType) -> Check {
        self.weights = dtype;
        self
    }

    pub fn symptom(mut self, says: &'static str) -> Check {
        self.symptom = Some(says);
        self
    }

    pub(super) fn limit(&self) -> Limit {
        let (nmse, peak, why) = match (self.setup.precision, self.weights) {
            (Precision::Fast, dtype) if dtype.is_quantized() => (
                5e-3,
                0.2,
                "activations of 8 bits in every product, rounded again where they differ",
            ),
            (Precision::Exact, _) if self.setup.kv != DType::F32 => {
                (1e-4, 0.02, "rows rounded as the cache keeps them")
            }
            (Precision::Fast, _) => (1e-5, 0.02, "activations and caches of 16 bits"),
            _ => (1e-9, 2e-4, "f32 throughout, a few ops one after the other"),
        };
        Limit {
            nmse,
            element: Element::Peak(peak),
            typical: 0.0,
            why,
        }
    }
}

/// What every action gave, up to the first that went wrong.
pub(super) struct Trace {
    pub events: Vec<Event>,
    /// Every action in words, at the lengths that sequences had then.
    said: Vec<String>,
    broken: Option<String>,
    /// Which step's outputs were overwritten later.
    overwritten: Option<usize>,
}

fn trace(rig: &mut Rig, script: &[Action]) -> Trace {
    let (mut events, mut kept): (Vec<Event>, Vec<Vec<Vec<u8>>>) = (Vec::new(), Vec::new());
    let (mut broken, mut said) = (None, Vec::new());
    let bytes = |t: &Tensor| t.bytes().map(<[u8]>::to_vec).unwrap_or_default();
    for action in script {
        said.push(rig.in_words(action));
        match rig.act(action) {
            Ok(event) => {
                kept.push(match &event {
                    Event::Outputs(list) => list.iter().map(bytes).collect(),
                    _ => Vec::new(),
                });
                events.push(event);
            }
            Err(what) => {
                broken = Some(what);
                break;
            }
        }
    }
    let changed = |(event, kept): (&Event, &Vec<Vec<u8>>)| match event {
        Event::Outputs(list) => list.iter().map(bytes).ne(kept.iter().cloned()),
        _ => false,
    };
    let overwritten = events.iter().zip(&kept).position(changed);
    Trace {
        events,
        said,
        broken,
        overwritten,
    }
}

/// The bytes that a script gave, and how.
pub(in crate::conformance) struct Given {
    pub ran: Ran,
    /// Those of each output of each step.
    pub bytes: Vec<Vec<u8>>,
}

/// Runs the check.
pub(in crate::conformance) fn check(cx: &Cx, check: &Check) -> Outcome {
    let (_, any) = support(&*cx.backend, &check.built);
    if !any && !check.any_node {
        return Outcome::Unsupported(format!("{} runs no node of {}", cx.backend.name(), check.what));
    }
    match given(cx, check) {
        Ok(_) => Outcome::Passed,
        Err(failure) => Outcome::Failed(failure),
    }
}

/// Runs the check; what came of it when it was right.
pub(in crate::conformance) fn given(cx: &Cx, check: &Check) -> Result<Given, Failure> {
    let oracle: Arc<dyn Backend> = Arc::new(ReferenceBackend);
    let want = match Rig::new(&oracle, &check.built, check.setup) {
        Ok(mut rig) => trace(&mut rig, &check.script),
        Err(e) => return Err(Failure::new(&check.what, "the oracle", e.to_string())),
    };
    let mut rig = match Rig::new(&cx.backend, &check.built, check.setup) {
        Ok(rig) => rig,
        Err(e) => return Err(Failure::new(&check.what, "compile and open", e.to_string())),
    };
    // Interpreting on purpose says nothing of `compile`.
    if !check.setup.interpret {
        cx.programs.note(&rig.ran);
    }
    let how = match rig.ran {
        Ran::Compiled => "compiled",
        _ => "interpreted",
    };
    let path = format!(
        "a program {how}, {:?}, caches of {}",
        check.setup.precision, check.setup.kv
    );
    let got = trace(&mut rig, &check.script);
    match difference(check, &got, &want) {
        None => Ok(Given {
            ran: rig.ran,
            bytes: got.events.iter().flat_map(Event::bytes).collect(),
        }),
        Some(Difference { what, hint, in_values }) => {
            let hint = hint.or_else(|| in_values.then(|| blame::hint(check, &got, &want)).flatten());
            Err(Failure::new(&check.what, path, what).hint(hint))
        }
    }
}

/// How a run differs from the oracle's.
struct Difference {
    what: String,
    /// What follows from the kind of difference.
    hint: Option<String>,
    /// Whether an output has other values. Nothing else is guessed about.
    in_values: bool,
}

impl Difference {
    fn of(what: String) -> Difference {
        Difference {
            what,
            hint: None,
            in_values: false,
        }
    }
}

/// Most actions that a failure lists.
const LISTED: usize = 6;

/// An action by its place and in words, with those before it.
fn place(trace: &Trace, i: usize) -> String {
    let words = |i: usize| trace.said.get(i).map_or("", String::as_str);
    let from = i.saturating_sub(LISTED);
    let mut before: Vec<&str> = (from..i).map(words).collect();
    if from > 0 {
        before.insert(0, "..");
    }
    match before[..] {
        [] => format!("action {i}, {}", words(i)),
        _ => format!("action {i}, {} (after {})", words(i), before.join("; ")),
    }
}

fn difference(check: &Check, got: &Trace, want: &Trace) -> Option<Difference> {
    if let Some(what) = &want.broken {
        let at = place(want, want.events.len());
        return Some(Difference::of(format!("the oracle itself: {at}: {what}")));
    }
    if let Some(i) = got.overwritten {
        let what = format!("outputs of {} changed after they were returned", place(got, i));
        let hint = "a step must not return memory that the next step overwrites";
        return Some(Difference {
            hint: Some(hint.to_owned()),
            ..Difference::of(what)
        });
    }
    let limit = check.limit();
    for (i, (a, b)) in got.events.iter().zip(&want.events).enumerate() {
        let at = || place(got, i);
        match (a, b) {
            (Event::Outputs(a), Event::Outputs(b)) if a.len() == b.len() => {
                for (n, (a, b)) in a.iter().zip(b).enumerate() {
                    // Integers are chosen and must be the same; other values may carry rounding.
                    let limit = if b.dtype().is_float() { limit } else { Limit::EXACT };
                    if let Err(mismatch) = compare(a, b, &limit) {
                        let name = &check.built.segment.value(check.built.segment.outputs[n]).name;
                        let what = format!("{}: output `{name}`: {} ({})", at(), mismatch.what, limit.why);
                        let end = name
                            .starts_with("guard")
                            .then(|| StateFault::WritesPastEnd.says().to_owned());
                        return Some(Difference {
                            what,
                            hint: end,
                            in_values: (a.dtype(), a.shape()) == (b.dtype(), b.shape()),
                        });
                    }
                }
            }
            (Event::Length(a), Event::Length(b)) if a != b => {
                return Some(Difference::of(format!("{}: reached length {a}, not {b}", at())));
            }
            (Event::Outputs(a), Event::Outputs(b)) => {
                let what = format!("{}: {} outputs instead of {}", at(), a.len(), b.len());
                return Some(Difference::of(what));
            }
            _ => {}
        }
    }
    let broken = got.broken.as_ref()?;
    let at = got.events.len();
    // A sequence that has other tokens than it was left with, after a step that was taken back: those of that step.
    let taken_back = check.script.iter().take(at).any(|a| matches!(a, Action::RolledBack(_)));
    let stays = taken_back && broken.contains(" tokens, not ");
    Some(Difference {
        hint: stays.then(|| TENTATIVE.to_owned()),
        ..Difference::of(format!("{}: {broken}", place(got, at)))
    })
}
