//! Names the mistake behind wrong outputs of a script: by running the script with each known mistake, and by which rows
//! of which step are the first to be wrong.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use super::compare::Trace;
use super::{Action, Check, Event, Rig};
use crate::conformance::case::guarded;
use crate::conformance::compare::{compare, explains, wrong_elems};
use crate::conformance::fault::{Fault, FaultyBackend, StateFault, all, of_the_past};
use crate::{Backend, Dim};

/// The likeliest mistake, if any is likely.
pub(super) fn hint(check: &Check, got: &Trace, want: &Trace) -> Option<String> {
    // Looking for a name must not hide the failure.
    guarded(|| Ok(look(check, got, want))).ok().flatten()
}

fn look(check: &Check, got: &Trace, want: &Trace) -> Option<String> {
    if let Some(state) = StateFault::ALL
        .into_iter()
        .find(|&f| is(check, got, want, None, Some(f)))
    {
        return Some(state.says().to_owned());
    }
    let begin = Beginning::of(check, got, want);
    let op = |list: Vec<Fault>| {
        let found = list.into_iter().find(|f| is(check, got, want, Some(*f), None));
        found.map(|f| f.says.to_owned())
    };
    let later = begin.as_ref().and_then(|begin| begin.later_sequence(check, got, want));
    let found = match (later, &begin) {
        // Ops that know no sequences cannot be wrong in those of some only.
        (Some(says), Some(begin)) if begin.is_controlled => Some(says),
        (Some(says), _) => op(of_the_past()).or(Some(says)),
        (None, _) => op(all()),
    };
    found
        .or_else(|| begin.as_ref().and_then(Beginning::of_several))
        .or_else(|| check.symptom.map(str::to_owned))
        .or_else(|| begin.as_ref().and_then(|begin| begin.of_one(check)))
}

/// The first step that is wrong, and what was right before it.
struct Beginning<'a> {
    event: usize,
    seqs: &'a [(u64, Range<i32>)],
    /// Steps before it.
    n_before: usize,
    /// A step of one sequence with a past was right, or none of this step has one.
    is_controlled: bool,
}

impl<'a> Beginning<'a> {
    fn of(check: &'a Check, got: &Trace, want: &Trace) -> Option<Beginning<'a>> {
        let limit = check.limit();
        let (mut known, mut past_is_right, mut n_before) = (BTreeSet::new(), false, 0);
        for (event, action) in check.script.iter().enumerate() {
            let Action::Step(seqs, _) = action else { continue };
            let (Some(Event::Outputs(a)), Some(Event::Outputs(b))) = (got.events.get(event), want.events.get(event))
            else {
                return None;
            };
            let right = a.len() == b.len() && a.iter().zip(b).all(|(a, b)| compare(a, b, &limit).is_ok());
            let has_past = seqs.iter().any(|(seq, _)| known.contains(seq));
            if !right {
                return Some(Beginning {
                    event,
                    seqs,
                    n_before,
                    is_controlled: past_is_right || !has_past,
                });
            }
            past_is_right |= seqs.len() == 1 && has_past;
            n_before += 1;
            known.extend(seqs.iter().map(|(seq, _)| *seq));
        }
        None
    }

    /// The rows of the step's first sequence are right and those of a later one are not.
    fn later_sequence(&self, check: &Check, got: &Trace, want: &Trace) -> Option<String> {
        let (Some(Event::Outputs(a)), Some(Event::Outputs(b))) =
            (got.events.get(self.event), want.events.get(self.event))
        else {
            return None;
        };
        let segment = &check.built.segment;
        let n_rows: usize = self.seqs.iter().map(|(_, tokens)| tokens.len()).sum();
        let mut wrong = BTreeSet::new();
        for ((a, b), &id) in a.iter().zip(b).zip(&segment.outputs) {
            let bad = wrong_elems(a, b, &check.limit());
            if bad.is_empty() {
                continue;
            }
            // Outputs of other rows say nothing of sequences.
            (segment.value(id).ty.dims.first() == Some(&Dim::T) && n_rows > 0).then_some(())?;
            let width = b.n_elems() / n_rows;
            wrong.extend(bad.iter().map(|i| self.owner(i / width.max(1))));
        }
        let first = wrong.first().filter(|n| **n > 0)?;
        Some(format!(
            "rows of sequence {} of the step are wrong, those before it are right: are they computed, and their keys \
             and values written and read, by `SeqRows` (sequence, first row, position)?",
            first + 1
        ))
    }

    /// Whose row it is, by place in the step.
    fn owner(&self, row: usize) -> usize {
        let mut end = 0;
        let ends = self.seqs.iter().map(|(_, tokens)| {
            end += tokens.len();
            end
        });
        ends.into_iter().position(|end| row < end).unwrap_or(0)
    }

    fn of_several(&self) -> Option<String> {
        let says = "steps of one sequence are right: sequences of one step seem to read each other's rows";
        (self.seqs.len() > 1 && self.n_before > 0 && self.is_controlled).then(|| says.to_owned())
    }

    fn of_one(&self, check: &Check) -> Option<String> {
        let says = "the first step is right and a later one is not: a stale or lost KV row, or positions that forget the \
                    past";
        let has_past = !check.built.segment.states.is_empty() && self.n_before > 0;
        (has_past && self.seqs.len() == 1).then(|| says.to_owned())
    }
}

/// Whether a mistake explains every output that is wrong; runs it no further than it does.
fn is(check: &Check, got: &Trace, want: &Trace, fault: Option<Fault>, state: Option<StateFault>) -> bool {
    let faulty: Arc<dyn Backend> = Arc::new(FaultyBackend { fault, state });
    let Ok(mut rig) = Rig::new(&faulty, &check.built, check.setup) else {
        return false;
    };
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
