//! Steps that fail or are cancelled on the compiled CPU program leave everything as before; limits are refused before
//! any work with their numbers; memory follows the tokens; profiles name what ran.

mod tiny;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use glia_core::{BackendError, Binary, CancelToken, DType, Dim, Op, Shape, Tensor, ValueType};
use glia_ir::{
    ExecConfig, ExecError, Graph, GraphBuilder, GraphExecutor, NonFinite, RunOptions, Session, WeightError,
    WeightSource,
};
use tiny::{Attention, VOCAB, bits, executor, feed, graph, graph_of, ids, tokens, weights};

fn small() -> Graph {
    graph_of(32, DType::Q8_0, &[Attention::plain(), Attention::plain()])
}

fn prepared(threads: usize, config: ExecConfig) -> GraphExecutor {
    let graph = small();
    executor(&graph, &weights(&graph), &tiny::backend(threads, None), config)
}

fn cold(ex: &GraphExecutor, tokens: &[i32]) -> Vec<u32> {
    feed(&mut ex.session().unwrap(), tokens, tokens.len())
}

fn run(session: &mut Session, tokens: &[i32]) -> Result<Vec<u32>, ExecError> {
    let outputs = session.run(&[("input_ids", ids(tokens))])?;
    Ok(bits(outputs.get("logits").unwrap()))
}

/// Cancelled at every check there is, and repeated: one step, several steps, several sequences.
#[test]
fn cancelled_anywhere() {
    let (a, b) = (tokens(90, 1), tokens(50, 2));
    for (threads, max_step) in [(1, 512), (2, 512), (3, 16)] {
        let ex = prepared(threads, ExecConfig::default().with_max_step_tokens(max_step));
        let (only_a, only_b) = (cold(&ex, &a), cold(&ex, &b));
        let (mut x, mut y) = (ex.session().unwrap(), ex.session().unwrap());
        feed(&mut x, &a[..30], 30);
        feed(&mut y, &b[..3], 3);
        let held = ex.state_bytes();
        let (more_a, more_b) = ([("input_ids", ids(&a[30..]))], [("input_ids", ids(&b[3..]))]);
        let mut n_cancelled = 0;
        let outputs = loop {
            let options = RunOptions::default().with_cancel(CancelToken::after_checks(n_cancelled));
            match ex.run_batch_with(&mut [(&mut x, &more_a), (&mut y, &more_b)], &options) {
                Ok(outputs) => break outputs,
                Err(ExecError::Cancelled) => n_cancelled += 1,
                Err(other) => panic!("{other}"),
            }
            assert_eq!((x.pos(), y.pos(), ex.state_bytes()), (30, 3, held));
        };
        // At least one check per matrix product and attention that waits for another.
        assert!(n_cancelled > 20, "cancelled at {n_cancelled} checks");
        assert_eq!(bits(outputs[0].get("logits").unwrap()), only_a[30 * VOCAB..]);
        assert_eq!(bits(outputs[1].get("logits").unwrap()), only_b[3 * VOCAB..]);

        let mut z = ex.session().unwrap();
        feed(&mut z, &a[..30], 30);
        for n in 0.. {
            let options = RunOptions::default().with_cancel(CancelToken::after_checks(n));
            match z.run_with(&more_a, &options) {
                Ok(outputs) => {
                    assert_eq!(bits(outputs.get("logits").unwrap()), only_a[30 * VOCAB..]);
                    break;
                }
                Err(e) => assert!(matches!(e, ExecError::Cancelled) && z.pos() == 30, "{e}"),
            }
            // Another conversation may run in between.
            if n % 7 == 0 {
                assert_eq!(cold(&ex, &b[..2]), only_b[..2 * VOCAB]);
            }
        }
    }
}

