//! Random sequences of calls on backends that fail now and then, one of them or two that share the graph: nothing
//! panics, a failed call changes nothing, and every session has the bits of a cold run over its tokens.

mod toy;

use std::sync::Arc;

use glia_core::testing::{Fault, RecordingBackend};
use glia_ir::{ExecConfig, GraphExecutor, Session};
use proptest::prelude::*;
use toy::{Toy, VOCAB, arm as arm_one, executor, floats, ids, toy};

#[derive(Clone, Debug)]
enum Call {
    /// Feeds tokens to a session; the fault strikes at that call of the backend.
    Run {
        session: usize,
        tokens: Vec<i32>,
        fault: Option<(usize, Fault)>,
    },
    Batch {
        tokens: Vec<i32>,
        fault: Option<(usize, Fault)>,
    },
    Truncate {
        session: usize,
        n: usize,
    },
    Fork {
        session: usize,
    },
    Reset {
        session: usize,
    },
    Drop {
        session: usize,
    },
    Prepare {
        max_step: usize,
        split: bool,
    },
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let tokens = || prop::collection::vec(-1i32..VOCAB as i32 + 1, 0..9);
    let fault = || prop::option::of((1usize..60, prop::sample::select(Fault::ALL_BUT_PANICS.to_vec())));
    let session = 0usize..4;
    let run = |(session, tokens, fault)| Call::Run { session, tokens, fault };
    let one = prop_oneof![
        6 => (session.clone(), tokens(), fault()).prop_map(run),
        2 => (tokens(), fault()).prop_map(|(tokens, fault)| Call::Batch { tokens, fault }),
        2 => (session.clone(), 0usize..20).prop_map(|(session, n)| Call::Truncate { session, n }),
        2 => session.clone().prop_map(|session| Call::Fork { session }),
        1 => session.clone().prop_map(|session| Call::Reset { session }),
        1 => session.prop_map(|session| Call::Drop { session }),
        1 => (1usize..6, any::<bool>()).prop_map(|(max_step, split)| Call::Prepare { max_step, split }),
    ];
    prop::collection::vec(one, 1..25)
}

const MAX_CONTEXT: usize = 20;

/// The tiny model on one backend, or split over two, with caches in several programs.
fn prepare(toy: &Arc<RecordingBackend>, device: Option<&Arc<RecordingBackend>>, max_step: usize) -> GraphExecutor {
    let config = ExecConfig::default()
        .with_max_step_tokens(max_step)
        .with_max_context(MAX_CONTEXT);
    match device {
        Some(device) => toy::prepare(toy::model(2, true), vec![device.clone(), toy.clone()], config),
        None => executor(toy, config),
    }
}

/// Attention only, in a memory of its own.
fn device() -> Arc<RecordingBackend> {
    let only = &["sdpa", "add"];
    Toy {
        name: "device",
        only,
        space: 7,
    }
    .recorded()
}

/// What a session should hold.
struct Held {
    session: Session,
    tokens: Vec<i32>,
}

fn run(held: &mut Held, tokens: &[i32], clean: &GraphExecutor) {
    let result = held.session.run(&[("input_ids", ids(tokens))]);
    if let Ok(outputs) = result {
        let start = held.tokens.len();
        held.tokens.extend(tokens);
        let cold = clean
            .session()
            .unwrap()
            .run(&[("input_ids", ids(&held.tokens))])
            .unwrap();
        let cold = floats(cold.get("logits").unwrap());
        assert_eq!(floats(outputs.get("logits").unwrap()), cold[start * VOCAB..]);
    }
    assert_eq!(held.session.pos(), held.tokens.len());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_calls_breaks_a_session(calls in calls()) {
        let (toy, device, clean_toy) = (toy(), device(), toy());
        let clean = prepare(&clean_toy, None, 512);
        let mut ex = prepare(&toy, Some(&device), 3);
        let mut all = vec![Held { session: ex.session().unwrap(), tokens: Vec::new() }];
        for call in calls {
            let at = |session: usize| session % 4;
            let arm = |fault: Option<(usize, Fault)>| match fault {
                // Whichever comes first.
                Some((n, fault)) => [&toy, &device].iter().for_each(|t| arm_one(t, n, fault)),
                None => [&toy, &device].iter().for_each(|t| t.disarm()),
            };
            match call {
                Call::Run { session, tokens, fault } => {
                    arm(fault);
                    if let Some(held) = all.get_mut(at(session)) {
                        run(held, &tokens, &clean);
                    }
                }
                Call::Batch { tokens, fault } => {
                    arm(fault);
                    let given = [("input_ids", ids(&tokens))];
                    let mut batch: Vec<(&mut Session, &[(&str, glia_core::Tensor)])> =
                        all.iter_mut().map(|h| (&mut h.session, &given[..])).collect();
                    let fed = ex.run_batch(&mut batch).is_ok();
                    for held in &mut all {
                        if fed {
                            held.tokens.extend(&tokens);
                        }
                        prop_assert_eq!(held.session.pos(), held.tokens.len());
                    }
                }
                Call::Truncate { session, n } => {
                    if let Some(held) = all.get_mut(at(session)) {
                        held.tokens.truncate(n);
                        prop_assert_eq!(held.session.truncate(n), held.tokens.len());
                    }
                }
                Call::Fork { session } => {
                    if let (Some(held), true) = (all.get(at(session)), all.len() < 4) {
                        let forked = Held { session: held.session.fork().unwrap(), tokens: held.tokens.clone() };
                        all.push(forked);
                    }
                }
                Call::Reset { session } => {
                    if let Some(held) = all.get_mut(at(session)) {
                        held.session.reset();
                        held.tokens.clear();
                    }
                }
                Call::Drop { session } => {
                    if at(session) < all.len() {
                        all.remove(at(session));
                    }
                }
                Call::Prepare { max_step, split } => {
                    ex = prepare(&toy, split.then_some(&device), max_step);
                    all = vec![Held { session: ex.session().unwrap(), tokens: Vec::new() }];
                }
            }
        }
        toy.disarm();
        device.disarm();
        for held in &mut all {
            run(held, &[7], &clean);
        }
        drop(all);
        prop_assert_eq!(ex.state_bytes(), 0);
    }
}
