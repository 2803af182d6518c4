//! Printed plans of small graphs, as snapshots: what planning does, and what people read.

mod toy;

use std::sync::Arc;

use glia_core::{Backend, DType, Dim, Op, ValueType};
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
