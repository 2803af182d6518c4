//! Chooses a backend for every node: the first in the list that runs it. Views and caches follow their neighbours,
//! since the interpreter runs them for every backend.

use std::sync::Arc;

use glia_core::{Backend, NodeView, Op, ValueType, interpreter_runs};

use super::PlanError;
use crate::graph::{Graph, Node, ValueSource};

/// Who runs a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Assigned {
    /// Index into the list of backends.
    pub backend: usize,
    /// Whether the backend runs it itself.
    pub native: bool,
}

pub(super) fn assign(graph: &Graph, backends: &[Arc<dyn Backend>]) -> Result<Vec<Assigned>, PlanError> {
    let readers = graph.readers();
    let mut assigned: Vec<Assigned> = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        let native = supporting(graph, node, backends);
        let first = native.iter().position(|&yes| yes);
        let before = assigned.last().map(|a| a.backend);
        let of_reader = || {
            let reader = node.outputs.iter().flat_map(|o| &readers[o.index()]).next();
            reader.and_then(|&r| supporting(graph, graph.node(r), backends).iter().position(|&yes| yes))
        };
        let follows = match node.op {
            Op::Reshape { .. } => before,
            // The keys and values so far should lie where attention reads them.
            Op::KvCache => of_reader(),
            _ => None,
        };
        let universal = with_view(graph, node, interpreter_runs);
        let backend = match (follows, first) {
            (Some(backend), _) | (None, Some(backend)) => backend,
            (None, None) if universal => of_reader().or(before).unwrap_or(0),
            (None, None) => return Err(unsupported(graph, node, backends)),
        };
        let native = native[backend];
        assigned.push(Assigned { backend, native });
    }
    Ok(assigned)
}

fn supporting(graph: &Graph, node: &Node, backends: &[Arc<dyn Backend>]) -> Vec<bool> {
    with_view(graph, node, |view| {
        backends.iter().map(|b| b.supports_node(view)).collect()
    })
}

/// Shows a node the way backends see it.
pub(super) fn with_view<R>(graph: &Graph, node: &Node, look: impl FnOnce(&NodeView<'_>) -> R) -> R {
    let (inputs, outputs) = (graph.types(&node.inputs), graph.types(&node.outputs));
    let weight = |id: &crate::graph::Vid| graph.value(*id).source == ValueSource::Weight;
    let is_const: Vec<bool> = node.inputs.iter().map(weight).collect();
    look(&NodeView::new(&node.name, &node.op, &inputs, &outputs, &is_const))
}

fn unsupported(graph: &Graph, node: &Node, backends: &[Arc<dyn Backend>]) -> PlanError {
    let inputs: Vec<ValueType> = graph.types(&node.inputs);
    PlanError::Unsupported {
        node: node.name.clone(),
        op: node.op.to_string(),
        inputs,
        backends: backends.iter().map(|b| b.name().to_owned()).collect(),
    }
}
