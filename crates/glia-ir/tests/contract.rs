//! The executor's contract, point by point, also on backends that misbehave.

mod toy;

use std::time::Duration;

use glia_core::testing::Fault;
use glia_core::{BackendError, Binary, CancelToken, DType, Dim, Op, Symbol, Tensor, ValueType};
use glia_ir::{ExecConfig, ExecError, GraphBuilder, NodeId, NonFinite, RunOptions, Session, WantedRows};
use toy::{Toy, VOCAB, arm, executor, floats, ids, model, n_executed, prepare, toy};

const PROMPT: [i32; 7] = [3, 1, 4, 1, 5, 9, 2];

fn logits(session: &mut Session, tokens: &[i32]) -> Result<Vec<f32>, ExecError> {
    let outputs = session.run(&[("input_ids", ids(tokens))])?;
    Ok(floats(outputs.get("logits").unwrap()))
}

fn cold(tokens: &[i32]) -> Vec<f32> {
    logits(&mut executor(&toy(), ExecConfig::default()).session().unwrap(), tokens).unwrap()
}

#[test]
fn chunks_and_single_tokens_give_the_bits_of_one_run() {
    let whole = cold(&PROMPT);
    assert_eq!(whole.len(), PROMPT.len() * VOCAB);
    for max_step in [1, 2, 3, 7, 512] {
        let mut ex = executor(&toy(), ExecConfig::default().with_max_step_tokens(max_step));
        let out = ex.run(&[("input_ids", ids(&PROMPT))]).unwrap();
        assert_eq!(floats(out.get("logits").unwrap()), whole, "steps of {max_step}");
    }
    let mut session = executor(&toy(), ExecConfig::default()).session().unwrap();
    let mut steps = Vec::new();
    for token in PROMPT {
        steps.extend(logits(&mut session, &[token]).unwrap());
    }
    assert_eq!(steps, whole);
    assert_eq!(session.pos(), PROMPT.len());
}

#[test]
fn a_batch_gives_the_bits_of_runs_alone() {
    let ex = executor(&toy(), ExecConfig::default().with_max_step_tokens(5));
    let (mut a, mut b) = (ex.session().unwrap(), ex.session().unwrap());
    logits(&mut b, &[8, 8]).unwrap();
    let (x, y) = ([("input_ids", ids(&PROMPT))], [("input_ids", ids(&[6, 7]))]);
    let out = ex.run_batch(&mut [(&mut a, &x), (&mut b, &y)]).unwrap();
    assert_eq!(floats(out[0].get("logits").unwrap()), cold(&PROMPT));
    assert_eq!(floats(out[1].get("logits").unwrap()), cold(&[8, 8, 6, 7])[2 * VOCAB..]);
    assert_eq!((a.pos(), b.pos()), (7, 4));
}

#[test]
fn sessions_of_other_executors_are_refused() {
    let (a, b) = (
        executor(&toy(), ExecConfig::default()),
        executor(&toy(), ExecConfig::default()),
    );
    let mut session = b.session().unwrap();
    let x = [("input_ids", ids(&[1]))];
    let err = a.run_batch(&mut [(&mut session, &x)]).unwrap_err();
    assert!(matches!(err, ExecError::ForeignSession { index: 0 }));
}

#[test]
fn positions_are_injected_and_advance_by_tokens() {
    let mut b = GraphBuilder::new("positions");
    let x = b.input("input_ids", ValueType::new(DType::I32, [Dim::T])).unwrap();
    let (pos, positions) = (b.pos(), b.positions());
    for (name, value) in [("x", x), ("at", pos), ("each", positions)] {
        b.output(name, value).unwrap();
    }
    let mut ex = prepare(b.finish().unwrap(), vec![toy()], ExecConfig::default());
    for (tokens, at, each) in [(3, 0, vec![0, 1, 2]), (1, 3, vec![3]), (2, 4, vec![4, 5])] {
        let out = ex.run(&[("input_ids", ids(&vec![0; tokens]))]).unwrap();
        assert_eq!(out.get("at").unwrap().as_i32().unwrap(), [at]);
        assert_eq!(out.get("each").unwrap().as_i32().unwrap(), each);
    }
    ex.reset();
    let out = ex.run(&[("input_ids", ids(&[0]))]).unwrap();
    assert_eq!(out.get("at").unwrap().as_i32().unwrap(), [0]);
}