#[test]
fn cancelled_from_another_thread() {
    let ex = prepared(2, ExecConfig::default());
    let a = tokens(400, 1);
    let expected = cold(&ex, &a);
    let mut session = ex.session().unwrap();
    for round in 0..40 {
        let token = CancelToken::new();
        let options = RunOptions::default().with_cancel(token.clone());
        let canceller = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_micros(round * 100));
            token.cancel();
        });
        match session.run_with(&[("input_ids", ids(&a))], &options) {
            Ok(_) => assert_eq!(session.truncate(0), 0),
            Err(e) => assert!(matches!(e, ExecError::Cancelled), "{e}"),
        }
        assert_eq!(session.pos(), 0);
        canceller.join().unwrap();
    }
    assert_eq!(feed(&mut session, &a, 400), expected);
}

#[test]
fn a_bad_member_stops_the_whole_batch() {
    let ex = prepared(2, ExecConfig::default().with_max_context(40));
    let (a, b) = (tokens(20, 1), tokens(20, 2));
    let (mut x, mut y) = (ex.session().unwrap(), ex.session().unwrap());
    feed(&mut x, &a[..10], 10);
    feed(&mut y, &b[..10], 10);
    let held = ex.state_bytes();
    let right = [("input_ids", ids(&a[10..]))];
    let wrong: [(Vec<(&str, Tensor)>, &str); 5] = [
        (vec![("input_ids", ids(&[1, VOCAB as i32]))], "vocabulary size is 48"),
        (vec![("input_ids", ids(&[]))], "no tokens"),
        (vec![("input_ids", ids(&[0; 31]))], "41 tokens needed, 40 fit"),
        (vec![], "missing"),
        (
            vec![("input_ids", Tensor::from_f32([1], &[0.5]).unwrap())],
            "whole numbers",
        ),
    ];
    for (given, said) in &wrong {
        let err = ex
            .run_batch(&mut [(&mut x, &right), (&mut y, given)])
            .unwrap_err()
            .to_string();
        assert!(err.contains(said), "{err}");
        assert_eq!((x.pos(), y.pos(), ex.state_bytes()), (10, 10, held));
    }
    assert_eq!(feed(&mut x, &a[10..], 10), cold(&ex, &a)[10 * VOCAB..]);
    assert_eq!(feed(&mut y, &b[10..], 10), cold(&ex, &b)[10 * VOCAB..]);
}

/// A weight that is NaN at one row of the table: only steps that read the row fail.
#[test]
fn not_a_number_is_refused_and_rolled_back() {
    let graph = graph_of(32, DType::F32, &[Attention::plain()]);
    let mut damaged = weights(&graph);
    let name = "embed.weight";
    let mut rows = damaged[name].as_f32().unwrap().to_vec();
    rows[5 * 32 + 3] = f32::NAN;
    // The head is the same table: logit 5 would always be NaN, so the head gets one of its own.
    let healthy = graph_of(32, DType::F32, &[Attention::plain()]);
    let mut text = healthy.to_string().replace(
        "%lm_head f32[T, 48] = matmul(%norm, %embed.weight)",
        "%lm_head f32[T, 48] = matmul(%norm, %head)",
    );
    text = text.replace(
        "weight %embed.weight f32[48, 32]",
        "weight %embed.weight f32[48, 32]\nweight %head f32[48, 32]",
    );
    let graph: Graph = text.parse().unwrap();
    damaged.insert("head".into(), damaged[name].clone());
    damaged.insert(name.into(), Tensor::from_f32([48, 32], &rows).unwrap());
    let cpu = tiny::backend(2, None);
    let ex = executor(&graph, &damaged, &cpu, ExecConfig::default());
    let a: Vec<i32> = tokens(70, 1).into_iter().filter(|&t| t != 5).collect();
    let expected = cold(&ex, &a);
    let mut session = ex.session().unwrap();
    feed(&mut session, &a[..9], 9);
    for poisoned in [&[5][..], &[1, 5, 1], &[1, 2, 3, 5]] {
        let err = run(&mut session, poisoned).unwrap_err();
        assert!(
            matches!(&err, ExecError::NonFinite { output, .. } if output == "logits"),
            "{err}"
        );
        assert_eq!(session.pos(), 9);
    }
    assert_eq!(feed(&mut session, &a[9..], 40), expected[9 * VOCAB..]);
    // In one step with others: all are rolled back.
    let mut other = ex.session().unwrap();
    let (bad, good) = ([("input_ids", ids(&[5]))], [("input_ids", ids(&a[..20]))]);
    ex.run_batch(&mut [(&mut other, &good), (&mut session, &bad)])
        .unwrap_err();
    assert_eq!(feed(&mut other, &a, 64), expected);

    let allow = ExecConfig::default().with_non_finite(NonFinite::Allow);
    let logits = cold(&executor(&graph, &damaged, &cpu, allow), &[5]);
    assert!(logits.iter().any(|&b| f32::from_bits(b).is_nan()));
}

