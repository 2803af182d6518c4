//! Passes over random small graphs: the result is well formed, has the same interface and the same values.

mod common;

use std::collections::HashMap;

use common::eval::{Array, evaluate};
use common::{build, recipes};
use glia_core::{Dim, NodeView, Sizes};
use glia_ir::Graph;
use glia_ir::pass::{PIPELINE, decompose_unsupported, fold_weights, fuse_sdpa, optimize, select_rows};
use proptest::prelude::*;

/// Names and types of inputs and outputs, after row selection.
fn interface(graph: &Graph, wanted: bool) -> Vec<String> {
    let inputs = graph.inputs().map(|(_, v)| format!("{} {}", v.name, v.ty));
    let outputs = graph.outputs.iter().map(|o| {
        let mut ty = graph.value(o.value).ty.clone();
        if wanted && ty.dims.first() == Some(&Dim::T) {
            ty.dims[0] = Dim::R;
        }
        format!("{} {ty}", o.name)
    });
    inputs.chain(outputs).collect()
}

const SIZES: Sizes = Sizes {
    t: 4,
    p: 0,
    r: 2,
    n: 1,
    s: 0,
};
const WANTED: [usize; 2] = [1, 3];

/// Values for inputs, weights and injected values, from a seed.
fn given(graph: &Graph, seed: u64) -> HashMap<String, Array> {
    let mut state = seed | 1;
    let mut random = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / f64::from(1 << 24) * 2.0 - 1.0
    };
    let mut given = HashMap::from([
        ("positions".to_owned(), Array::new(&[4], vec![0.0, 1.0, 2.0, 3.0])),
        (
            "wanted_rows".to_owned(),
            Array::new(&[2], WANTED.map(|w| w as f64).to_vec()),
        ),
        ("ids".to_owned(), Array::new(&[4], vec![3.0, 0.0, 2.0, 3.0])),
    ]);
    for (_, value) in graph.inputs().chain(graph.weights()) {
        let shape = value.ty.shape(&SIZES).expect("small");
        let data = (0..shape.n_elems()).map(|_| random()).collect();
        given
            .entry(value.name.clone())
            .or_insert_with(|| Array::new(shape.dims(), data));
    }
    given
}

/// The rows of an output that `wanted_rows` asks for, when it has a row per token.
fn wanted(graph: &Graph, output: usize, all: &Array) -> Array {
    if graph.value(graph.outputs[output].value).ty.dims.first() != Some(&Dim::T) {
        return all.clone();
    }
    let row = all.data.len() / all.shape[0];
    let data = WANTED
        .iter()
        .flat_map(|&w| &all.data[w * row..(w + 1) * row])
        .copied()
        .collect();
    let mut shape = all.shape.clone();
    shape[0] = WANTED.len();
    Array::new(&shape, data)
}

fn close(a: &Array, b: &Array) -> bool {
    // Fusions reorder roundings of f64; damage to the meaning is far larger. Both may overflow alike.
    let near = |x: f64, y: f64| (x - y).abs() <= 1e-9 * (1.0 + x.abs()) || x == y || (!x.is_finite() && !y.is_finite());
    a.shape == b.shape && a.data.iter().zip(&b.data).all(|(&x, &y)| near(x, y))
}

#[test]
fn fused_attention_computes_the_same() {
    let graph: Graph = "graph attention
        input %q f32[T, 4, 8]
        input %k f32[T, 2, 8]
        input %v f32[T, 2, 6]
        input %mask f32[T, T]
        %k4 f32[T, 4, 8] = repeat{axis=1, n=2}(%k)
        %v4 f32[T, 4, 6] = repeat{axis=1, n=2}(%v)
        %qh f32[4, T, 8] = transpose{a=0, b=1}(%q)
        %kh f32[4, T, 8] = permute{perm=[1, 0, 2]}(%k4)
        %vh f32[4, 6, T] = permute{perm=[1, 2, 0]}(%v4)
        %qk f32[4, T, T] = matmul(%qh, %kh)
        %scaled f32[4, T, T] = scale{factor=0.25}(%qk)
        %masked f32[4, T, T] = add(%mask, %scaled)
        %weights f32[4, T, T] = softmax{axis=2}(%masked)
        %heads f32[4, T, 6] = matmul(%weights, %vh)
        %attn f32[T, 4, 6] = permute{perm=[1, 0, 2]}(%heads)
        output y = %attn"
        .parse()
        .unwrap();
    let fused = fuse_sdpa(&graph).unwrap();
    assert_eq!(fused.nodes.len(), 1, "{fused}");
    let given = given(&graph, 7);
    assert!(close(&evaluate(&graph, &given)[0], &evaluate(&fused, &given)[0]));
}