#[test]
fn a_full_context_is_refused_before_any_work() {
    let toy = toy();
    let ex = executor(&toy, ExecConfig::default().with_max_context(8));
    let mut session = ex.session().unwrap();
    logits(&mut session, &PROMPT).unwrap();
    let calls = n_executed(&toy);
    let err = logits(&mut session, &[1, 2]).unwrap_err();
    assert!(matches!(err, ExecError::ContextOverflow { needed: 9, max: 8 }), "{err}");
    assert_eq!((n_executed(&toy), session.pos()), (calls, 7));
    logits(&mut session, &[1]).unwrap();
}

/// Whatever goes wrong at whichever call, the session is as before and the same call can be repeated.
#[test]
fn a_failed_run_changes_nothing() {
    for max_step in [2, 512] {
        let toy = toy();
        let ex = executor(&toy, ExecConfig::default().with_max_step_tokens(max_step));
        let mut session = ex.session().unwrap();
        logits(&mut session, &PROMPT[..2]).unwrap();
        let before = n_executed(&toy);
        let expected = logits(&mut session.fork().unwrap(), &PROMPT[2..]).unwrap();
        let n_calls = n_executed(&toy) - before;
        for fault in Fault::ALL_BUT_PANICS {
            for n in 1..=n_calls {
                arm(&toy, n, fault);
                let err = logits(&mut session, &PROMPT[2..]).unwrap_err();
                assert_eq!(session.pos(), 2);
                let said = err.to_string();
                let named = if fault == Fault::NaN { "`logits`" } else { "node `" };
                assert!(said.contains(named), "{fault:?}: {said}");
            }
        }
        toy.disarm();
        assert_eq!(logits(&mut session, &PROMPT[2..]).unwrap(), expected);
    }
}

#[test]
fn a_failed_batch_changes_no_session() {
    let toy = toy();
    let ex = executor(&toy, ExecConfig::default().with_max_step_tokens(3));
    let (mut a, mut b) = (ex.session().unwrap(), ex.session().unwrap());
    let (x, y) = ([("input_ids", ids(&PROMPT))], [("input_ids", ids(&[6, 7]))]);
    for n in 1..30 {
        arm(&toy, n, Fault::Fails);
        ex.run_batch(&mut [(&mut a, &x), (&mut b, &y)]).unwrap_err();
        assert_eq!((a.pos(), b.pos()), (0, 0));
    }
    toy.disarm();
    let out = ex.run_batch(&mut [(&mut a, &x), (&mut b, &y)]).unwrap();
    assert_eq!(floats(out[0].get("logits").unwrap()), cold(&PROMPT));
    assert_eq!(floats(out[1].get("logits").unwrap()), cold(&[6, 7]));
}

#[test]
fn faults_are_told_apart() {
    let toy = toy();
    let mut ex = executor(&toy, ExecConfig::default());
    let mut fail = |fault| {
        arm(&toy, 1, fault);
        ex.run(&[("input_ids", ids(&[1]))]).unwrap_err()
    };
    assert!(matches!(fail(Fault::Fails).backend(), Some(BackendError::Other(_))));
    let count =
        |e: ExecError, n| matches!(e.backend(), Some(BackendError::WrongOutputs { expected: 1, got, .. }) if *got == n);
    assert!(count(fail(Fault::NoOutput), 0));
    assert!(count(fail(Fault::ExtraOutput), 2));
    assert!(matches!(
        fail(Fault::WrongShape).backend(),
        Some(BackendError::ShapeMismatch { .. })
    ));
    assert!(matches!(
        fail(Fault::WrongDType).backend(),
        Some(BackendError::ShapeMismatch { .. })
    ));
    assert!(matches!(fail(Fault::NaN), ExecError::NonFinite { .. }));
}

#[test]
fn a_panicking_backend_leaves_the_session_usable() {
    let toy = toy();
    let ex = executor(&toy, ExecConfig::default().with_max_step_tokens(2));
    let mut session = ex.session().unwrap();
    for n in 1..12 {
        arm(&toy, n, Fault::Panics);
        let err = logits(&mut session, &PROMPT).unwrap_err();
        assert!(
            matches!(err.backend(), Some(BackendError::Panicked { message }) if message == "told to"),
            "{err}"
        );
        assert!(err.to_string().contains("node `") && session.pos() == 0, "{err}");
    }
    toy.disarm();
    assert_eq!(logits(&mut session, &PROMPT).unwrap(), cold(&PROMPT));
}

