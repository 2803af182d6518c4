//! Kernels that fail or panic, on whichever thread and at whichever piece of work: the step ends with an error that
//! names the node, nobody hangs, and afterwards everything is as before it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use glia_core::{Backend, BackendError, CompileOptions, NodeView, Op, Program, Segment, Tensor};
use glia_ir::{ExecConfig, ExecError, Graph, GraphExecutor, Session};

use crate::arena::Chunk;
use crate::isa::Isa;
use crate::kernel::{Kernel, Scratch, StepCx, Work};
use crate::pack::Store;
use crate::simd::Level;
use crate::threads::Team;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// A panic while the work is counted, by one thread.
    PanicInWork,
    /// A panic in a piece of work, on whichever thread takes it.
    PanicInRun,
    FailInRun,
}

/// Strikes at the n-th call of any kernel.
#[derive(Default)]
struct Trap {
    left: AtomicUsize,
    fault: std::sync::Mutex<Option<Fault>>,
}

impl Trap {
    fn arm(&self, n: usize, fault: Fault) {
        *self.fault.lock().unwrap() = Some(fault);
        self.left.store(n, SeqCst);
    }

    /// Whether the fault has struck; disarms.
    fn sprung(&self) -> bool {
        *self.fault.lock().unwrap() = None;
        self.left.swap(0, SeqCst) == 0
    }

    fn step_on(&self, in_work: bool) -> Result<(), BackendError> {
        let Some(fault) = *self.fault.lock().unwrap() else {
            return Ok(());
        };
        let due = |left: usize| left.checked_sub(1);
        if (fault == Fault::PanicInWork) != in_work || self.left.fetch_update(SeqCst, SeqCst, due) != Ok(1) {
            return Ok(());
        }
        match fault {
            Fault::FailInRun => Err(BackendError::invalid("trap", "told to")),
            _ => panic!("told to"),
        }
    }
}

struct Trapped {
    inner: Box<dyn Kernel>,
    trap: Arc<Trap>,
}

impl Kernel for Trapped {
    fn work(&self, cx: &StepCx<'_>) -> Result<Work, BackendError> {
        self.trap.step_on(true)?;
        self.inner.work(cx)
    }

    fn run(&self, cx: &StepCx<'_>, chunk: &mut Chunk, scratch: &mut Scratch) -> Result<(), BackendError> {
        self.trap.step_on(false)?;
        self.inner.run(cx, chunk, scratch)
    }
}

/// The CPU backend with a trap in every kernel.
struct Mined {
    team: Arc<Team>,
    trap: Arc<Trap>,
}

impl Mined {
    fn new(threads: usize) -> Mined {
        Mined {
            team: Arc::new(Team::new(threads).unwrap()),
            trap: Arc::default(),
        }
    }
}

impl Backend for Mined {
    fn name(&self) -> &str {
        "cpu"
    }

    fn supports(&self, _: &Op) -> bool {
        true
    }

    fn execute(&self, op: &Op, _: &[&Tensor]) -> Result<Vec<Tensor>, BackendError> {
        Err(BackendError::UnsupportedOp {
            backend: "cpu".into(),
            op: op.to_string(),
        })
    }

    fn supports_node(&self, node: &NodeView<'_>) -> bool {
        crate::ops::supports(node)
    }

    fn compile(
        &self,
        segment: &Segment,
        options: &CompileOptions<'_>,
    ) -> Result<Option<Arc<dyn Program>>, BackendError> {
        let isa = Isa::detect();
        let mut program = super::compile(
            segment,
            options,
            &self.team,
            (isa, Level::of(isa)),
            Store::Packed,
            String::new(),
        )?
        .unwrap();
        let stages = &mut Arc::get_mut(&mut program).unwrap().lowered.stages;
        *stages = std::mem::take(stages)
            .into_iter()
            .map(|mut stage| {
                let trap = self.trap.clone();
                stage.kernel = Box::new(Trapped {
                    inner: stage.kernel,
                    trap,
                });
                stage
            })
            .collect();
        Ok(Some(program))
    }
}

const GRAPH: &str = "\
graph tiny
input %input_ids i32[T]
inject %positions i32[T]
weight %embed.weight f32[50, 32]
weight %freqs f32[4]
%embed f32[T, 32] = token_embed(%input_ids, %embed.weight)
%heads f32[T, 4, 8] = reshape{dims=[-1, 4, 8]}(%embed)
%rope f32[T, 4, 8] = rope{pairing=neox}(%heads, %positions, %freqs)
cache: %cache.k f32[P+T, 4, 8], %cache.v f32[P+T, 4, 8] = kv_cache(%rope, %heads)
%attn f32[T, 4, 8] = sdpa{scale=0.35355338, causal=true}(%rope, %cache.k, %cache.v)
%flat f32[T, 32] = reshape{dims=[-1, 32]}(%attn)
%lm_head f32[T, 50] = matmul(%flat, %embed.weight)
output logits = %lm_head
";

