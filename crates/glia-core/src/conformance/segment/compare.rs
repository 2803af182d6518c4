//! Runs a script on the backend and on the oracle, compares what came back, and names the mistake.

use std::sync::Arc;

use super::{Action, Built, Event, Rig, Setup, support};
use crate::conformance::case::{Cx, Failure, Outcome, guarded};
use crate::conformance::compare::{compare, explains};
use crate::conformance::fault::{FaultyBackend, StateFault, all};
use crate::conformance::limits::{Element, Limit};
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
    symptom: Option<&'static str>,
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

    fn limit(&self) -> Limit {
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
struct Trace {
    events: Vec<Event>,
    broken: Option<String>,
    /// Which step's outputs were overwritten later.
    overwritten: Option<usize>,
}

fn trace(rig: &mut Rig, script: &[Action]) -> Trace {
    let (mut events, mut kept): (Vec<Event>, Vec<Vec<Vec<u8>>>) = (Vec::new(), Vec::new());
    let mut broken = None;
    let bytes = |t: &Tensor| t.bytes().map(<[u8]>::to_vec).unwrap_or_default();
    for (i, action) in script.iter().enumerate() {
        match rig.act(action) {
            Ok(event) => {
                kept.push(match &event {
                    Event::Outputs(list) => list.iter().map(bytes).collect(),
                    _ => Vec::new(),
                });
                events.push(event);
            }
            Err(what) => {
                broken = Some(format!("action {i}, {action:?}: {what}"));
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
        broken,
        overwritten,
    }
}

/// Runs the check.
pub(in crate::conformance) fn check(cx: &Cx, check: &Check) -> Outcome {
    let (_, any) = support(&*cx.backend, &check.built);
    if !any && !check.any_node {
        return Outcome::Unsupported(format!("{} runs no node of {}", cx.backend.name(), check.what));
    }
    let oracle: Arc<dyn Backend> = Arc::new(ReferenceBackend);
    let want = match Rig::new(&oracle, &check.built, check.setup) {
        Ok(mut rig) => trace(&mut rig, &check.script),
        Err(e) => return Outcome::Failed(Failure::new(&check.what, "the oracle", e.to_string())),
    };
    let mut rig = match Rig::new(&cx.backend, &check.built, check.setup) {
        Ok(rig) => rig,
        Err(e) => return Outcome::Failed(Failure::new(&check.what, "compile and open", e.to_string())),
    };
    let path = format!(
        "a program {}, {:?}, caches of {}",
        rig.how, check.setup.precision, check.setup.kv
    );
    let got = trace(&mut rig, &check.script);
    match difference(check, &got, &want) {
        None => Outcome::Passed,
        Some((what, hint)) => {
            let hint = hint
                .or_else(|| guarded(|| Ok(name_mistake(check, &got, &want))).ok().flatten())
                .or_else(|| check.symptom.map(str::to_owned))
                .or_else(|| when_it_begins(check, &got, &want));
            Outcome::Failed(Failure::new(&check.what, path, what).hint(hint))
        }
    }
}

/// What differs, and the hint that follows from the kind of difference.
fn difference(check: &Check, got: &Trace, want: &Trace) -> Option<(String, Option<String>)> {
    if let Some(what) = &want.broken {
        return Some((format!("the oracle itself: {what}"), None));
    }
    if let Some(i) = got.overwritten {
        let what = format!("outputs of action {i} changed after they were returned");
        let hint = "a step must not return memory that the next step overwrites";
        return Some((what, Some(hint.to_owned())));
    }
    let limit = check.limit();
    for (i, (a, b)) in got.events.iter().zip(&want.events).enumerate() {
        let of = || format!("action {i}, {:?}", check.script[i]);
        match (a, b) {
            (Event::Outputs(a), Event::Outputs(b)) if a.len() == b.len() => {
                for (n, (a, b)) in a.iter().zip(b).enumerate() {
                    // Integers are chosen and must be the same; other values may carry rounding.
                    let limit = if b.dtype().is_float() { limit } else { Limit::EXACT };
                    if let Err(mismatch) = compare(a, b, &limit) {
                        let name = &check.built.segment.value(check.built.segment.outputs[n]).name;
                        let what = format!("{}: output `{name}`: {} ({})", of(), mismatch.what, limit.why);
                        let end = name
                            .starts_with("guard")
                            .then(|| StateFault::WritesPastEnd.says().to_owned());
                        return Some((what, end));
                    }
                }
            }
            (Event::Length(a), Event::Length(b)) if a != b => {
                return Some((format!("{}: reached length {a}, not {b}", of()), None));
            }
            (Event::Outputs(a), Event::Outputs(b)) => {
                return Some((format!("{}: {} outputs instead of {}", of(), a.len(), b.len()), None));
            }
            _ => {}
        }
    }
    got.broken.as_ref().map(|what| (what.clone(), None))
}

/// What follows from the step that is the first to be wrong.
fn when_it_begins(check: &Check, got: &Trace, want: &Trace) -> Option<String> {
    let limit = check.limit();
    let right = |i: usize| match (got.events.get(i), want.events.get(i)) {
        (Some(Event::Outputs(a)), Some(Event::Outputs(b))) => {
            Some(a.len() == b.len() && a.iter().zip(b).all(|(a, b)| compare(a, b, &limit).is_ok()))
        }
        _ => None,
    };
    let is_step = |i: &usize| matches!(check.script[*i], Action::Step(..));
    let first = (0..got.events.len())
        .filter(is_step)
        .find(|&i| right(i) == Some(false))?;
    let Action::Step(seqs, _) = &check.script[first] else {
        return None;
    };
    let before = (0..first).filter(is_step).count();
    if check.built.segment.states.is_empty() || before == 0 {
        return None;
    }
    Some(match seqs.len() {
        1 => "the first step is right and a later one is not: a stale or lost KV row, or positions that forget the past",
        _ => "steps of one sequence are right: sequences of one step seem to read each other's rows",
    }
    .to_owned())
}

/// The known mistake that gives just these outputs.
fn name_mistake(check: &Check, got: &Trace, want: &Trace) -> Option<String> {
    let states = StateFault::ALL.map(|f| (None, Some(f), f.says()));
    let ops = all().into_iter().map(|f| (Some(f), None, f.says));
    for (fault, state, says) in states.into_iter().chain(ops) {
        let faulty: Arc<dyn Backend> = Arc::new(FaultyBackend { fault, state });
        let Ok(mut rig) = Rig::new(&faulty, &check.built, check.setup) else {
            continue;
        };
        if fits(check, got, want, &mut rig) {
            return Some(says.to_owned());
        }
    }
    None
}

/// Whether a rig with a mistake explains every output that is wrong; runs it no further than it does.
fn fits(check: &Check, got: &Trace, want: &Trace, rig: &mut Rig) -> bool {
    let (limit, mut any) = (check.limit(), false);
    for ((action, got), want) in check.script.iter().zip(&got.events).zip(&want.events) {
        let wrong = rig.act(action);
        let (Event::Outputs(a), Event::Outputs(b)) = (got, want) else {
            continue;
        };
        let Ok(Event::Outputs(c)) = wrong else { return false };
        for ((a, b), c) in a.iter().zip(b).zip(&c) {
            match explains(a, b, c, &limit) {
                Some(here) => any |= here,
                None => return false,
            }
        }
    }
    any
}