#[test]
fn non_finite_outputs_can_be_allowed() {
    let toy = toy();
    let mut ex = executor(&toy, ExecConfig::default().with_non_finite(NonFinite::Allow));
    arm(&toy, 1, Fault::NaN);
    let out = ex.run(&[("input_ids", ids(&[1]))]).unwrap();
    assert!(floats(out.get("logits").unwrap())[0].is_nan());
}

#[test]
fn a_cancelled_run_changes_nothing() {
    let toy = toy();
    let ex = executor(&toy, ExecConfig::default().with_max_step_tokens(2));
    let mut session = ex.session().unwrap();
    logits(&mut session, &[3]).unwrap();
    for after in [0, 1, 5, 12] {
        let token = CancelToken::new();
        let (t, mut left) = (token.clone(), after);
        if after == 0 {
            token.cancel();
        }
        toy.on_call(move |_| {
            left -= 1;
            if left == 0 {
                t.cancel();
            }
            None
        });
        let options = RunOptions::default().with_cancel(token);
        let err = session
            .run_with(&[("input_ids", ids(&PROMPT[1..]))], &options)
            .unwrap_err();
        assert!(matches!(err, ExecError::Cancelled), "{err}");
        assert_eq!(session.pos(), 1);
    }
    toy.disarm();
    assert_eq!(logits(&mut session, &PROMPT[1..]).unwrap(), cold(&PROMPT)[VOCAB..]);
}

#[test]
fn truncate_fork_and_reset_give_the_bits_of_a_cold_run() {
    let ex = executor(&toy(), ExecConfig::default());
    let mut a = ex.session().unwrap();
    logits(&mut a, &PROMPT).unwrap();
    let mut b = a.fork().unwrap();
    assert_eq!((b.truncate(3), b.pos(), a.pos()), (3, 3, 7));
    assert_eq!(b.truncate(5), 3, "truncating never lengthens");
    assert_eq!(logits(&mut b, &[8]).unwrap(), cold(&[3, 1, 4, 8])[3 * VOCAB..]);
    assert_eq!(
        logits(&mut a, &[8]).unwrap(),
        cold(&[3, 1, 4, 1, 5, 9, 2, 8])[7 * VOCAB..],
        "the fork wrote elsewhere"
    );
    drop(a);
    assert_eq!(logits(&mut b, &[2]).unwrap(), cold(&[3, 1, 4, 8, 2])[4 * VOCAB..]);
    b.reset();
    assert_eq!((b.pos(), logits(&mut b, &[5]).unwrap()), (0, cold(&[5])));
}

#[test]
fn forks_share_the_past_and_dropped_sessions_free_it() {
    let ex = executor(&toy(), ExecConfig::default());
    let mut a = ex.session().unwrap();
    logits(&mut a, &PROMPT).unwrap();
    let alone = ex.state_bytes();
    let b = a.fork().unwrap();
    assert_eq!(ex.state_bytes(), alone);
    drop((a, b));
    assert_eq!(ex.state_bytes(), 0);
}

#[test]
fn a_session_dropped_during_a_step_is_freed_after_it() {
    let toy = toy();
    let ex = executor(&toy, ExecConfig::default());
    let (mut busy, mut dropped) = (ex.session().unwrap(), ex.session().unwrap());
    logits(&mut dropped, &PROMPT).unwrap();
    let mut dropped = Some(dropped);
    toy.on_call(move |_| {
        drop(dropped.take());
        None
    });
    logits(&mut busy, &[1]).unwrap();
    let one = ex.state_bytes();
    drop(busy);
    assert!(one > 0 && ex.state_bytes() == 0);
}

