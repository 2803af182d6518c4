//! Printed plans of small graphs, as snapshots: what planning does, and what people read.

mod toy;

use std::sync::Arc;

use glia_core::{Backend, BackendError, DType, Dim, MemoryHints, Op, Tensor, ValueType};
use glia_ir::{ExecConfig, Graph, GraphBuilder, Passes};
use toy::{Toy, model, prepare, toy};

fn plan(graph: Graph, backends: Vec<Arc<dyn Backend>>) -> String {
    let config = ExecConfig::default().with_max_step_tokens(8).with_max_context(32);
    prepare(graph, backends, config).plan().to_string()
}

#[test]
fn a_layer_of_attention() {
    insta::assert_snapshot!(plan(model(1, true), vec![toy()]));
}

#[test]
fn attention_on_a_second_device() {
    let device = Arc::new(Toy {
        name: "device",
        only: &["sdpa"],
        space: 1,
    });
    insta::assert_snapshot!(plan(model(1, true), vec![device, toy()]));
}

#[test]
fn slots_are_reused_and_views_live_as_long_as_their_source() {
    let mut b = GraphBuilder::new("chain");
    let x = b
        .input("x", ValueType::new(DType::F32, [Dim::T, Dim::fixed(4)]))
        .unwrap();
    let half = Op::Scale { factor: 0.5 };
    let a = b.node1("a", half.clone(), &[x]).unwrap();
    let view = b.node1("view", Op::Reshape { dims: vec![-1, 2] }, &[a]).unwrap();
    let c = b.node1("c", half.clone(), &[x]).unwrap();
    let d = b.node1("d", half.clone(), &[c]).unwrap();
    let e = b.node1("e", half.clone(), &[view]).unwrap();
    let g = b.node1("g", half, &[e]).unwrap();
    b.output("d", d).unwrap();
    b.output("g", g).unwrap();
    let graph = b.finish().unwrap();
    let config = ExecConfig::default()
        .with_max_step_tokens(8)
        .with_max_context(32)
        .with_passes(Passes::None);
    insta::assert_snapshot!(prepare(graph, vec![toy()], config).plan().to_string());
}

/// A toy that cannot hold more than so many bytes in one tensor.
struct Narrow(usize);

impl Backend for Narrow {
    fn name(&self) -> &str {
        "narrow"
    }
    fn supports(&self, op: &Op) -> bool {
        toy::Toy::default().supports(op)
    }
    fn execute(&self, op: &Op, inputs: &[&Tensor]) -> Result<Vec<Tensor>, BackendError> {
        let outputs = toy::Toy::default().execute(op, inputs)?;
        let needed_bytes = outputs.iter().map(Tensor::size_bytes).max().unwrap_or(0);
        if needed_bytes > self.0 {
            return Err(BackendError::OutOfMemory {
                what: op.to_string(),
                needed_bytes,
                limit_bytes: self.0,
            });
        }
        Ok(outputs)
    }
    fn memory_hints(&self) -> MemoryHints {
        let mut hints = MemoryHints::default();
        hints.max_alloc_bytes = self.0;
        hints
    }
}

#[test]
fn steps_have_as_few_rows_as_the_largest_tensor_asks() {
    let tokens: Vec<i32> = (0..23).map(|i| i % toy::VOCAB as i32).collect();
    let run = |graph: Graph, backend: Arc<dyn Backend>| {
        let config = ExecConfig::default().with_max_context(64).with_max_step_tokens(16);
        let mut executor = toy::prepare(graph, vec![backend], config);
        let rows = executor.plan().limits.max_step_tokens;
        (rows, executor.run(&[("input_ids", toy::ids(&tokens))]))
    };
    let (rows, whole) = run(toy::model(2, true), toy::toy());
    assert_eq!(rows, 16);
    let whole = toy::floats(whole.unwrap().get("logits").unwrap());
    for (limit, expected) in [(5 * 4 * toy::VOCAB + 3, 5), (4 * toy::VOCAB, 1), (1 << 20, 16)] {
        let (rows, cut) = run(toy::model(2, true), Arc::new(Narrow(limit)));
        assert_eq!(rows, expected);
        assert_eq!(toy::floats(cut.unwrap().get("logits").unwrap()), whole);
    }
    // One row is too much already: the backend says so.
    let (rows, refused) = run(toy::model(2, true), Arc::new(Narrow(4 * toy::VOCAB - 1)));
    assert_eq!(rows, 16);
    assert!(refused.unwrap_err().to_string().contains("out of memory"));
}
