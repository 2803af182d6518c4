//! Passes over random small graphs: the result is well formed, has the same interface and the same values.

mod common;

use common::{build, recipes};
use glia_core::Dim;
use glia_ir::Graph;
use glia_ir::pass::{PIPELINE, fold_weights, optimize, select_rows};
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

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
}