#[test]
fn wanted_rows_choose_rows_of_the_whole_run() {
    let whole = cold(&PROMPT);
    let row = |i: usize| whole[i * VOCAB..(i + 1) * VOCAB].to_vec();
    let cases = [
        (WantedRows::All, whole.clone()),
        (WantedRows::Last, row(6)),
        (WantedRows::Rows(vec![0, 2, 6]), [row(0), row(2), row(6)].concat()),
        (WantedRows::Rows(vec![]), vec![]),
    ];
    for max_step in [2, 3, 512] {
        for (wanted, expected) in &cases {
            let mut ex = executor(&toy(), ExecConfig::default().with_max_step_tokens(max_step));
            let options = RunOptions::default().with_wanted_rows(wanted.clone());
            let out = ex.run_with(&[("input_ids", ids(&PROMPT))], &options).unwrap();
            assert_eq!(
                floats(out.get("logits").unwrap()),
                *expected,
                "{wanted:?} in steps of {max_step}"
            );
        }
    }
    for bad in [vec![7], vec![1, 1], vec![2, 1]] {
        let options = RunOptions::default().with_wanted_rows(WantedRows::Rows(bad));
        let err = executor(&toy(), ExecConfig::default()).run_with(&[("input_ids", ids(&PROMPT))], &options);
        assert!(matches!(err.unwrap_err(), ExecError::BadWantedRows { .. }));
    }
}

#[test]
fn only_wanted_rows_reach_the_head() {
    let ex = executor(&toy(), ExecConfig::default());
    let logits = ex.graph().find_value("lm_head").unwrap();
    assert_eq!(ex.graph().value(logits).ty.dims[0], Dim::R);
}

#[test]
fn long_runs_of_graphs_that_are_not_causal_are_refused_with_both_numbers() {
    let mut b = GraphBuilder::new("mean");
    let x = b
        .input("x", ValueType::new(DType::F32, [Dim::T, Dim::fixed(2)]))
        .unwrap();
    let y = b.node1("pool", Op::Mean { axis: 0, keep: false }, &[x]).unwrap();
    b.output("y", y).unwrap();
    let pool = b.finish().unwrap();
    let x = |n: usize| Tensor::from_f32([n, 2], &vec![1.0; 2 * n]).unwrap();
    let mut ex = prepare(pool, vec![toy()], ExecConfig::default().with_max_step_tokens(4));
    assert_eq!(floats(ex.run(&[("x", x(4))]).unwrap().get("y").unwrap()), [1.0, 1.0]);
    let err = ex.run(&[("x", x(5))]).unwrap_err().to_string();
    assert!(
        err.contains("5 rows") && err.contains("the 4 of a step") && err.contains("`pool`"),
        "{err}"
    );

    let toy = toy();
    let mut ex = prepare(
        model(1, false),
        vec![toy],
        ExecConfig::default().with_max_step_tokens(4),
    );
    let err = ex.run(&[("input_ids", ids(&PROMPT))]).unwrap_err().to_string();
    assert!(err.contains("7 rows") && err.contains("layers.0.sdpa"), "{err}");
}

#[test]
fn graphs_that_mix_rows_run_one_sequence_at_a_time() {
    let mut b = GraphBuilder::new("mean");
    let x = b
        .input("x", ValueType::new(DType::F32, [Dim::T, Dim::fixed(1)]))
        .unwrap();
    let y = b.node1("pool", Op::Mean { axis: 0, keep: false }, &[x]).unwrap();
    b.output("y", y).unwrap();
    let ex = prepare(b.finish().unwrap(), vec![toy()], ExecConfig::default());
    assert!(ex.plan().to_string().contains("one at a time"), "{}", ex.plan());
    let x = |v: &[f32]| [("x", Tensor::from_f32([v.len(), 1], v).unwrap())];
    let (mut a, mut b) = (ex.session().unwrap(), ex.session().unwrap());
    let out = ex
        .run_batch(&mut [(&mut a, &x(&[1.0, 3.0])), (&mut b, &x(&[5.0]))])
        .unwrap();
    assert_eq!(floats(out[0].get("y").unwrap()), [2.0]);
    assert_eq!(floats(out[1].get("y").unwrap()), [5.0]);
}

#[test]
fn intermediate_memory_is_limited_by_real_shapes_at_run() {
    // Rows of an encoder are not planned for: a run may bring more than a step's.
    let mut b = GraphBuilder::new("encoder");
    let s = Dim::symbol(Symbol::S);
    let x = b.input("x", ValueType::new(DType::F32, [s, Dim::fixed(16)])).unwrap();
    let y = b.node1("double", Op::Binary(Binary::Add), &[x, x]).unwrap();
    b.output("y", y).unwrap();
    let config = ExecConfig::default()
        .with_max_step_tokens(4)
        .with_max_intermediate_bytes(512);
    let mut ex = prepare(b.finish().unwrap(), vec![toy()], config);
    let x = |n: usize| Tensor::from_f32([n, 16], &vec![1.0; 16 * n]).unwrap();
    ex.run(&[("x", x(8))]).unwrap();
    let err = ex.run(&[("x", x(9))]).unwrap_err().to_string();
    assert!(err.contains("576") && err.contains("512"), "{err}");
}

