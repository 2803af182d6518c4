//! Side by side: the node at which two backends part is found and named.

mod toy;

use std::sync::Arc;

use glia_core::{Backend, BackendError, Op, Tensor};
use glia_ir::compare::{NodeDifference, Side, Task, compare};
use glia_ir::{ExecConfig, Graph};
use toy::{Toy, floats, ids, model, prepare, weights};

const TOY: Toy = Toy {
    name: "toy",
    only: &[],
    space: 0,
};

/// Computes one kind of op wrongly.
struct Planted {
    inner: Toy,
    kind: &'static str,
    factor: f32,
}

impl Backend for Planted {
    fn name(&self) -> &str {
        "planted"
    }
    fn supports(&self, op: &Op) -> bool {
        self.inner.supports(op)
    }
    fn execute(&self, op: &Op, inputs: &[&Tensor]) -> Result<Vec<Tensor>, BackendError> {
        let mut outputs = self.inner.execute(op, inputs)?;
        if op.kind() == self.kind {
            outputs[0].as_f32_mut()?.iter_mut().for_each(|v| *v *= self.factor);
        }
        Ok(outputs)
    }
}

fn side(backend: Arc<dyn Backend>) -> Side {
    Side {
        backends: vec![backend],
        config: ExecConfig::default().with_max_context(32),
    }
}

fn steps() -> Vec<Vec<(String, Tensor)>> {
    let step = |tokens: &[i32]| vec![("input_ids".to_owned(), ids(tokens))];
    vec![step(&[3, 1, 4, 1]), step(&[5]), step(&[9])]
}

fn compared(graph: &Graph, other: Arc<dyn Backend>, piece_by_piece: bool) -> (Vec<NodeDifference>, Vec<f32>) {
    let sides = [side(Arc::new(TOY)), side(other)];
    let (weights, steps) = (weights(graph), steps());
    let mut task = Task::new(graph, &weights, [&sides[0], &sides[1]], &steps);
    task.piece_by_piece = piece_by_piece;
    let mut logits = Vec::new();
    let mut done = Vec::new();
    let found = compare(
        &task,
        |name, [a, b]| {
            assert_eq!((name, a.shape()), ("logits", b.shape()));
            logits.extend(floats(a));
        },
        |n, of| done.push((n, of)),
    );
    assert!(done.len() > 1 && done.last().is_some_and(|(n, of)| n == of));
    (found.unwrap(), logits)
}

#[test]
fn equal_backends_do_not_part_and_give_the_outputs_of_a_run() {
    // Long enough for several pieces.
    let graph = model(6, true);
    let (found, logits) = compared(&graph, Arc::new(TOY), false);
    assert!(
        found
            .iter()
            .all(|d| d.difference.error() == 0.0 && d.input_error == 0.0)
    );
    let named: Vec<&str> = found.iter().map(|d| d.node.as_str()).collect();
    assert!(named.starts_with(&["embed", "layers.0.q"]) && named.ends_with(&["layers.5.residual", "lm_head"]));
    assert!(!named.iter().any(|n| n.ends_with("_heads") || n.ends_with("cache")));
    let mut whole = prepare(graph, vec![Arc::new(TOY)], ExecConfig::default().with_max_context(32));
    let out = whole.run(&[("input_ids", ids(&[3, 1, 4, 1, 5, 9]))]).unwrap();
    assert_eq!(logits, floats(out.get("logits").unwrap()));
}

#[test]
fn a_planted_fault_is_the_first_node_that_parts() {
    let graph = model(6, true);
    for kind in ["sdpa", "add", "matmul"] {
        let planted = Planted {
            inner: TOY,
            kind,
            factor: 1.01,
        };
        let (found, _) = compared(&graph, Arc::new(planted), false);
        let first = found.iter().find(|d| d.difference.error() > 1e-3).unwrap();
        assert_eq!(first.op.kind(), kind);
        assert_eq!(first.input_error, 0.0, "{}", first.node);
        assert!((first.difference.error() - 0.01).abs() < 1e-4, "{:?}", first.difference);
        assert_eq!(first.backends, ["toy", "planted"]);
        assert!(first.node.starts_with("layers.0."));
    }
}

#[test]
fn piece_by_piece_errors_do_not_add_up() {
    let graph = model(12, true);
    let planted = || {
        Arc::new(Planted {
            inner: TOY,
            kind: "add",
            factor: 1.01,
        })
    };
    let last = |piece_by_piece| {
        let (found, _) = compared(&graph, planted(), piece_by_piece);
        found
            .iter()
            .rev()
            .find(|d| d.op.kind() == "add")
            .unwrap()
            .difference
            .error()
    };
    let (alone, whole) = (last(true), last(false));
    assert!(alone < 0.05 && whole > 0.1, "{alone} {whole}");
}

#[test]
fn values_that_are_not_finite_part() {
    let graph = model(1, true);
    let planted = Planted {
        inner: TOY,
        kind: "sdpa",
        factor: f32::NAN,
    };
    let (found, _) = compared(&graph, Arc::new(planted), false);
    let first = found.iter().find(|d| d.difference.error() > 0.0).unwrap();
    assert_eq!(
        (first.node.as_str(), first.difference.error()),
        ("layers.0.sdpa", f64::INFINITY)
    );
}
