//! Cuts a graph into pieces that run one after the other, where few values cross and all of those can be given to the
//! next piece as inputs.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use glia_core::{Dim, Op, Symbol, ValueType};

use crate::graph::{Graph, Node, NodeId, Output, Value, ValueSource, Vid};

/// A run of nodes as a graph of its own.
pub(super) struct Piece {
    /// Its nodes in the whole graph.
    pub nodes: Range<usize>,
    /// The graph; what earlier pieces made are inputs under their own names.
    pub graph: Graph,
    /// Its inputs, as values of the whole graph.
    pub inputs: Vec<Vid>,
    /// Its outputs, as values of the whole graph.
    pub outputs: Vec<Vid>,
}

/// Pieces of at least one node and, where the graph can be cut so, at most `most` nodes.
pub(super) fn pieces(graph: &Graph, most: usize) -> Vec<Piece> {
    let crossing = crossing(graph);
    let n = graph.nodes.len();
    let can_cut = |at: usize| crossing[at].iter().all(|&v| can_cross(&graph.value(v).ty));
    let mut pieces = Vec::new();
    let mut start = 0;
    while start < n {
        let within = start + 1..n.min(start.saturating_add(most)) + 1;
        // Of equally few crossing values the last, so that pieces are long.
        let best = within
            .filter(|&at| at == n || can_cut(at))
            .min_by_key(|&at| (crossing[at].len(), n - at));
        let end = best.or_else(|| (start + 1..n).find(|&at| can_cut(at))).unwrap_or(n);
        pieces.push(piece(graph, start..end, &crossing[end]));
        start = end;
    }
    pieces
}

/// For each place between two nodes, the values made before it and read behind it.
fn crossing(graph: &Graph) -> Vec<BTreeSet<Vid>> {
    let readers = graph.readers();
    let mut crossing = vec![BTreeSet::new(); graph.nodes.len() + 1];
    for (id, node) in graph.iter_nodes() {
        for &value in &node.outputs {
            if let Some(last) = readers[value.index()].last() {
                crossing[id.index() + 1..=last.index()].iter_mut().for_each(|at| {
                    at.insert(value);
                });
            }
        }
    }
    crossing
}

/// Sizes of an input must follow from the tokens alone.
fn can_cross(ty: &ValueType) -> bool {
    let known = [Dim::T, Dim::symbol(Symbol::S)];
    ty.dims
        .iter()
        .all(|dim| dim.as_fixed().is_some() || known.contains(dim))
}

fn piece(graph: &Graph, nodes: Range<usize>, crossing: &BTreeSet<Vid>) -> Piece {
    let mut piece = Piece {
        nodes: nodes.clone(),
        graph: Graph {
            name: graph.name.clone(),
            ..Graph::default()
        },
        inputs: Vec::new(),
        outputs: Vec::new(),
    };
    let mut ids: HashMap<Vid, Vid> = HashMap::new();
    // The caller's inputs say how many tokens there are, also to a piece that does not read them.
    for (v, _) in graph.inputs() {
        piece.value(graph, v, &mut ids);
    }
    for (at, node) in (0..).map(NodeId).zip(&graph.nodes[nodes]) {
        let inputs = node.inputs.iter().map(|&v| piece.value(graph, v, &mut ids)).collect();
        let mut outputs = Vec::with_capacity(node.outputs.len());
        for (output, &v) in node.outputs.iter().enumerate() {
            outputs.push(piece.push(graph, v, ValueSource::Node { node: at, output }, &mut ids));
            if is_returned(node) || crossing.contains(&v) || graph.is_output(v) {
                piece.outputs.push(v);
            }
        }
        piece.graph.nodes.push(Node {
            inputs,
            outputs,
            ..node.clone()
        });
    }
    let name = |v: &Vid| graph.value(*v).name.clone();
    piece.graph.outputs = piece
        .outputs
        .iter()
        .map(|v| Output {
            name: name(v),
            value: ids[v],
        })
        .collect();
    if piece.outputs.is_empty() {
        // Views and caches alone, whose values nobody reads: the last stands for them.
        let last = piece.graph.nodes.last().and_then(|n| n.outputs.first()).copied();
        piece.graph.outputs.extend(last.map(|value| Output {
            name: "unread".to_owned(),
            value,
        }));
    }
    piece
}

/// Views show what their source shows, and caches what goes into them.
fn is_returned(node: &Node) -> bool {
    !node.op.is_view() && node.op != Op::KvCache
}

impl Piece {
    /// The piece's number of a value that a node reads.
    fn value(&mut self, graph: &Graph, v: Vid, ids: &mut HashMap<Vid, Vid>) -> Vid {
        if let Some(&id) = ids.get(&v) {
            return id;
        }
        let source = match graph.value(v).source {
            ValueSource::Node { .. } | ValueSource::Input => {
                self.inputs.push(v);
                ValueSource::Input
            }
            other => other,
        };
        self.push(graph, v, source, ids)
    }

    fn push(&mut self, graph: &Graph, v: Vid, source: ValueSource, ids: &mut HashMap<Vid, Vid>) -> Vid {
        let id = Vid(self.graph.values.len() as u32);
        self.graph.values.push(Value {
            source,
            ..graph.value(v).clone()
        });
        ids.insert(v, id);
        id
    }
}
