//! Chooses a backend for every node: the first in the list that runs it. Views and caches follow the values that they
//! touch, since the interpreter runs them for every backend, so that no border is crossed for their sake.

use std::sync::Arc;

use glia_core::{Backend, NodeView, Op, ValueType, interpreter_runs};

use super::PlanError;
use crate::graph::{Graph, Node, NodeId, ValueSource, Vid};

/// Who runs a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Assigned {
    /// Index into the list of backends.
    pub backend: usize,
    /// Whether the backend runs it itself.
    pub native: bool,
}

/// For each node, which backends run it themselves.
pub(super) struct Support {
    native: Vec<Vec<bool>>,
}

impl Support {
    pub fn of(graph: &Graph, backends: &[Arc<dyn Backend>]) -> Support {
        let ask = |node| {
            with_view(graph, node, |view| {
                backends.iter().map(|b| b.supports_node(view)).collect()
            })
        };
        Support {
            native: graph.nodes.iter().map(ask).collect(),
        }
    }

    /// For the same nodes in another order.
    pub fn reordered(&self, order: &[NodeId]) -> Support {
        Support {
            native: order.iter().map(|id| self.native[id.index()].clone()).collect(),
        }
    }

    /// Whether this backend runs the node itself.
    pub fn native(&self, node: NodeId, backend: usize) -> bool {
        self.native[node.index()][backend]
    }

    /// The first backend that runs the node itself.
    fn first(&self, node: NodeId) -> Option<usize> {
        self.native[node.index()].iter().position(|&yes| yes)
    }
}

pub(super) fn assign(
    graph: &Graph,
    backends: &[Arc<dyn Backend>],
    support: &Support,
) -> Result<Vec<Assigned>, PlanError> {
    let chosen = choose(graph, backends, support)?;
    let assigned = chosen.into_iter().zip(0..).map(|(backend, id)| Assigned {
        backend,
        native: support.native(NodeId(id), backend),
    });
    Ok(assigned.collect())
}

/// Whether a node goes where its values are rather than to the first backend that runs it.
fn follows(graph: &Graph, node: &Node, first: Option<usize>) -> bool {
    node.op.is_view() || node.op == Op::KvCache || picks_wanted(graph, node) || first.is_none()
}

/// Whether a node leaves but the wanted rows: before a border rather than behind it.
fn picks_wanted(graph: &Graph, node: &Node) -> bool {
    let is_wanted = |&v: &Vid| graph.value(v).source == ValueSource::WantedRows;
    matches!(node.op, Op::Gather { .. }) && node.inputs.get(1).is_some_and(is_wanted)
}

/// The backend of each node.
fn choose(graph: &Graph, backends: &[Arc<dyn Backend>], support: &Support) -> Result<Vec<usize>, PlanError> {
    let readers = graph.readers();
    // Where the values of each node are read first, found from the end.
    let mut read_on: Vec<Option<usize>> = vec![None; graph.nodes.len()];
    let mut chosen: Vec<Option<usize>> = vec![None; graph.nodes.len()];
    for (i, node) in graph.nodes.iter().enumerate().rev() {
        let id = NodeId(i as u32);
        let first = support.first(id);
        let mut all = node.outputs.iter().flat_map(|v| &readers[v.index()]);
        read_on[id.index()] = all.find_map(|r| chosen[r.index()].or(read_on[r.index()]));
        if !follows(graph, node, first) {
            chosen[id.index()] = first;
        }
    }
    let mut settled = Vec::with_capacity(graph.nodes.len());
    for (id, node) in graph.iter_nodes() {
        let first = support.first(id);
        if first.is_none() && !with_view(graph, node, interpreter_runs) {
            return Err(unsupported(graph, node, backends));
        }
        let backend = chosen[id.index()].unwrap_or_else(|| {
            let made_on = node
                .inputs
                .iter()
                .find_map(|&v| settled.get(graph.producer(v)?.index()).copied());
            let places = [made_on, read_on[id.index()], first];
            follow(graph, node, places, |b| support.native(id, b))
                .or(first)
                .unwrap_or(0)
        });
        settled.push(backend);
    }
    Ok(settled)
}

/// Where a follower goes, given where its values are made, where they are read, and the first that runs it; `None` is to the first backend that runs it.
fn follow(
    graph: &Graph,
    node: &Node,
    [made_on, read_on, first]: [Option<usize>; 3],
    is_native: impl Fn(usize) -> bool,
) -> Option<usize> {
    if node.op.is_view() {
        // Of two ends the one that makes the view itself, so that the other can still be compiled.
        let native = [made_on, read_on].into_iter().flatten().find(|&b| is_native(b));
        return native.or(made_on).or(read_on);
    }
    if picks_wanted(graph, node) {
        return made_on.filter(|&b| is_native(b) || first.is_none());
    }
    // The keys and values so far lie where attention reads them.
    read_on.or(made_on)
}

/// Shows a node the way backends see it.
pub(super) fn with_view<R>(graph: &Graph, node: &Node, look: impl FnOnce(&NodeView<'_>) -> R) -> R {
    let (inputs, outputs) = (graph.types(&node.inputs), graph.types(&node.outputs));
    let weight = |id: &Vid| graph.value(*id).source == ValueSource::Weight;
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
