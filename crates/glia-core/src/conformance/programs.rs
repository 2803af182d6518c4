//! What programs say of themselves: their line, their bytes, the times of their instructions; and that their states
//! are apart.

use super::case::{Cx, Failure, List, Outcome};
use super::methods::outcome;
use super::ran::Ran;
use super::segment::{self, Action, Event, Rig, Setup, Wanted, attention_layer};
use crate::{MemorySpace, ProfileSink, Sizes};

pub(super) fn add(list: &mut List) {
    list.check("methods", "programs_describe_themselves", describe);
    list.check("methods", "profiles_name_instructions", profile);
    list.check("methods", "state_bytes_count_rows", state_bytes);
    list.check("methods", "weight_bytes_count_copies", weight_bytes);
    list.check("methods", "states_of_a_program_are_apart", apart);
}

/// A rig of a narrow attention, or what came of making it.
fn rig(cx: &Cx) -> Result<Rig, Outcome> {
    let built = attention_layer(None);
    if !segment::support(&*cx.backend, &built).1 {
        return Err(Outcome::Unsupported(format!(
            "{} runs no node of attention",
            cx.backend.name()
        )));
    }
    let rig = Rig::new(&cx.backend, &built, Setup::default())
        .map_err(|e| Outcome::Failed(Failure::new(&cx.name, "compile and open", e.to_string())))?;
    cx.programs.note(&rig.ran);
    Ok(rig)
}

fn describe(cx: &Cx) -> Outcome {
    let rig = match rig(cx) {
        Ok(rig) => rig,
        Err(outcome) => return outcome,
    };
    let (text, _, held) = (
        rig.program.describe(),
        rig.program.weight_bytes(),
        rig.state.state_bytes(),
    );
    let fine = !text.contains('\n') && held == 0;
    outcome(cx, "describe, weight_bytes, state_bytes", fine, || {
        format!("`{text}` is no line of text, or a state without sequences holds {held} bytes, not 0")
    })
}

fn profile(cx: &Cx) -> Outcome {
    let mut rig = match rig(cx) {
        Ok(rig) => rig,
        Err(outcome) => return outcome,
    };
    let sink = ProfileSink::default();
    let ran = rig
        .act(&Action::Create(1))
        .and_then(|_| rig.profiled(&[(1, 0..5)], &sink));
    if let Err(what) = ran {
        return Outcome::Failed(Failure::new(&cx.name, "a step with a profile", what));
    }
    let (times, segment) = (sink.take(), attention_layer(None).segment);
    let n = segment.instrs.len();
    if let Some(wrong) = times.iter().find(|t| t.instr >= n) {
        let what = format!("a time is of instruction {}, there are {n}", wrong.instr);
        return outcome(cx, "profile", false, || what);
    }
    // Instructions that run together have their time at one of them; some must have one.
    outcome(cx, "profile", !times.is_empty(), || {
        format!(
            "a step of {n} instructions was given `Step::profile` and no time came: call `ProfileSink::add_since` for \
             each instruction, or for the first of those that run as one"
        )
    })
}

/// States hold at least the rows of the tokens of their sequences. That nothing is left once all are gone is a script's
/// business: `state/free_and_reuse`.
fn state_bytes(cx: &Cx) -> Outcome {
    let mut rig = match rig(cx) {
        Ok(rig) => rig,
        Err(outcome) => return outcome,
    };
    let sizes = Sizes {
        t: 1,
        ..Sizes::default()
    };
    let segment = attention_layer(None).segment;
    let parts = segment.states.iter().flat_map(|s| &s.spec.parts);
    let row: usize = parts.filter_map(|p| p.size_bytes(&sizes)).sum();
    let mut script = vec![(Action::Create(1), 0)];
    for (tokens, held) in [(0..5, 5), (5..40, 40)] {
        script.push((Action::Step(vec![(1, tokens)], Wanted::All), held));
    }
    script.push((Action::Create(2), 40));
    script.push((Action::Step(vec![(2, 0..30)], Wanted::All), 70));
    script.push((Action::Free(1), 30));
    for (action, tokens) in script {
        if let Err(what) = rig.act(&action) {
            return Outcome::Failed(Failure::new(&cx.name, format!("{action:?}"), what));
        }
        let (held, least) = (rig.state.state_bytes(), tokens * row);
        if held < least {
            return outcome(cx, "state_bytes", false, || {
                format!("{tokens} tokens of {row} bytes each take {least} bytes, `state_bytes` says {held}")
            });
        }
    }
    Outcome::Passed
}

/// A compiled program on a device holds its weights there.
fn weight_bytes(cx: &Cx) -> Outcome {
    let rig = match rig(cx) {
        Ok(rig) => rig,
        Err(outcome) => return outcome,
    };
    let copies = cx.backend.space() != MemorySpace::HOST && rig.ran == Ran::Compiled;
    let held = rig.program.weight_bytes();
    outcome(cx, "weight_bytes", !copies || held > 0, || {
        "a program whose memory is not the host's holds a copy of its weights; `weight_bytes` says 0".to_owned()
    })
}

/// Two states of one program: what one does is not seen in the other.
fn apart(cx: &Cx) -> Outcome {
    let (mut one, mut two) = match (rig(cx), rig(cx)) {
        (Ok(one), Ok(two)) => (one, two),
        (Err(outcome), _) | (_, Err(outcome)) => return outcome,
    };
    let step = |from: i32, n: i32| Action::Step(vec![(1, from..from + n)], Wanted::All);
    let said = |what: String| Outcome::Failed(Failure::new(&cx.name, "two states of one program", what));
    let shared = match one.program.clone().open(&crate::StateOptions::default()) {
        Ok(state) => state,
        Err(e) => return said(e.to_string()),
    };
    // The second rig runs on the program of the first.
    two.state = shared;
    let alone = {
        let mut third = match rig(cx) {
            Ok(rig) => rig,
            Err(outcome) => return outcome,
        };
        [Action::Create(1), step(0, 6), step(6, 2)]
            .iter()
            .map(|a| third.act(a))
            .collect::<Result<Vec<_>, _>>()
    };
    let mixed = (|| {
        let mut events = vec![one.act(&Action::Create(1))?];
        two.act(&Action::Create(1))?;
        events.push(one.act(&step(0, 6))?);
        two.act(&step(50, 9))?;
        events.push(one.act(&step(6, 2))?);
        Ok::<_, String>(events)
    })();
    match (alone, mixed) {
        (Ok(alone), Ok(mixed)) => {
            let bytes = |events: &[Event]| events.iter().flat_map(Event::bytes).collect::<Vec<_>>();
            match bytes(&alone) == bytes(&mixed) {
                true => Outcome::Passed,
                false => said("a step of one state changed the answers of the other".to_owned()),
            }
        }
        (Err(what), _) | (_, Err(what)) => said(what),
    }
}
