//! Backends that compile whole segments: what the executor hands them, and what it accepts back.

mod toy;

use std::collections::HashMap;
use std::sync::Arc;

use glia_core::testing::{Call, Fault, Journal, NullBackend, RecordingBackend};
use glia_core::{DType, Dim, MemorySpace, Op, Precision, Tensor, ValueType};
use glia_ir::{ExecConfig, ExecError, GraphBuilder, GraphExecutor, RunOptions};
use toy::{ids, model, weights};

/// What changes sequences.
const STATE: [Call; 7] = [
    Call::Run,
    Call::Commit,
    Call::Rollback,
    Call::Create,
    Call::Fork,
    Call::Truncate,
    Call::Free,
];

/// A device that compiles and computes nothing.
fn null(name: &str) -> NullBackend {
    NullBackend::new().named(name).compiling()
}

fn recording(backend: NullBackend) -> Arc<RecordingBackend> {
    Arc::new(RecordingBackend::new(Arc::new(backend)))
}

fn executor(backend: &Arc<RecordingBackend>) -> GraphExecutor {
    let graph = model(1, true);
    let weights = weights(&graph);
    let config = ExecConfig::default()
        .with_max_step_tokens(4)
        .with_max_context(99)
        .with_precision(Precision::Exact)
        .with_kv_dtypes([DType::F16, DType::Q8_0]);
    GraphExecutor::prepare(graph, weights, vec![backend.clone()], config).unwrap()
}

#[test]
fn a_program_sees_steps_of_dense_rows_and_one_commit_each() {
    let backend = recording(null("null"));
    let ex = executor(&backend);
    assert_eq!(
        backend.journal().take(),
        [
            "null: compile 14 nodes as null.0, steps of 4, contexts of 99, Exact, caches of f16/q8_0",
            "null.0: open",
            "null.0: create 0"
        ]
    );
    let (mut a, mut b) = (ex.session().unwrap(), ex.session().unwrap());
    let (x, y) = ([("input_ids", ids(&[1, 2, 3, 4, 5]))], [("input_ids", ids(&[6, 7]))]);
    ex.run_batch(&mut [(&mut a, &x), (&mut b, &y)]).unwrap();
    let c = a.fork().unwrap();
    drop((b, c));
    let expected = [
        "null.0: create 1",
        "null.0: create 2",
        "null.0: run 1@0+4 wanting [0, 1, 2, 3] of i32[4], i32[4] -> f32[4, 16]",
        "null.0: commit",
        "null.0: run 1@4+1 2@0+2 wanting [0, 1, 2] of i32[3], i32[3] -> f32[3, 16]",
        "null.0: commit",
        "null.0: fork 1 to 3 at 5",
        "null.0: truncate 3 to 5",
        "null.0: free 2",
        "null.0: free 3",
    ];
    assert_eq!(backend.journal().take(), expected);
}

#[test]
fn a_run_returns_the_outputs_that_it_names_and_no_others() {
    let space = MemorySpace(7);
    let backend = recording(null("far").in_space(space));
    let mut b = GraphBuilder::new("two outputs");
    let x = b
        .input("x", ValueType::new(DType::F32, [Dim::T, Dim::fixed(4)]))
        .unwrap();
    for (name, factor) in [("twice", 2.0), ("thrice", 3.0)] {
        let y = b.node1(name, Op::Scale { factor }, &[x]).unwrap();
        b.output(name, y).unwrap();
    }
    let none: HashMap<String, Tensor> = HashMap::new();
    let mut ex =
        GraphExecutor::prepare(b.finish().unwrap(), none, vec![backend.clone()], ExecConfig::default()).unwrap();
    let input = [("x", Tensor::zeros(DType::F32, [3, 4]).unwrap())];
    let mut names = |wanted: &[&str]| -> Vec<String> {
        let options = RunOptions::default().with_wanted_outputs(wanted);
        let outputs = ex.run_with(&input, &options).unwrap();
        outputs.iter().map(|(name, _)| name.to_owned()).collect()
    };
    assert_eq!(names(&["thrice"]), ["thrice"]);
    assert_eq!(names(&["thrice", "twice"]), ["twice", "thrice"]);
    assert!(names(&[]).is_empty());
    let before = ex.default_session().pos();
    let options = RunOptions::default().with_wanted_outputs(&["fourfold"]);
    let error = ex.run_with(&input, &options).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the graph has no output `fourfold`; it declares twice, thrice"
    );
    assert_eq!(ex.default_session().pos(), before);
}