#[test]
fn a_full_context_is_refused_before_any_work() {
    let ex = prepared(2, ExecConfig::default().with_max_context(70).with_max_step_tokens(16));
    let a = tokens(70, 1);
    let mut session = ex.session().unwrap();
    feed(&mut session, &a[..60], 60);
    let held = ex.state_bytes();
    for n in [11, 500] {
        let err = run(&mut session, &vec![0; n]).unwrap_err();
        assert!(
            matches!(err, ExecError::ContextOverflow { needed, max: 70 } if needed == 60 + n),
            "{err}"
        );
        assert_eq!((session.pos(), ex.state_bytes()), (60, held));
    }
    assert_eq!(run(&mut session, &a[60..]).unwrap(), cold(&ex, &a)[60 * VOCAB..]);
    assert!(matches!(
        run(&mut session, &[0]).unwrap_err(),
        ExecError::ContextOverflow { needed: 71, max: 70 }
    ));
}

/// Capacity is a limit, not an allocation: blocks of 64 tokens come as they are needed, and forks share them.
#[test]
fn state_memory_follows_the_tokens() {
    let ex = prepared(1, ExecConfig::default().with_max_context(i32::MAX as usize));
    let mut session = ex.session().unwrap();
    assert_eq!(ex.state_bytes(), 0);
    // Two layers, keys and values, one head of 16, F32.
    let block = 2 * 2 * 64 * 16 * 4;
    for n_tokens in 1usize..=200 {
        run(&mut session, &[1]).unwrap();
        assert_eq!(ex.state_bytes(), n_tokens.div_ceil(64) * block, "{n_tokens} tokens");
    }
    let fork = session.fork().unwrap();
    assert_eq!(ex.state_bytes(), 4 * block);
    drop(fork);
    for (n, blocks) in [(129, 3), (128, 2), (1, 1), (0, 0)] {
        session.truncate(n);
        assert_eq!(ex.state_bytes(), blocks * block, "truncated to {n}");
    }
}

#[test]
fn intermediate_memory_is_refused_at_prepare_with_both_numbers() {
    let graph = small();
    let peak = prepared(1, ExecConfig::default()).plan().memory().unwrap().peak_bytes;
    let with = |limit: usize, max_step: usize| {
        let config = ExecConfig::default()
            .with_max_intermediate_bytes(limit)
            .with_max_step_tokens(max_step);
        GraphExecutor::prepare(graph.clone(), weights(&graph), vec![tiny::backend(1, None)], config)
    };
    let ex = with(peak, 512).unwrap();
    feed(&mut ex.session().unwrap(), &tokens(600, 1), 600);
    let err = with(peak - 1, 512).unwrap_err();
    assert!(
        matches!(err, ExecError::IntermediateMemory { needed_bytes, limit_bytes, .. } if (needed_bytes, limit_bytes) == (peak, peak - 1))
    );
    let said = err.to_string();
    assert!(
        said.contains(&peak.to_string()) && said.contains(&(peak - 1).to_string()) && said.contains("max_step_tokens")
    );
    // The cure that the message names.
    with(peak - 1, 256).unwrap();
}

