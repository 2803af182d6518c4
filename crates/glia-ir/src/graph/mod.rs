//! Graphs: named nodes over typed values, in the order in which they run. Built by [`GraphBuilder`], proved by
//! [`Graph::verify`], read and written as text and DOT. Knows nothing of backends or memory.

mod builder;
mod dot;
mod error;
mod text;
mod verify;
#[cfg(test)]
mod verify_tests;

pub use builder::GraphBuilder;
pub(crate) use builder::fresh_name;
pub use error::{GraphError, NameKind};

use glia_core::{DType, Dim, Op, ValueType};

glia_core::index_types! {
    /// Index into [`Graph::nodes`].
    NodeId, "n";
    /// Index into [`Graph::values`].
    Vid, "v";
}

/// Names of injected inputs: no input, weight or value of the caller's may have one of them.
pub const RESERVED_NAMES: [&str; 3] = ["pos", "positions", "wanted_rows"];

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValueSource {
    /// Given by the caller with each step, by the value's name.
    Input,
    /// Injected: position of every row, I32 `[T]`, named `positions`.
    Positions,
    /// Injected: position of the first new token, I32 `[1]`, named `pos`.
    Pos,
    /// Injected: rows whose outputs are wanted, I32 `[R]`, named `wanted_rows`.
    WantedRows,
    /// A weight, resolved by the value's name. Its dimensions are fixed.
    Weight,
    /// An output of a node.
    Node {
        /// The node.
        node: NodeId,
        /// Which of its outputs.
        output: usize,
    },
}

impl ValueSource {
    /// Name and type of an injected value; `None` for others.
    pub fn injected(self) -> Option<(&'static str, ValueType)> {
        let i32 = |dim: Dim| ValueType::new(DType::I32, [dim]);
        match self {
            ValueSource::Pos => Some(("pos", i32(Dim::fixed(1)))),
            ValueSource::Positions => Some(("positions", i32(Dim::T))),
            ValueSource::WantedRows => Some(("wanted_rows", i32(Dim::R))),
            ValueSource::Input | ValueSource::Weight | ValueSource::Node { .. } => None,
        }
    }
}

/// A typed value: an input, a weight or an output of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// Unique in the graph.
    pub name: String,
    /// Dtype and dimensions.
    pub ty: ValueType,
    /// Where it comes from.
    pub source: ValueSource,
}

/// An op applied to values.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Unique in the graph: `layers.0.attn.q`.
    pub name: String,
    /// What it computes.
    pub op: Op,
    /// Operands, in the order of the op's definition.
    pub inputs: Vec<Vid>,
    /// Results, in the order of the op's definition.
    pub outputs: Vec<Vid>,
}

/// A value that the graph returns, under a name of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Unique among the outputs: `logits`.
    pub name: String,
    /// The value.
    pub value: Vid,
}

/// A program as data. Nodes run in the order of `nodes`.
///
/// The fields are open, so a graph may be wrong in any way until [`Graph::verify`] has passed; the accessors that
/// index by id are for verified graphs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    /// What it is: `llama`.
    pub name: String,
    /// The schedule; [`NodeId`] is the index.
    pub nodes: Vec<Node>,
    /// All values; [`Vid`] is the index.
    pub values: Vec<Value>,
    /// What it returns.
    pub outputs: Vec<Output>,
}

impl Graph {
    /// The value.
    ///
    /// # Panics
    /// When the id is not of this graph; [`Graph::verify`] excludes that for ids found in the graph.
    pub fn value(&self, id: Vid) -> &Value {
        &self.values[id.index()]
    }

    /// The node.
    ///
    /// # Panics
    /// As [`Graph::value`].
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// The node that makes the value; `None` for inputs and weights.
    pub fn producer(&self, id: Vid) -> Option<NodeId> {
        match self.value(id).source {
            ValueSource::Node { node, .. } => Some(node),
            _ => None,
        }
    }

    /// The types of these values.
    pub fn types(&self, ids: &[Vid]) -> Vec<ValueType> {
        ids.iter().map(|&id| self.value(id).ty.clone()).collect()
    }

    /// All values with their ids.
    pub fn iter_values(&self) -> impl Iterator<Item = (Vid, &Value)> {
        (0..).map(Vid).zip(&self.values)
    }

    /// All nodes with their ids, in the order in which they run.
    pub fn iter_nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        (0..).map(NodeId).zip(&self.nodes)
    }

    /// What the caller gives with each step.
    pub fn inputs(&self) -> impl Iterator<Item = (Vid, &Value)> {
        self.iter_values().filter(|(_, v)| v.source == ValueSource::Input)
    }

    /// The weights.
    pub fn weights(&self) -> impl Iterator<Item = (Vid, &Value)> {
        self.iter_values().filter(|(_, v)| v.source == ValueSource::Weight)
    }

    /// The value with this name.
    pub fn find_value(&self, name: &str) -> Option<Vid> {
        self.iter_values().find(|(_, v)| v.name == name).map(|(id, _)| id)
    }

    /// For each value, the nodes that read it, rising; a node that reads it twice is listed once.
    pub fn readers(&self) -> Vec<Vec<NodeId>> {
        let mut readers = vec![Vec::new(); self.values.len()];
        for (id, node) in self.iter_nodes() {
            for input in &node.inputs {
                let of: &mut Vec<NodeId> = &mut readers[input.index()];
                if of.last() != Some(&id) {
                    of.push(id);
                }
            }
        }
        readers
    }

    /// Whether the graph returns the value.
    pub fn is_output(&self, id: Vid) -> bool {
        self.outputs.iter().any(|o| o.value == id)
    }
}
