//! Random small graphs on the compiled backend: values as the oracle has them, and the same bits for any number of
//! threads, beside another sequence, in small steps where the graph allows, and after a cancelled run.

#[path = "../../glia-ir/tests/common/mod.rs"]
mod common;
mod tiny;

use std::collections::HashMap;
use std::sync::Arc;

use common::{build, recipes};
use glia_core::reference::ReferenceBackend;
use glia_core::{Backend, BackendError, CancelToken, DType, Precision, Tensor};
use glia_ir::{ExecConfig, ExecError, Graph, GraphExecutor, NonFinite, Outputs, Passes, PlanError, RunOptions};
use proptest::prelude::*;

fn executor(graph: &Graph, backend: Arc<dyn Backend>, config: ExecConfig) -> Result<GraphExecutor, ExecError> {
    let mut weights = HashMap::new();
    for (i, (_, value)) in graph.weights().enumerate() {
        let shape = value.ty.as_fixed().unwrap();
        let values = tiny::noise(shape.n_elems(), i as u32 + 3);
        weights.insert(value.name.clone(), Tensor::from_f32(shape, &values).unwrap());
    }
    let config = config
        .with_precision(Precision::Exact)
        .with_non_finite(NonFinite::Allow);
    GraphExecutor::prepare(graph.clone(), weights, vec![backend], config)
}

/// Rows `range` of an endless sequence, as the graph's inputs.
fn inputs(graph: &Graph, seed: u32, range: std::ops::Range<usize>) -> Vec<(&str, Tensor)> {
    let of = |(_, value): (_, &glia_ir::Value)| -> Tensor {
        let n = range.len();
        if value.ty.dtype == DType::I32 {
            let ids: Vec<i32> = range.clone().map(|i| (i * 5 % 8) as i32).collect();
            return Tensor::from_i32([n], &ids).unwrap();
        }
        let salt = if value.name == "x" { 11 } else { 12 };
        let row = |i: usize| tiny::noise(4, seed * 1000 + salt * 100 + i as u32);
        let values: Vec<f32> = range.clone().flat_map(row).collect();
        Tensor::from_f32([n, 4], &values).unwrap()
    };
    let names = graph.inputs().map(|(_, v)| v.name.as_str());
    names.zip(graph.inputs().map(of)).collect()
}

fn all_bits(outputs: &Outputs) -> Vec<(String, Vec<usize>, Vec<u8>)> {
    outputs
        .iter()
        .map(|(name, t)| (name.to_owned(), t.shape().to_vec(), t.bytes().unwrap().to_vec()))
        .collect()
}

