//! Each way in which a graph can be wrong, and the message that says so.

use glia_core::{DType, Dim, Op, Unary, ValueType};

use super::{Graph, GraphBuilder, Node, NodeId, Output, Value, ValueSource, Vid};

/// A graph as text without its header, and what `verify` says.
fn check(body: &str, message: &str) {
    let graph: Graph = format!("graph g\n{body}").parse().unwrap();
    assert_eq!(graph.verify().unwrap_err().to_string(), message, "{body}");
}

#[test]
fn order_and_cycles() {
    check(
        "input %x f32[T]\n%b f32[T] = silu(%a)\n%a f32[T] = silu(%x)\noutput y = %b",
        "node `b` reads `a`, which node `a` makes later: put `a` before `b`",
    );
    check(
        "%a f32[T] = silu(%c)\n%b f32[T] = silu(%a)\n%c f32[T] = silu(%b)\noutput y = %c",
        "the graph has a cycle: a -> b -> c -> a",
    );
    check("%a f32[T] = silu(%a)\noutput y = %a", "the graph has a cycle: a -> a");
}

#[test]
fn names() {
    let node = "input %x f32[T]\nn: %a f32[T] = silu(%x)\nn: %b f32[T] = silu(%a)\noutput y = %b";
    check(node, "two nodes are named `n`: names must be unique");
    let output = "input %x f32[T]\noutput y = %x\noutput y = %x";
    check(output, "two outputs are named `y`: names must be unique");
    check(
        "input %pos i32[1]\noutput y = %pos",
        "the name `pos` is reserved for the input that the executor injects: choose another",
    );
    check("input %\"\" f32[T]\noutput y = %\"\"", "a value has an empty name");
}

#[test]
fn types() {
    check(
        "input %x f32[T]\n%a f32[T, 1] = silu(%x)\noutput y = %a",
        "node `a` (silu) declares `a` as f32[T, 1], but computes f32[T]",
    );
    check(
        "input %x f32[T]\n%a f32[T] = add(%x)\noutput y = %a",
        "node `a`: add takes 2 inputs, got 1",
    );
    check(
        "input %x f32[T, 4]\nn: %a f32[T, 4] = topk{k=4}(%x)\noutput y = %a",
        "node `n` (topk) has 1 outputs instead of 2",
    );
    check(
        "inject %pos i32[2]\noutput y = %pos",
        "the injected value `pos` has type i32[2] instead of i32[1]",
    );
    check(
        "weight %w f32[T]\noutput y = %w",
        "weight `w` has type f32[T]: dimensions of weights must be fixed",
    );
    check("input %x f32[T]", "graph `g` has no output: declare at least one");
}

#[test]
fn hostile_sizes() {
    check(
        "input %x f32[9223372036854775807, 4]\noutput y = %x",
        "value `x` has type f32[9223372036854775807, 4]: shape [9223372036854775807, 4] of f64 is too large to address",
    );
    check(
        "input %x f32[1, 1, 1, 1, 1, 1, 1, 1, 1]\noutput y = %x",
        "value `x` has type f32[1, 1, 1, 1, 1, 1, 1, 1, 1]: the rank exceeds 8",
    );
    check(
        "weight %w q4_0[2, 33]\noutput y = %w",
        "value `w` has type q4_0[2, 33]: rows of [2, 33] are no whole number of q4_0 blocks of 32 elements",
    );
    check(
        "input %x q4_0[2, T]\noutput y = %x",
        "value `x` has type q4_0[2, T]: rows of quantised values must have a fixed size",
    );
    check(
        "input %x f32[4294967295*T, 2]\n%a f32[4294967295*T, 2] = repeat{axis=0, n=2}(%x)\noutput y = %a",
        "node `a`: repeat: the repeated size overflows (inputs f32[4294967295*T, 2])",
    );
}

