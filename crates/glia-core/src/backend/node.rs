//! One node as the planner sees it, and the context that runs it.

use std::any::Any;
use std::sync::Arc;

use crate::{Op, Tensor, ValueType};

/// A node with what the planner knows of it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct NodeView<'a> {
    /// Name of the graph node.
    pub name: &'a str,
    /// What it computes.
    pub op: &'a Op,
    /// Types of its inputs.
    pub inputs: &'a [ValueType],
    /// Types of its outputs.
    pub outputs: &'a [ValueType],
    /// For each input, whether it is a weight.
    pub is_const: &'a [bool],
}

impl<'a> NodeView<'a> {
    /// A view of a node.
    pub fn new(
        name: &'a str,
        op: &'a Op,
        inputs: &'a [ValueType],
        outputs: &'a [ValueType],
        is_const: &'a [bool],
    ) -> NodeView<'a> {
        NodeView {
            name,
            op,
            inputs,
            outputs,
            is_const,
        }
    }
}

/// A weight in a backend's private form.
#[derive(Clone)]
pub struct Packed {
    /// What only its backend understands.
    pub data: Arc<dyn Any + Send + Sync>,
    /// Memory that it holds.
    pub size_bytes: usize,
}

/// Runs one node: level 1 of [`Backend`](crate::Backend).
#[non_exhaustive]
pub struct NodeCx<'a> {
    /// The node.
    pub node: NodeView<'a>,
    /// Its inputs. A packed input may be an empty placeholder of the right type.
    pub inputs: &'a [Tensor],
    /// For each input, its packed form.
    pub packed: &'a [Option<Packed>],
    /// To be filled with as many tensors as the op has outputs.
    pub outputs: &'a mut Vec<Tensor>,
}

impl<'a> NodeCx<'a> {
    /// A context whose outputs are still to come.
    pub fn new(
        node: NodeView<'a>,
        inputs: &'a [Tensor],
        packed: &'a [Option<Packed>],
        outputs: &'a mut Vec<Tensor>,
    ) -> NodeCx<'a> {
        NodeCx {
            node,
            inputs,
            packed,
            outputs,
        }
    }
}