#[test]
fn state_memory_is_limited() {
    let ex = executor(&toy(), ExecConfig::default().with_max_state_bytes(2048));
    let mut session = ex.session().unwrap();
    logits(&mut session, &[1]).unwrap();
    let many = vec![1; 200];
    let err = logits(&mut session, &many).unwrap_err();
    assert!(
        matches!(err.backend(), Some(BackendError::OutOfMemory { limit_bytes: 2048, .. })),
        "{err}"
    );
    assert_eq!(session.pos(), 1);
    logits(&mut session, &[1]).unwrap();
}

#[test]
fn profiles_name_ops_and_nodes() {
    let mut ex = executor(&toy(), ExecConfig::default().with_profile(true).with_max_step_tokens(4));
    ex.run(&[("input_ids", ids(&PROMPT))]).unwrap();
    let stats = ex.stats();
    assert!(stats.total_ms > 0.0 && !stats.device_clock);
    assert_eq!((stats.n_steps, stats.n_tokens), (2, 7));
    assert!(stats.per_op_ms.contains_key("matmul") && stats.per_op_ms.contains_key("sdpa"));
    assert!(stats.per_node_ms.iter().any(|(name, _)| name == "layers.1.sdpa"));
    let sum: f64 = stats.per_node_ms.iter().map(|(_, ms)| ms).sum();
    assert!(sum > 0.0 && sum <= stats.total_ms);
    // Steps lie in the run one after the other, nodes in their step, and each has a cost.
    let mut at = Duration::ZERO;
    for (step, (t, p)) in stats.steps.iter().zip([(4, 0), (3, 4)]) {
        assert_eq!((step.sizes.t, step.sizes.p, step.seqs.len()), (t, p, 1));
        assert!(step.start >= at && !step.nodes.is_empty());
        at = step.start;
        for node in &step.nodes {
            assert!(node.start >= at, "{node:?}");
            at = node.start + node.time;
        }
        assert!(at <= step.start + step.time);
        for (id, node) in ex.graph().iter_nodes() {
            let cost = step.cost(ex.plan(), id).unwrap();
            assert_eq!(cost.bytes() == 0, node.op.is_view(), "{}", node.name);
        }
        assert_eq!(step.cost(ex.plan(), NodeId(u32::MAX)), None);
    }
    assert!(at.as_secs_f64() * 1e3 <= stats.total_ms);

    let mut quiet = executor(&toy(), ExecConfig::default());
    quiet.run(&[("input_ids", ids(&PROMPT))]).unwrap();
    assert!(quiet.stats().total_ms == 0.0 && quiet.stats().per_op_ms.is_empty());
    assert!(quiet.stats().steps.is_empty());
}

#[test]
fn two_memory_spaces_give_the_same_bits_and_count_copies() {
    let toy = |name, only, space| Toy { name, only, space }.recorded();
    let device = toy("device", &["sdpa", "add"], 7);
    let config = ExecConfig::default().with_profile(true).with_max_step_tokens(3);
    let mut ex = prepare(model(2, true), vec![device.clone(), toy("host", &[], 0)], config);
    let out = ex.run(&[("input_ids", ids(&PROMPT))]).unwrap();
    assert_eq!(floats(out.get("logits").unwrap()), cold(&PROMPT));
    assert!(n_executed(&device) > 0 && ex.stats().n_copies > 0);
    let whole = toy("device", &[], 9);
    let mut ex = prepare(model(2, true), vec![whole], ExecConfig::default());
    let (mut a, mut b) = (ex.session().unwrap(), ex.session().unwrap());
    let (x, y) = ([("input_ids", ids(&PROMPT))], [("input_ids", ids(&[6]))]);
    let out = ex.run_batch(&mut [(&mut a, &x), (&mut b, &y)]).unwrap();
    assert_eq!(floats(out[0].get("logits").unwrap()), cold(&PROMPT));
    assert_eq!(floats(out[1].get("logits").unwrap()), cold(&[6]));
    ex.reset();
}

#[test]
fn counts_stay_at_zero_when_nothing_runs() {
    let toy = toy();
    let _ = executor(&toy, ExecConfig::default());
    assert_eq!(n_executed(&toy), 0);
}