#[test]
fn wrong_outputs_of_a_program_are_named_and_rolled_back() {
    let backend = recording(null("null"));
    let mut ex = executor(&backend);
    let x = [("input_ids", ids(&[1]))];
    for (fault, said) in [
        (Fault::ExtraOutput, "returned 2 outputs instead of 1"),
        (Fault::NoOutput, "returned 0 outputs instead of 1"),
        (
            Fault::WrongShape,
            "returned `lm_head` as f32[1, 1, 7] instead of f32[1, 16]",
        ),
        (Fault::WrongDType, "returned `lm_head` as i32"),
    ] {
        backend.journal().take();
        backend.arm(Call::Run, 1, fault);
        let err = ex.run(&x).unwrap_err();
        assert!(matches!(
            err,
            ExecError::WrongOutputs { .. } | ExecError::WrongOutput { .. }
        ));
        assert!(
            err.to_string().contains(said) && err.to_string().contains("null"),
            "{err}"
        );
        let after = [Call::Rollback, Call::Truncate];
        assert_eq!(
            backend.journal().take_only(&after),
            ["null.0: rollback", "null.0: truncate 0 to 0"]
        );
    }
    ex.run(&x).unwrap();
}

#[test]
fn programs_that_fail_or_panic_are_rolled_back_and_asked_again() {
    let backend = recording(null("null"));
    let mut ex = executor(&backend);
    ex.run(&[("input_ids", ids(&[1]))]).unwrap();
    let calls = |backend: &RecordingBackend| -> Vec<Call> {
        let entries = backend.journal().take_entries();
        entries.iter().map(|e| e.call).filter(|c| STATE.contains(c)).collect()
    };
    for (fault, said) in [
        (Fault::Fails, "told to"),
        (Fault::Panics, "the backend panicked"),
        (Fault::NaN, "`logits` holds NaN"),
    ] {
        calls(&backend);
        backend.arm(Call::Run, 1, fault);
        let x = [("input_ids", ids(&[1, 2, 3, 4, 5]))];
        let err = ex.run(&x).unwrap_err().to_string();
        assert!(err.contains(said), "{err}");
        assert_eq!(calls(&backend), [Call::Run, Call::Rollback, Call::Truncate]);
        assert_eq!(ex.default_session().pos(), 1);
        ex.run(&x).unwrap();
        assert_eq!(calls(&backend), [Call::Run, Call::Commit, Call::Run, Call::Commit]);
        ex.default_session().truncate(1);
    }
}

#[test]
fn programs_that_rewind_to_checkpoints_agree_on_one() {
    let journal = Journal::new();
    let device = |backend: NullBackend| Arc::new(RecordingBackend::new(Arc::new(backend)).writing_to(&journal));
    let attention = null("attention")
        .supporting_kinds(&["sdpa", "kv_cache"])
        .with_checkpoints(3);
    let rest = null("rest").with_checkpoints(2);
    let graph = model(1, true);
    let weights = weights(&graph);
    let ex = GraphExecutor::prepare(
        graph,
        weights,
        vec![device(attention), device(rest)],
        ExecConfig::default(),
    )
    .unwrap();
    let mut session = ex.session().unwrap();
    session.run(&[("input_ids", ids(&[1, 2, 3, 4, 5, 6, 7]))]).unwrap();
    assert_eq!(session.fork().unwrap().pos(), 7, "nothing to rewind");
    journal.take();
    // Of 5 tokens one keeps 4, the other then 3, the first then 2, and so on: only 0 suits both.
    assert_eq!((session.truncate(5), session.pos()), (0, 0));
    assert!(journal.take_only(&[Call::Truncate]).iter().any(|l| l.ends_with("-> 3")));
    session.run(&[("input_ids", ids(&[1; 8]))]).unwrap();
    assert_eq!(session.truncate(7), 6, "a checkpoint of both");
    session.run(&[("input_ids", ids(&[1]))]).unwrap();
}

#[test]
fn a_backend_that_fails_or_panics_while_it_compiles_fails_prepare() {
    for (call, fault, said) in [
        (Call::Compile, Fault::Panics, "panicked"),
        (Call::Open, Fault::Panics, "panicked"),
        (Call::Compile, Fault::LosesDevice, "the device was lost"),
        (Call::Open, Fault::LosesDevice, "the device was lost"),
        (Call::Create, Fault::LosesDevice, "the device was lost"),
    ] {
        let backend = recording(null("null"));
        backend.arm(call, 1, fault);
        let graph = model(1, true);
        let weights = weights(&graph);
        let made = GraphExecutor::prepare(graph, weights, vec![backend], ExecConfig::default());
        let err = made.unwrap_err().to_string();
        assert!(err.contains(said) && err.contains("told to"), "{call:?}: {err}");
    }
}