#[test]
fn intermediate_memory_is_refused_at_run_by_real_shapes() {
    let mut b = GraphBuilder::new("encoder");
    let s = Dim::symbol(glia_core::Symbol::S);
    let x = b.input("x", ValueType::new(DType::F32, [s, Dim::fixed(16)])).unwrap();
    let y = b.node1("double", Op::Binary(Binary::Add), &[x, x]).unwrap();
    b.output("y", y).unwrap();
    let config = ExecConfig::default()
        .with_max_step_tokens(4)
        .with_max_intermediate_bytes(512);
    let none: HashMap<String, Tensor> = HashMap::new();
    let mut ex = GraphExecutor::prepare(b.finish().unwrap(), none, vec![tiny::backend(2, None)], config).unwrap();
    let x = |n: usize| [("x", Tensor::zeros(DType::F32, [n, 16]).unwrap())];
    ex.run(&x(8)).unwrap();
    let err = ex.run(&x(9)).unwrap_err();
    assert!(
        matches!(
            err,
            ExecError::IntermediateMemory {
                needed_bytes: 576,
                limit_bytes: 512,
                ..
            }
        ),
        "{err}"
    );
    ex.run(&x(8)).unwrap();
}

#[test]
fn profiles_have_a_time_for_every_node_and_cost_nothing_when_off() {
    for threads in [1, 2] {
        let mut ex = prepared(
            threads,
            ExecConfig::default().with_profile(true).with_max_step_tokens(64),
        );
        let a = tokens(100, 1);
        let logits = ex.run(&[("input_ids", ids(&a))]).unwrap();
        let stats = ex.stats().clone();
        assert_eq!((stats.n_steps, stats.n_tokens, stats.device_clock), (2, 100, false));
        let sum = |times: &mut dyn Iterator<Item = f64>| times.sum::<f64>();
        let by_op = sum(&mut stats.per_op_ms.values().copied());
        let by_node = sum(&mut stats.per_node_ms.iter().map(|(_, ms)| *ms));
        assert!(by_node > 0.0 && by_node <= stats.total_ms && (by_op - by_node).abs() < 1e-6 * by_op);
        for node in ex.graph().nodes.iter().filter(|n| !n.op.is_view()) {
            let times: Vec<f64> = stats
                .per_node_ms
                .iter()
                .filter(|(name, _)| *name == node.name)
                .map(|(_, ms)| *ms)
                .collect();
            assert!(times.len() == 1 && times[0] > 0.0, "{}: {times:?}", node.name);
            assert!(stats.per_op_ms[node.op.kind()] >= times[0]);
        }
        // A profile changes no bit, and the next run begins anew.
        let quiet = prepared(threads, ExecConfig::default());
        assert_eq!(bits(logits.get("logits").unwrap()), cold(&quiet, &a));
        ex.run(&[("input_ids", ids(&[1]))]).unwrap();
        assert_eq!((ex.stats().n_steps, ex.stats().n_tokens), (1, 1));

        let mut quiet = quiet;
        quiet.run(&[("input_ids", ids(&a))]).unwrap();
        let stats = quiet.stats();
        assert!(stats.per_node_ms.is_empty() && stats.per_op_ms.is_empty() && stats.total_ms == 0.0);
    }
}

type Lie = fn(&Tensor) -> Result<Tensor, WeightError>;

/// A source that says one thing and gives another.
struct Lying {
    weights: HashMap<String, Tensor>,
    about: &'static str,
    lie: Lie,
    told: AtomicBool,
}

impl WeightSource for Lying {
    fn meta(&self, name: &str) -> Option<(DType, Shape)> {
        self.weights.get(name).map(|t| (t.dtype(), *t.shape()))
    }