/// Attributes of ops are f32, so constants inside definitions are too.
fn definition_close(a: &Array, b: &Array) -> bool {
    let scale = a
        .data
        .iter()
        .fold(1.0f64, |m, x| if x.is_finite() { m.max(x.abs()) } else { m });
    let near = |x: f64, y: f64| (x - y).abs() <= 1e-5 * scale || x == y || (!x.is_finite() && !y.is_finite());
    a.shape == b.shape && a.data.iter().zip(&b.data).all(|(&x, &y)| near(x, y))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_graphs_print_and_parse(recipe in recipes(30)) {
        let graph = build(&recipe);
        let text = graph.to_string();
        let read: Graph = text.parse().unwrap();
        read.verify().unwrap();
        prop_assert_eq!(read.to_string(), text);
    }

    #[test]
    fn every_pass_keeps_graphs_sound_and_has_nothing_left_to_do(recipe in recipes(30)) {
        let graph = build(&recipe);
        for pass in PIPELINE {
            let once = (pass.run)(&graph).unwrap();
            once.verify().unwrap();
            let wanted = pass.name == "select_rows";
            prop_assert_eq!(interface(&graph, wanted), interface(&once, false), "{}", pass.name);
            let twice = (pass.run)(&once).unwrap();
            prop_assert_eq!(once.to_string(), twice.to_string(), "{}", pass.name);
        }
        let optimized = optimize(&graph).unwrap();
        prop_assert_eq!(interface(&graph, true), interface(&optimized, false));
        prop_assert!(optimized.nodes.len() <= select_rows(&graph).unwrap().nodes.len());
        let folded = fold_weights(&graph, None).unwrap();
        folded.graph.verify().unwrap();
        prop_assert_eq!(interface(&graph, false), interface(&folded.graph, false));
    }

    #[test]
    fn passes_change_no_value(recipe in recipes(25), seed in any::<u64>()) {
        let graph = build(&recipe);
        let given = given(&graph, seed);
        let before = evaluate(&graph, &given);
        let expected: Vec<Array> = before.iter().enumerate().map(|(i, a)| wanted(&graph, i, a)).collect();
        for pass in PIPELINE {
            let after = evaluate(&(pass.run)(&graph).unwrap(), &given);
            let expected = if pass.name == "select_rows" { &expected } else { &before };
            for (a, b) in expected.iter().zip(&after) {
                prop_assert!(close(a, b), "{}: {a:?} became {b:?} in\n{graph}", pass.name);
            }
        }
        let optimized = optimize(&graph).unwrap();
        for (a, b) in expected.iter().zip(&evaluate(&optimized, &given)) {
            prop_assert!(close(a, b), "{a:?} became {b:?} from\n{graph}to\n{optimized}");
        }
    }

    #[test]
    fn definitions_compute_the_same(recipe in recipes(25), seed in any::<u64>(), refused in any::<u64>()) {
        let graph = build(&recipe);
        let given = given(&graph, seed);
        let simple = ["add", "mul", "div", "scale", "matmul", "sigmoid", "layer_norm", "topk", "sum", "exp"];
        let supports = |node: &NodeView<'_>| {
            let kind = node.op.kind();
            let bit = kind.bytes().fold(7u64, |h, b| h.wrapping_mul(31).wrapping_add(u64::from(b))) % 64;
            simple.contains(&kind) || refused >> bit & 1 == 0
        };
        let plain = decompose_unsupported(&graph, &supports).unwrap();
        plain.verify().unwrap();
        prop_assert_eq!(interface(&graph, false), interface(&plain, false));
        for (a, b) in evaluate(&graph, &given).iter().zip(&evaluate(&plain, &given)) {
            prop_assert!(definition_close(a, b), "{a:?} became {b:?} from\n{graph}to\n{plain}");
        }
    }
}
