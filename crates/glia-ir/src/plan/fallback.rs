//! Which nodes do not run on the first backend of the list, and why: nothing falls back in silence.

use std::fmt;
use std::sync::Arc;

use glia_core::{Backend, DType, NodeView, ValueType};

use super::Plan;
use super::assign::{Assigned, Support, with_view};
use crate::graph::{Graph, NodeId};

/// A node that a backend further down the list runs, or the interpreter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// The node.
    pub node: NodeId,
    /// Index of the backend whose region it is in.
    pub backend: usize,
    /// Whether that backend runs it itself; else the segment interpreter does, in main memory.
    pub native: bool,
    /// Why the first backend does not run it itself.
    pub reason: FallbackReason,
}

/// Why the first backend does not run a node itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FallbackReason {
    /// It does not have the op.
    Op,
    /// It has the op, but not on these dtypes.
    DTypes(Vec<DType>),
    /// It has the op, but not with these shapes or options.
    Form,
    /// It could, but the node goes where the values lie that it caches.
    Neighbours,
}

impl fmt::Display for FallbackReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FallbackReason::Op => f.write_str("does not have the op"),
            FallbackReason::DTypes(dtypes) => {
                let names: Vec<String> = dtypes.iter().map(ToString::to_string).collect();
                write!(f, "does not take {}", names.join(" with "))
            }
            FallbackReason::Form => f.write_str("does not take its shapes or options"),
            FallbackReason::Neighbours => f.write_str("leaves it where its values lie"),
        }
    }
}

/// Fallbacks of one op kind to one backend for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FallbackGroup {
    /// The kind of the op: `matmul`.
    pub op: &'static str,
    /// Index of the backend whose regions they are in.
    pub backend: usize,
    /// Whether that backend runs them itself, rather than the interpreter.
    pub native: bool,
    /// Why.
    pub reason: FallbackReason,
    /// The nodes, in the order in which they run.
    pub nodes: Vec<NodeId>,
}

pub(super) fn fallbacks(
    graph: &Graph,
    backends: &[Arc<dyn Backend>],
    assigned: &[Assigned],
    support: &Support,
) -> Vec<Fallback> {
    let Some(first) = backends.first() else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for ((node, data), to) in graph.iter_nodes().zip(assigned) {
        // A view costs nothing wherever it is made.
        if data.op.is_view() || (to.backend == 0 && to.native) {
            continue;
        }
        let reason = if support.native(node, 0) {
            FallbackReason::Neighbours
        } else {
            with_view(graph, data, |view| why(&**first, view))
        };
        all.push(Fallback {
            node,
            backend: to.backend,
            native: to.native,
            reason,
        });
    }
    all
}

/// Asks once more, with plain dtypes.
fn why(backend: &dyn Backend, view: &NodeView<'_>) -> FallbackReason {
    let inputs: Vec<ValueType> = view.inputs.iter().map(plain).collect();
    let outputs: Vec<ValueType> = view.outputs.iter().map(plain).collect();
    let asked = NodeView::new(view.name, view.op, &inputs, &outputs, view.is_const);
    if inputs != view.inputs && backend.supports_node(&asked) {
        let mut dtypes: Vec<DType> = Vec::new();
        for ty in view.inputs {
            if !dtypes.contains(&ty.dtype) {
                dtypes.push(ty.dtype);
            }
        }
        return FallbackReason::DTypes(dtypes);
    }
    if backend.supports(view.op) {
        return FallbackReason::Form;
    }
    FallbackReason::Op
}

fn plain(ty: &ValueType) -> ValueType {
    let mut ty = ty.clone();
    if !ty.dtype.is_int() {
        ty.dtype = DType::F32;
    }
    ty
}

impl Plan {
    /// The fallbacks by op kind, backend and reason, in the order of the first of each.
    pub fn fallback_groups(&self) -> Vec<FallbackGroup> {
        let mut groups: Vec<FallbackGroup> = Vec::new();
        for fallback in &self.fallbacks {
            let op = self.graph.node(fallback.node).op.kind();
            let same = |g: &&mut FallbackGroup| {
                (g.op, g.backend, g.native, &g.reason) == (op, fallback.backend, fallback.native, &fallback.reason)
            };
            match groups.iter_mut().find(same) {
                Some(group) => group.nodes.push(fallback.node),
                None => groups.push(FallbackGroup {
                    op,
                    backend: fallback.backend,
                    native: fallback.native,
                    reason: fallback.reason.clone(),
                    nodes: vec![fallback.node],
                }),
            }
        }
        groups
    }

    /// A line per group: `2 sdpa on cpu, since wgpu does not have the op: layers.0.sdpa, layers.1.sdpa`.
    pub fn fallback_lines(&self) -> Vec<String> {
        let first = self.backends.first().map_or("", String::as_str);
        let line = |group: FallbackGroup| {
            let on = if group.native {
                format!("on {}", self.backends[group.backend])
            } else {
                "by the interpreter".to_owned()
            };
            let name = |id: &NodeId| self.graph.node(*id).name.as_str();
            let names = match group.nodes.as_slice() {
                [first, _, .., last] => format!("{} ... {}", name(first), name(last)),
                few => few.iter().map(name).collect::<Vec<_>>().join(", "),
            };
            let (n, op, reason) = (group.nodes.len(), group.op, group.reason);
            format!("{n} {op} {on}, since {first} {reason}: {names}")
        };
        self.fallback_groups().into_iter().map(line).collect()
    }
}