    fn get(&self, name: &str) -> Result<Tensor, WeightError> {
        let tensor = self.weights.get(name).ok_or("unknown")?;
        if name != self.about {
            return Ok(tensor.clone());
        }
        self.told.store(true, Relaxed);
        (self.lie)(tensor)
    }
}

/// Matrices, tables, vectors and the values that passes read: each is checked when it comes, and named.
#[test]
fn weights_that_are_not_what_their_source_said_are_refused_at_prepare() {
    let graph = graph(DType::Q4_0, &Attention::both());
    let lies: [Lie; 4] = [
        |_| Err("the file ends early".into()),
        |t| Ok(Tensor::zeros(DType::F64, *t.shape())?),
        |t| Ok(Tensor::zeros(DType::F32, [t.shape()[0], 1])?),
        |t| Ok(Tensor::device(t.dtype(), *t.shape(), std::sync::Arc::new(()))?),
    ];
    for about in [
        "embed.weight",
        "layers.0.q.weight",
        "layers.1.k.weight",
        "layers.0.q.bias",
        "norm.weight",
        "freqs.64",
        "layers.0.sinks",
    ] {
        for lie in lies {
            let source = Lying {
                weights: weights(&graph),
                about,
                lie,
                told: AtomicBool::new(false),
            };
            let source = std::sync::Arc::new(source);
            let result = GraphExecutor::prepare(
                graph.clone(),
                source.clone(),
                vec![tiny::backend(2, None)],
                ExecConfig::default(),
            );
            assert!(source.told.load(Relaxed), "{about}");
            let err = result.map(|_| ()).unwrap_err().to_string();
            assert!(err.contains(about), "{about}: {err}");
        }
    }
}

#[test]
fn state_memory_is_limited_and_another_session_can_go_on() {
    let block = 2 * 2 * 64 * 16 * 4;
    let ex = prepared(2, ExecConfig::default().with_max_state_bytes(2 * block));
    let (mut x, mut y) = (ex.session().unwrap(), ex.session().unwrap());
    let a = tokens(64, 1);
    feed(&mut x, &a, 64);
    feed(&mut y, &a[..60], 60);
    let err = run(&mut x, &[1]).unwrap_err();
    assert!(matches!(err.backend(), Some(BackendError::OutOfMemory { .. })), "{err}");
    assert_eq!((x.pos(), ex.state_bytes()), (64, 2 * block));
    assert_eq!(
        feed(&mut y, &a[60..], 4),
        cold(&prepared(1, ExecConfig::default()), &a)[60 * VOCAB..]
    );
    drop(y);
    run(&mut x, &[1]).unwrap();
}

/// Sessions of one executor on threads of their own, with forks and drops in between.
#[test]
fn sessions_on_many_threads() {
    let ex = prepared(2, ExecConfig::default().with_max_step_tokens(24));
    let all: Vec<Vec<i32>> = (0..4).map(|seed| tokens(90, seed)).collect();
    let expected: Vec<Vec<u32>> = all.iter().map(|tokens| cold(&ex, tokens)).collect();
    std::thread::scope(|scope| {
        for (tokens, expected) in all.iter().zip(&expected) {
            let ex = &ex;
            scope.spawn(move || {
                for round in 1..6 {
                    let mut session = ex.session().unwrap();
                    assert_eq!(feed(&mut session, &tokens[..70], 13 * round), expected[..70 * VOCAB]);
                    let mut fork = session.fork().unwrap();
                    drop(session);
                    let options = RunOptions::default().with_cancel(CancelToken::after_checks(5 * round));
                    let _ = fork.run_with(&[("input_ids", ids(&[1, 2, 3]))], &options);
                    fork.truncate(66);
                    assert_eq!(feed(&mut fork, &tokens[66..], 5), expected[66 * VOCAB..]);
                }
            });
        }
    });
    assert_eq!(ex.state_bytes(), 0);
}
