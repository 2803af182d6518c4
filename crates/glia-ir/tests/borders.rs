//! Several backends in one graph: regions, copies at their borders, fallbacks with reasons, and steps that are all or
//! nothing over several programs.

mod toy;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use glia_core::testing::{Fault, NullBackend, RecordingBackend};
use glia_core::{
    Backend, BackendError, Binary, CancelToken, CompileOptions, DType, Dim, Gate, InterpretedProgram, MemorySpace, Op,
    Program, ProgramState, Segment, SeqId, StateOptions, Step, Tensor, Unary, ValueKind, ValueType,
};
use glia_ir::{ExecConfig, FallbackReason, Graph, GraphBuilder, GraphExecutor, Passes, Plan, RunOptions, Vid};
use toy::{Toy, arm, floats, ids, model, n_executed, prepare};

fn toy(name: &'static str, only: &'static [&'static str], space: u64) -> Arc<RecordingBackend> {
    Toy { name, only, space }.recorded()
}

fn config() -> ExecConfig {
    ExecConfig::default().with_max_step_tokens(4).with_max_context(32)
}

const TOKENS: [i32; 6] = [3, 1, 4, 1, 5, 9];

fn logits(ex: &mut GraphExecutor) -> Vec<f32> {
    floats(ex.run(&[("input_ids", ids(&TOKENS))]).unwrap().get("logits").unwrap())
}

/// Backend and nodes of each region.
fn regions(plan: &Plan) -> Vec<(&str, Vec<&str>)> {
    let names = |(start, end): (usize, usize)| plan.graph.nodes[start..end].iter().map(|n| n.name.as_str()).collect();
    plan.regions
        .iter()
        .map(|r| (r.backend_name.as_str(), names(r.nodes)))
        .collect()
}

/// Rows `[T, 4]`, changed by what `build` adds; returns what it returns.
fn rows(build: impl FnOnce(&mut GraphBuilder, Vid) -> Vec<Vid>) -> Graph {
    let mut b = GraphBuilder::new("rows");
    let x = b
        .input("x", ValueType::new(DType::F32, [Dim::T, Dim::fixed(4)]))
        .unwrap();
    for (i, y) in build(&mut b, x).into_iter().enumerate() {
        b.output(&format!("y{i}"), y).unwrap();
    }
    b.finish().unwrap()
}

fn half(b: &mut GraphBuilder, name: &str, x: Vid) -> Vid {
    b.node1(name, Op::Scale { factor: 0.5 }, &[x]).unwrap()
}

fn silu(b: &mut GraphBuilder, name: &str, x: Vid) -> Vid {
    b.node1(name, Op::Unary(Unary::Silu), &[x]).unwrap()
}

fn run_rows(graph: &Graph, backends: Vec<Arc<dyn Backend>>) -> (GraphExecutor, Vec<Vec<f32>>) {
    let mut ex = prepare(graph.clone(), backends, config().with_passes(Passes::None));
    let x = Tensor::from_f32([2, 4], &[0.5, -1.0, 2.0, 3.0, 0.1, 0.2, -0.3, 0.4]).unwrap();
    let out = ex.run(&[("x", x)]).unwrap();
    let values = out.iter().map(|(_, t)| floats(t)).collect();
    (ex, values)
}

#[test]
fn nodes_that_do_not_depend_on_each_other_move_out_of_the_way() {
    // By turns on two backends, in two chains that meet at the end.
    let graph = rows(|b, x| {
        let (a1, c1) = (half(b, "a1", x), silu(b, "c1", x));
        let (a2, c2) = (half(b, "a2", a1), silu(b, "c2", c1));
        let (a3, c3) = (half(b, "a3", a2), silu(b, "c3", c2));
        vec![b.node1("sum", Op::Binary(Binary::Add), &[a3, c3]).unwrap()]
    });
    let (alone, expected) = run_rows(&graph, vec![toy::toy()]);
    assert_eq!(alone.plan().regions.len(), 1);
    let (ex, values) = run_rows(&graph, vec![toy("device", &["scale", "add"], 1), toy::toy()]);
    let found = regions(ex.plan());
    assert_eq!(
        found,
        [
            ("toy", vec!["c1", "c2", "c3"]),
            ("device", vec!["a1", "a2", "a3", "sum"])
        ]
    );
    assert_eq!(values, expected);
    // What depends on each other stays in its order.
    let chain = rows(|b, x| {
        let y = half(b, "a", x);
        let y = silu(b, "c", y);
        vec![half(b, "e", y)]
    });
    let (ex, values) = run_rows(&chain, vec![toy("device", &["scale"], 1), toy::toy()]);
    assert_eq!(regions(ex.plan()).len(), 3);
    assert_eq!(values, run_rows(&chain, vec![toy::toy()]).1);
}

#[test]
fn a_value_is_copied_once_per_step_and_destination() {
    // `a` is made on the host and read by two regions of the device; `c` comes back for two readers on the host.
    let graph = rows(|b, x| {
        let a = half(b, "a", x);
        let c = silu(b, "c", a);
        let d = half(b, "d", c);
        let e = b.node1("e", Op::Binary(Binary::Add), &[d, c]).unwrap();
        let f = silu(b, "f", e);
        let g = silu(b, "g", a);
        vec![f, g]
    });
    let expected = run_rows(&graph, vec![toy::toy()]).1;
    for profile in [false, true] {
        let backends: Vec<Arc<dyn Backend>> = vec![toy("device", &["silu"], 1), toy::toy()];
        let mut ex = prepare(
            graph.clone(),
            backends,
            config().with_passes(Passes::None).with_profile(profile),
        );
        let x = Tensor::from_f32([2, 4], &[0.5, -1.0, 2.0, 3.0, 0.1, 0.2, -0.3, 0.4]).unwrap();
        let out = ex.run(&[("x", x)]).unwrap();
        assert_eq!(out.iter().map(|(_, t)| floats(t)).collect::<Vec<_>>(), expected);
        let plan = ex.plan();
        let said: Vec<_> = plan
            .copies
            .iter()
            .map(|c| (plan.graph.value(plan.wires[c.wire]).name.as_str(), c.from, c.to))
            .collect();
        assert_eq!(said, [("a", None, Some(0)), ("c", Some(0), None), ("e", None, Some(0))]);
        let stats = ex.stats();
        assert_eq!((stats.n_copies, stats.copied_bytes), (3, 3 * 32));
        assert_eq!(stats.read_back_bytes, 2 * 32);
    }
}

#[test]
fn backends_of_one_memory_hand_tensors_to_each_other() {
    let expected = logits(&mut prepare(model(2, true), vec![toy::toy()], config()));
    let pair: Vec<Arc<dyn Backend>> = vec![toy("one", &["sdpa"], 3), toy("other", &[], 3)];
    let mut ex = prepare(model(2, true), pair, config());
    assert_eq!(logits(&mut ex), expected);
    assert!(ex.plan().regions.len() > 1 && ex.plan().copies.is_empty());
    assert_eq!((ex.stats().n_copies, ex.stats().copied_bytes), (0, 0));
    // Over two devices and the host, as many copies as planned in each of two steps.
    let three: Vec<Arc<dyn Backend>> = vec![toy("one", &["sdpa"], 3), toy("two", &["add"], 4), toy("host", &[], 0)];
    let mut ex = prepare(model(2, true), three, config());
    assert_eq!(logits(&mut ex), expected);
    assert_eq!(ex.stats().n_copies, 2 * ex.plan().copies.len());
    let stops = ex
        .plan()
        .copies
        .iter()
        .filter(|c| c.from.is_some() && c.to.is_some())
        .count();
    assert_eq!(stops, 0, "between two devices lies the host");
}

#[test]
fn what_falls_to_another_backend_is_named_with_its_reason() {
    /// Takes no quantised weights and attention of two heads at most.
    struct Picky(Toy);
    impl Backend for Picky {
        fn name(&self) -> &str {
            "picky"
        }
        fn supports(&self, op: &Op) -> bool {
            self.0.supports(op) && op.kind() != "mean"
        }
        fn supports_node(&self, node: &glia_core::NodeView<'_>) -> bool {
            let plain = node.inputs.iter().all(|ty| ty.dtype == DType::F32);
            self.supports(node.op) && plain && node.inputs[0].rank() < 3
        }
        fn execute(&self, op: &Op, inputs: &[&Tensor]) -> Result<Vec<Tensor>, BackendError> {
            self.0.execute(op, inputs)
        }
    }
    let graph = rows(|b, x| {
        let w = b.weight("w", ValueType::fixed(DType::BF16, &[4, 4])).unwrap();
        let y = b.matmul("product", x, w, None).unwrap();
        let y = half(b, "half", y);
        let cube = b.node1("cube", Op::Reshape { dims: vec![-1, 2, 2] }, &[y]).unwrap();
        let cube = half(b, "flat", cube);
        let mean = b.node1("mean", Op::Mean { axis: 0, keep: true }, &[y]).unwrap();
        vec![cube, mean]
    });
    let backends: Vec<Arc<dyn Backend>> = vec![
        Arc::new(Picky(Toy::default())),
        Arc::new(NullBackend::new().named("all")),
    ];
    let plan = Plan::new(Arc::new(graph), &backends, glia_ir::PlanLimits::new(4, 32)).unwrap();
    let reasons: Vec<_> = plan
        .fallbacks
        .iter()
        .map(|f| (plan.graph.node(f.node).name.as_str(), &f.reason))
        .collect();
    let dtypes = FallbackReason::DTypes(vec![DType::F32, DType::BF16]);
    let expected = [
        ("product", &dtypes),
        ("flat", &FallbackReason::Form),
        ("mean", &FallbackReason::Op),
    ];
    assert_eq!(reasons, expected);
    insta::assert_snapshot!(plan.fallback_lines().join("\n"), @r"
    1 matmul on all, since picky does not take f32 with bf16: product
    1 scale on all, since picky does not take its shapes or options: flat
    1 mean on all, since picky does not have the op: mean
    ");
}

#[test]
fn what_the_first_backend_computes_in_simpler_ops_stays_with_it() {
    let graph = rows(|b, x| vec![b.node1("glu", Op::Gated(Gate::Silu), &[x, x]).unwrap()]);
    struct Simple;
    impl Backend for Simple {
        fn name(&self) -> &str {
            "simple"
        }
        fn supports(&self, op: &Op) -> bool {
            matches!(op, Op::Unary(Unary::Silu) | Op::Binary(Binary::Mul))
        }
        fn execute(&self, _: &Op, _: &[&Tensor]) -> Result<Vec<Tensor>, BackendError> {
            Ok(vec![])
        }
    }
    struct Composite;
    impl Backend for Composite {
        fn name(&self) -> &str {
            "composite"
        }
        fn supports(&self, op: &Op) -> bool {
            matches!(op, Op::Gated(_))
        }
        fn execute(&self, _: &Op, _: &[&Tensor]) -> Result<Vec<Tensor>, BackendError> {
            Ok(vec![])
        }
    }
    let config = config().with_passes(Passes::None);
    let ex = prepare(
        graph.clone(),
        vec![Arc::new(Simple), Arc::new(Composite)],
        config.clone(),
    );
    assert_eq!(regions(ex.plan()), [("simple", vec!["glu.silu", "glu"])]);
    let ex = prepare(graph, vec![Arc::new(Composite), Arc::new(Simple)], config);
    assert_eq!(regions(ex.plan()), [("composite", vec!["glu"])]);
}

/// Compiles, with a memory of its own: wraps the interpreter and notes where inputs and outputs lie.
struct Compiling {
    inner: Arc<RecordingBackend>,
    asked: Arc<AtomicUsize>,
    host_inputs: Arc<AtomicUsize>,
}

impl Backend for Compiling {
    fn name(&self) -> &str {
        "compiling"
    }
    fn supports(&self, op: &Op) -> bool {
        self.inner.supports(op)
            || matches!(
                op,
                Op::TokenEmbed | Op::KvCache | Op::Reshape { .. } | Op::Gather { .. }
            )
    }
    fn supports_node(&self, node: &glia_core::NodeView<'_>) -> bool {
        self.supports(node.op)
    }
    fn execute(&self, op: &Op, inputs: &[&Tensor]) -> Result<Vec<Tensor>, BackendError> {
        self.inner.execute(op, inputs)
    }
    fn space(&self) -> MemorySpace {
        self.inner.space()
    }
    fn upload(&self, _: &Tensor) -> Result<Tensor, BackendError> {
        panic!("inputs go to a program as they are")
    }
    fn download(&self, _: &Tensor) -> Result<Tensor, BackendError> {
        panic!("the program reads back itself")
    }
    fn compile(
        &self,
        segment: &Segment,
        options: &CompileOptions<'_>,
    ) -> Result<Option<Arc<dyn Program>>, BackendError> {
        self.asked.fetch_add(
            (0..segment.outputs.len())
                .filter(|&i| options.is_output_to_host(i))
                .count(),
            SeqCst,
        );
        let inner = InterpretedProgram::new(self.inner.clone(), Arc::new(segment.clone()), options)?;
        Ok(Some(Arc::new(Compiled {
            inner,
            host_inputs: self.host_inputs.clone(),
        })))
    }
}

struct Compiled {
    inner: Arc<dyn Program>,
    host_inputs: Arc<AtomicUsize>,
}

impl Program for Compiled {
    fn open(self: Arc<Self>, options: &StateOptions) -> Result<Box<dyn ProgramState>, BackendError> {
        Ok(Box::new(Open {
            inner: self.inner.clone().open(options)?,
            host_inputs: self.host_inputs.clone(),
        }))
    }
}

struct Open {
    inner: Box<dyn ProgramState>,
    host_inputs: Arc<AtomicUsize>,
}

impl ProgramState for Open {
    fn run(&mut self, step: &Step<'_>) -> Result<Vec<Tensor>, BackendError> {
        let on_host = step.inputs.iter().filter(|t| t.check_on_host().is_ok()).count();
        self.host_inputs.fetch_add(on_host, SeqCst);
        self.inner.run(step)
    }
    fn commit(&mut self) {
        self.inner.commit();
    }
    fn rollback(&mut self) {
        self.inner.rollback();
    }
    fn create(&mut self, seq: SeqId) -> Result<(), BackendError> {
        self.inner.create(seq)
    }
    fn fork(&mut self, from: SeqId, to: SeqId, len: usize) -> Result<usize, BackendError> {
        self.inner.fork(from, to, len)
    }
    fn truncate(&mut self, seq: SeqId, len: usize) -> usize {
        self.inner.truncate(seq, len)
    }
    fn free(&mut self, seq: SeqId) {
        self.inner.free(seq);
    }
}

#[test]
fn a_program_takes_host_inputs_as_they_are_and_may_return_outputs_on_the_host() {
    let expected = logits(&mut prepare(model(2, true), vec![toy::toy()], config()));
    let (asked, host_inputs) = <(Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
    let backend = Compiling {
        inner: toy("inner", &[], 5),
        asked: asked.clone(),
        host_inputs: host_inputs.clone(),
    };
    let mut ex = prepare(model(2, true), vec![Arc::new(backend)], config());
    assert_eq!(logits(&mut ex), expected);
    // The logits; ids and wanted rows in each of two steps.
    assert_eq!((asked.load(SeqCst), host_inputs.load(SeqCst)), (1, 4));
    let stats = ex.stats();
    assert_eq!((stats.n_copies, stats.copied_bytes), (0, 0));
    assert_eq!(stats.read_back_bytes, TOKENS.len() * toy::VOCAB * 4);
}

#[test]
fn a_step_over_several_programs_is_all_or_nothing() {
    let (device, host) = (toy("device", &["sdpa", "add"], 7), toy("host", &[], 0));
    let backends: Vec<Arc<dyn Backend>> = vec![device.clone(), host.clone()];
    let mut ex = prepare(model(2, true), backends, config());
    let expected = logits(&mut ex);
    let calls = [n_executed(&device), n_executed(&host)];
    let first = [("input_ids", ids(&TOKENS[..2]))];
    let rest = [("input_ids", ids(&TOKENS[2..]))];
    for (faulty, calls) in [&device, &host].into_iter().zip(calls) {
        for fault in Fault::ALL_BUT_PANICS {
            for call in 1..=calls {
                ex.reset();
                ex.run(&first).unwrap();
                arm(faulty, call, fault);
                let failed = ex.run(&rest).is_err();
                assert_eq!(ex.default_session().pos(), if failed { 2 } else { TOKENS.len() });
                faulty.disarm();
                if failed {
                    let out = ex.run(&rest).unwrap();
                    let tail = floats(out.get("logits").unwrap());
                    assert_eq!(tail, expected[2 * toy::VOCAB..], "{fault:?} at {call}");
                }
            }
        }
    }
    // Stopped at every place where it can stop.
    for n in 0.. {
        ex.reset();
        ex.run(&first).unwrap();
        let options = RunOptions::default().with_cancel(CancelToken::after_checks(n));
        let done = ex.run_with(&rest, &options).is_ok();
        if !done {
            assert_eq!(ex.default_session().pos(), 2);
            ex.run(&rest).unwrap();
        }
        ex.default_session().truncate(0);
        assert_eq!(logits(&mut ex), expected);
        if done {
            assert!(n > 10);
            break;
        }
    }
}

#[test]
fn each_backend_holds_the_weights_that_it_uses() {
    // The table is looked up on one backend and multiplied with on another.
    let mut b = GraphBuilder::new("tied");
    let input = b.input("input_ids", ValueType::new(DType::I32, [Dim::T])).unwrap();
    let table = b.weight("table", ValueType::fixed(DType::F32, &[8, 4])).unwrap();
    let other = b.weight("other", ValueType::fixed(DType::F32, &[4, 4])).unwrap();
    let x = b.token_embed("embed", input, table).unwrap();
    let x = half(&mut b, "half", x);
    let x = b.matmul("mix", x, other, None).unwrap();
    let head = b.matmul("head", x, table, None).unwrap();
    b.output("logits", head).unwrap();
    let graph = b.finish().unwrap();
    let backends: Vec<Arc<dyn Backend>> = vec![toy("one", &["scale"], 1), toy("two", &["matmul"], 2)];
    let ex = prepare(graph, backends, config());
    let consts = |segment: &Segment| {
        let all = segment.values.iter().filter(|v| matches!(v.kind, ValueKind::Const(_)));
        all.map(|v| v.name.clone()).collect::<Vec<_>>()
    };
    let used: Vec<_> = ex.plan().regions.iter().map(|r| consts(&r.segment)).collect();
    assert_eq!(used, [vec!["table"], vec!["other", "table"]]);
    // On the host for lookups, in the second device's memory for the products.
    assert_eq!(ex.weight_bytes(), (8 * 4 + 4 * 4 + 8 * 4) * 4);
}