#[test]
fn state_rules() {
    check(
        "input %k f32[4, 2]\nc: %a f32[4, 2], %b f32[4, 2] = kv_cache(%k, %k)\noutput y = %a",
        "node `c` (kv_cache) carries state: input 0 must have a row per token of the step, [T, ..], not f32[4, 2]",
    );
    check(
        "input %k f32[T, S]\nc: %a f32[P+T, S], %b f32[P+T, S] = kv_cache(%k, %k)\noutput y = %a",
        "node `c` (kv_cache) carries state: rows of input 0 must have a fixed size, not f32[S]",
    );
}

#[test]
fn ids_of_hand_made_graphs() {
    let ty = ValueType::new(DType::F32, [Dim::T]);
    let value = |name: &str, source| Value {
        name: name.to_owned(),
        ty: ty.clone(),
        source,
    };
    let made = |node, output| ValueSource::Node {
        node: NodeId(node),
        output,
    };
    let graph = Graph {
        name: "g".into(),
        nodes: vec![Node {
            name: "n".into(),
            op: Op::Unary(Unary::Silu),
            inputs: vec![Vid(0)],
            outputs: vec![Vid(1)],
        }],
        values: vec![value("x", ValueSource::Input), value("n", made(0, 0))],
        outputs: vec![Output {
            name: "y".into(),
            value: Vid(1),
        }],
    };
    graph.verify().unwrap();
    let check = |damage: &dyn Fn(&mut Graph), message: &str| {
        let mut graph = graph.clone();
        damage(&mut graph);
        assert_eq!(graph.verify().unwrap_err().to_string(), message);
        let _ = (graph.to_string(), graph.to_dot());
    };
    check(
        &|g| g.nodes[0].inputs[0] = Vid(9),
        "node `n` refers to value 9, but the graph has 2 values",
    );
    check(
        &|g| g.outputs[0].value = Vid(u32::MAX),
        "output `y` refers to value 4294967295, but the graph has 2 values",
    );
    check(
        &|g| g.values[1].source = made(0, 7),
        "value `n` names node 0 output 7 as its source, which does not list it",
    );
    check(
        &|g| g.values[0].source = made(3, 0),
        "value `x` names node 3 output 0 as its source, which does not list it",
    );
    check(
        &|g| g.nodes[0].outputs = vec![Vid(1), Vid(0)],
        "node `n` lists `x` as output 1, but that value comes from elsewhere",
    );
}

#[test]
fn builder_refuses_at_once() {
    let mut b = GraphBuilder::new("g");
    let ty = ValueType::new(DType::F32, [Dim::T, Dim::fixed(4)]);
    let x = b.input("x", ty.clone()).unwrap();
    for name in super::RESERVED_NAMES {
        assert!(
            b.input(name, ty.clone()).unwrap_err().to_string().contains("reserved"),
            "{name}"
        );
    }
    assert!(b.input("x", ty).is_err());
    let w = b.weight("w", ValueType::fixed(DType::F32, &[2, 4])).unwrap();
    assert_eq!(b.weight("w", ValueType::fixed(DType::F32, &[2, 4])).unwrap(), w);
    assert_eq!(
        b.weight("w", ValueType::fixed(DType::F16, &[2, 4]))
            .unwrap_err()
            .to_string(),
        "weight `w` is asked for as f16[2, 4], but was declared as f32[2, 4]"
    );
    let error = b.scope("layers.0", |b| b.add("sum", x, w)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "node `layers.0.sum`: add: shapes do not broadcast (inputs f32[T, 4], f32[2, 4])"
    );
    // A node that failed leaves no trace.
    let y = b.scope("layers.0", |b| b.matmul("sum", x, w, None)).unwrap();
    assert_eq!(b.graph().value(y).name, "layers.0.sum");
    assert!(b.scope("layers.0", |b| b.matmul("sum", x, w, None)).is_err());
    // A node may share its name with an input; its value gets another.
    let z = b.matmul("x", x, w, None).unwrap();
    assert_eq!(b.graph().value(z).name, "x~2");
    assert!(b.output("y", Vid(99)).is_err());
    b.output("y", y).unwrap();
    b.finish().unwrap();
}
