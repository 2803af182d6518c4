//! The defaulted methods of the trait, overridden or not: what each promises beside the answers of ops.

use super::case::{Body, Case, Cx, Failure, List, Outcome, guarded};
use super::data::{Random, noise};
use super::op;
use super::segment::{self, Action, Check, Event, Rig, Setup, Wanted, attention_layer, check};
use crate::{DType, MemorySpace, ProfileSink, Tensor};

pub(super) fn add(list: &mut List) {
    list.check("methods", "name", |cx| {
        let name = cx.backend.name();
        let fine = !name.is_empty() && !name.contains(char::is_whitespace);
        outcome(cx, "name", fine, || format!("`{name}` is no short name without blanks"))
    });
    list.check("methods", "support_is_consistent", support_is_consistent);
    list.check("methods", "unsupported_ops_are_errors", unsupported_ops);
    list.check("methods", "memory_hints", |cx| {
        let hints = cx.backend.memory_hints();
        let fine = hints.limit_bytes == 0 || hints.max_alloc_bytes <= hints.limit_bytes;
        outcome(cx, "memory_hints", fine, || {
            format!("{hints:?}: one allocation is larger than the limit")
        })
    });
    list.check("methods", "space_is_constant", |cx| {
        let fine = (0..3).all(|_| cx.backend.space() == cx.backend.space());
        outcome(cx, "space", fine, || {
            "the memory space changes from call to call".to_owned()
        })
    });
    list.check("methods", "programs_describe_themselves", describe);
    list.check("methods", "profiles_name_instructions", profile);
    list.check("methods", "states_of_a_program_are_apart", apart);
    for &(family, build) in segment::FAMILIES {
        list.check("methods", format!("interpreted_{family}"), move |cx| {
            let setup = Setup {
                interpret: true,
                ..Setup::default()
            };
            check(cx, &Check::new(family, build(DType::F32), setup, segment::walk(family)))
        });
    }
    for &dtype in DType::ALL {
        list.check("methods", format!("round_trip_{dtype}"), move |cx| {
            round_trip(cx, dtype)
        });
    }
}

fn outcome(cx: &Cx, method: &str, fine: bool, what: impl FnOnce() -> String) -> Outcome {
    match fine {
        true => Outcome::Passed,
        false => Outcome::Failed(Failure::new(&cx.name, method, what())),
    }
}

/// A node that is supported has an op that is.
fn support_is_consistent(cx: &Cx) -> Outcome {
    let mut list = List::default();
    op::add_all(&mut list);
    let mut wrong = None;
    for Case { body, .. } in &list.cases {
        let Body::Op(case) = body else { continue };
        if !cx.backend.supports(&case.op) && case.types_are_supported(&*cx.backend) {
            wrong = Some(case.subject());
        }
    }
    let fine = wrong.is_none();
    outcome(cx, "supports", fine, || {
        let subject = wrong.unwrap_or_default();
        format!("`supports` says no where `supports_node` says yes: {subject}")
    })
}

/// Bytes come back from the backend's memory as they went there.
fn round_trip(cx: &Cx, dtype: DType) -> Outcome {
    let mut random = Random::of(&cx.name);
    let k = dtype.block_elems().max(3);
    for shape in [vec![2, k], vec![0, k], vec![1], vec![]] {
        if dtype.is_quantized() && shape.len() < 2 {
            continue;
        }
        let host = noise(dtype, &shape, 1.0, &mut random);
        let back = guarded(|| cx.backend.download(&cx.backend.upload(&host)?));
        let what = match back {
            Ok(back) => {
                let same = (back.dtype(), back.shape()) == (host.dtype(), host.shape());
                if same && back.bytes().ok() == host.bytes().ok() {
                    continue;
                }
                format!(
                    "{} {} comes back as {} {}, or with other bytes",
                    dtype,
                    host.shape(),
                    back.dtype(),
                    back.shape()
                )
            }
            Err(e) if cx.backend.space() != MemorySpace::HOST && dtype.is_quantized() => {
                return Outcome::Unsupported(format!("{dtype} on the device: {e}"));
            }
            Err(e) => format!("{} {}: {e}", dtype, host.shape()),
        };
        return Outcome::Failed(Failure::new(&cx.name, "upload and download", what));
    }
    Outcome::Passed
}

/// `execute` of an op that `supports` refuses is an error, not an answer.
fn unsupported_ops(cx: &Cx) -> Outcome {
    let mut list = List::default();
    op::add_all(&mut list);
    for case in &list.cases {
        let Body::Op(op) = &case.body else { continue };
        if cx.backend.supports(&op.op) {
            continue;
        }
        let Ok(prepared) = op.prepare(&case.full_name()) else {
            continue;
        };
        let inputs: Vec<&Tensor> = prepared.inputs.iter().collect();
        match guarded(|| cx.backend.execute(&op.op, &inputs)) {
            Err(e) if !matches!(e.root(), crate::BackendError::Panicked { .. }) => {}
            Err(e) => return Outcome::Failed(Failure::new(op.subject(), "execute", e.to_string())),
            Ok(_) => {
                let what = "gave an answer to an op that `supports` refuses: return BackendError::unsupported";
                return Outcome::Failed(Failure::new(op.subject(), "execute", what));
            }
        }
    }
    Outcome::Passed
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
    Rig::new(&cx.backend, &built, Setup::default())
        .map_err(|e| Outcome::Failed(Failure::new(&cx.name, "compile and open", e.to_string())))
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
    let (times, n) = (sink.take(), attention_layer(None).segment.instrs.len());
    let wrong = times.iter().find(|t| t.instr >= n);
    outcome(cx, "profile", wrong.is_none(), || {
        format!(
            "a time is of instruction {}, there are {n}",
            wrong.map_or(0, |t| t.instr)
        )
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
            let bytes = |events: &[Event]| -> Vec<Vec<u8>> {
                let of = |e: &Event| match e {
                    Event::Outputs(list) => list.iter().map(|t| t.bytes().unwrap_or_default().to_vec()).collect(),
                    _ => Vec::new(),
                };
                events.iter().flat_map(of).collect()
            };
            match bytes(&alone) == bytes(&mixed) {
                true => Outcome::Passed,
                false => said("a step of one state changed the answers of the other".to_owned()),
            }
        }
        (Err(what), _) | (_, Err(what)) => said(what),
    }
}