fn executor(backend: Arc<dyn Backend>) -> GraphExecutor {
    let graph: Graph = GRAPH.parse().unwrap();
    let mut weights = HashMap::new();
    for (_, value) in graph.weights() {
        let shape = value.ty.as_fixed().unwrap();
        let values: Vec<f32> = (0..shape.n_elems())
            .map(|i| ((i * 37 % 101) as f32 - 50.0) / 50.0)
            .collect();
        weights.insert(value.name.clone(), Tensor::from_f32(shape, &values).unwrap());
    }
    GraphExecutor::prepare(graph, weights, vec![backend], ExecConfig::default()).unwrap()
}

fn run(session: &mut Session, tokens: &[i32]) -> Result<Vec<u32>, ExecError> {
    let given = Tensor::from_i32([tokens.len()], tokens).unwrap();
    let outputs = session.run(&[("input_ids", given)])?;
    let logits = outputs.get("logits").unwrap().as_f32().unwrap();
    Ok(logits.iter().map(|v| v.to_bits()).collect())
}

/// Fails loudly instead of hanging.
fn within_a_minute(what: impl FnOnce() + Send + 'static) {
    let (done, finished) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        what();
        let _ = done.send(());
    });
    match finished.recv_timeout(Duration::from_secs(60)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("a step hangs"),
        _ => thread.join().unwrap(),
    }
}

fn strike_everywhere(threads: usize) {
    let (before, after): (Vec<i32>, Vec<i32>) =
        ((0..70).map(|i| i % 50).collect(), (0..70).map(|i| i * 7 % 50).collect());
    let clean = executor(Arc::new(crate::CpuBackend::new().unwrap()));
    let mut session = clean.session().unwrap();
    run(&mut session, &before).unwrap();
    let expected = run(&mut session, &after).unwrap();

    let backend = Arc::new(Mined::new(threads));
    let ex = executor(backend.clone());
    let mut session = ex.session().unwrap();
    run(&mut session, &before).unwrap();
    let held = ex.state_bytes();
    for fault in [Fault::PanicInWork, Fault::PanicInRun, Fault::FailInRun] {
        let mut n_struck = 0;
        for n in 1.. {
            backend.trap.arm(n, fault);
            let mut fork = session.fork().unwrap();
            let result = run(&mut fork, &after);
            if !backend.trap.sprung() {
                assert_eq!(result.unwrap(), expected);
                break;
            }
            n_struck += 1;
            let err = result.unwrap_err();
            match (fault, err.backend()) {
                (Fault::FailInRun, Some(BackendError::InvalidInput { .. })) => {}
                (_, Some(BackendError::Panicked { message })) if message == "told to" => {}
                _ => panic!("{fault:?}: {err}"),
            }
            assert!(
                fault == Fault::PanicInWork || err.to_string().contains("node `"),
                "{err}"
            );
            assert_eq!((fork.pos(), session.pos()), (70, 70));
            // The fork may have made the last block its own; what else the step took is given back.
            assert!(ex.state_bytes() <= held + held / 2, "{fault:?} at {n}");
            assert_eq!(run(&mut fork, &after).unwrap(), expected, "{fault:?} at {n}");
        }
        assert!(n_struck > 4, "{fault:?} struck {n_struck} times");
    }
    assert_eq!(run(&mut session, &after).unwrap(), expected);
}

#[test]
fn faults_on_one_thread() {
    within_a_minute(|| strike_everywhere(1));
}

#[test]
fn faults_on_two_threads() {
    within_a_minute(|| strike_everywhere(2));
}

#[test]
fn faults_on_more_threads_than_cores() {
    within_a_minute(|| strike_everywhere(5));
}

/// Two executors share a team; the panics of one do not touch the other.
#[test]
fn faults_beside_a_healthy_executor() {
    within_a_minute(|| {
        let backend = Arc::new(Mined::new(2));
        let healthy = executor(Arc::new(Mined {
            team: backend.team.clone(),
            trap: Arc::default(),
        }));
        let tokens: Vec<i32> = (0..40).collect();
        let expected = run(&mut healthy.session().unwrap(), &tokens).unwrap();
        let ex = executor(backend.clone());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 1..60 {
                    backend.trap.arm(n % 12 + 1, Fault::PanicInRun);
                    let _ = run(&mut ex.session().unwrap(), &tokens);
                }
            });
            for _ in 0..60 {
                assert_eq!(run(&mut healthy.session().unwrap(), &tokens).unwrap(), expected);
            }
        });
        backend.trap.sprung();
        assert_eq!(run(&mut ex.session().unwrap(), &tokens).unwrap(), expected);
    });
}