/// The difference of two outputs, relative to their size. Values that overflow say nothing.
fn check_close(graph: &Graph, got: &Outputs, expected: &Outputs) {
    for ((name, a), (_, b)) in got.iter().zip(expected.iter()) {
        assert_eq!((a.dtype(), a.shape()), (b.dtype(), b.shape()), "{name}\n{graph}");
        let (a, b) = (a.as_f32().unwrap(), b.as_f32().unwrap());
        let size = b.iter().fold(1f32, |m, v| m.max(v.abs()));
        if !(size < 1e6) || b.iter().any(|v| !v.is_finite()) {
            continue;
        }
        for (x, y) in a.iter().zip(b) {
            assert!((x - y).abs() <= 2e-3 * size, "{name}: {x} instead of {y}\n{graph}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 160, ..ProptestConfig::default() })]

    #[test]
    fn any_graph(recipe in recipes(24), passes in any::<bool>(), n in 1usize..9, more in 1usize..5) {
        let graph = build(&recipe);
        let passes = if passes { Passes::All } else { Passes::None };
        let config = || ExecConfig::default().with_passes(passes);
        let oracle = ExecConfig::default().with_passes(Passes::None).with_max_intermediate_bytes(1 << 26);
        let oracle = match executor(&graph, Arc::new(ReferenceBackend), oracle) {
            // Repeats of repeats.
            Err(ExecError::IntermediateMemory { .. } | ExecError::Plan(PlanError::TooLarge { .. })) => return Ok(()),
            other => other.unwrap(),
        };
        let one = executor(&graph, tiny::backend(1, None), config()).unwrap();
        let many = executor(&graph, tiny::backend(3, None), config()).unwrap();
        let (first, second) = (inputs(&graph, 1, 0..n), inputs(&graph, 1, n..n + more));

        let mut plain = one.session().unwrap();
        let mut expected = oracle.session().unwrap();
        let mut bits = Vec::new();
        for given in [&first, &second] {
            // A step may be too short for a slice: then nobody runs it, but a pass may have dropped an unread slice.
            match (plain.run(given), expected.run(given)) {
                (Ok(outputs), Ok(expected)) => {
                    check_close(&graph, &outputs, &expected);
                    bits.push(all_bits(&outputs));
                }
                (Err(e), Err(_)) => {
                    prop_assert!(!matches!(e.backend(), Some(BackendError::Panicked { .. })), "{e}\n{graph}");
                    return Ok(());
                }
                (Ok(_), Err(_)) if passes == Passes::All => return Ok(()),
                (got, expected) => panic!("{:?} instead of {:?}\n{graph}", got.err(), expected.err()),
            }
        }

        // Other threads; cancelled once; beside another sequence, whichever comes first.
        let (mut a, mut b) = (many.session().unwrap(), many.session().unwrap());
        let cancel = RunOptions::default().with_cancel(CancelToken::after_checks(recipe.len() / 2));
        if a.run_with(&first, &cancel).is_err() {
            prop_assert_eq!(a.pos(), 0);
            prop_assert_eq!(&all_bits(&a.run(&first).unwrap()), &bits[0]);
        } else {
            a.reset();
            prop_assert_eq!(&all_bits(&a.run(&first).unwrap()), &bits[0]);
        }
        let other = inputs(&graph, 2, 0..more + 1);
        let together = many.run_batch(&mut [(&mut b, &other), (&mut a, &second)]).unwrap();
        prop_assert_eq!(&all_bits(&together[1]), &bits[1], "beside another\n{}", graph);
        let mut alone = one.session().unwrap();
        prop_assert_eq!(all_bits(&together[0]), all_bits(&alone.run(&other).unwrap()), "beside another\n{}", graph);

        // Small steps, where the graph is causal.
        let steps = executor(&graph, tiny::backend(2, None), config().with_max_step_tokens(3)).unwrap();
        match steps.session().unwrap().run(&first) {
            Ok(outputs) => prop_assert_eq!(&all_bits(&outputs), &bits[0], "steps of 3\n{}", graph),
            Err(e) => prop_assert!(n > 3 && matches!(e, ExecError::TooManyRows { .. }), "{}", e),
        }
    }
}

/// Sizes that only the step knows may not suit an op: the answer is the oracle's, or an error from both, and never a
/// panic or values from beside the operand.
#[test]
fn steps_that_do_not_suit_an_op() {
    let graphs = [
        "input %x f32[T, 4]\n%y f32[3, 4] = slice{axis=0, start=0, end=3}(%x)",
        "input %x f32[T, 4]\n%y f32[T-2, 4] = slice{axis=0, start=2}(%x)",
        "input %x f32[T, 4]\n%g f32[T, T] = matmul(%x, %x)\n%y f32[T, 2] = slice{axis=1, start=1, end=3}(%g)",
        "input %x f32[T, 4]\n%g f32[T, T] = matmul(%x, %x)\n%y f32[T, T-1] = slice{axis=1, start=1}(%g)",
        "input %x f32[T, 4]\n%g f32[T, T] = matmul(%x, %x)\nn: %y f32[T, 3], %i i32[T, 3] = topk{k=3}(%g)",
        "input %x f32[T, 4]\nweight %w f32[2, 2, 2]\n%q f32[T, 2, 2] = reshape{dims=[-1, 2, 2]}(%x)\n\
         %y f32[T, 2, 2] = sdpa{scale=0.5, causal=true}(%q, %w, %w)",
        "input %x f32[S, 4]\n%y f32[4] = mean{axis=0}(%x)",
        "input %x f32[S, 4]\n%y f32[1, 4] = sum{axis=0, keep=true}(%x)",
        "input %x f32[S, 4]\n%i i32[4] = argmax{axis=0}(%x)\n%y f32[4] = cast{to=f32}(%i)",
        "input %x f32[S, 4]\n%y f32[S, 4] = softmax{axis=0}(%x)",
        "input %x f32[S, 4]\ninput %ids i32[T]\n%y f32[T, 4] = gather{axis=0}(%x, %ids)",
    ];
    for text in graphs {
        let graph: Graph = match format!("graph g\n{text}\noutput y = %y\n").parse() {
            Ok(graph) => graph,
            Err(e) => panic!("{e}\n{text}"),
        };
        for passes in [Passes::All, Passes::None] {
            let config = || ExecConfig::default().with_passes(passes);
            let oracle = executor(&graph, Arc::new(ReferenceBackend), config()).unwrap();
            let cpu = executor(&graph, tiny::backend(2, None), config()).unwrap();
            for n in 0..5 {
                let mut given = inputs(&graph, 1, 0..n);
                for (name, tensor) in &mut given {
                    if *name == "ids" {
                        *tensor = tiny::ids(&[0, 2]);
                    }
                }
                let expected = oracle.session().unwrap().run(&given);
                let mut session = cpu.session().unwrap();
                match (session.run(&given), expected) {
                    (Ok(got), Ok(expected)) => check_close(&graph, &got, &expected),
                    (Err(e), Err(_)) => {
                        assert!(
                            !matches!(e.backend(), Some(BackendError::Panicked { .. })),
                            "{n} rows: {e}\n{graph}"
                        );
                        assert_eq!(session.pos(), 0);
                    }
                    (got, expected) => panic!("{n} rows: {:?} instead of {:?}\n{graph}", got.err(), expected.err()),
                }
            }
        }
    }
}
