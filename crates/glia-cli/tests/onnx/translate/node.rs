//! One node as the families see it: inputs that may be absent, attributes with defaults.

use std::collections::HashMap;

use super::{R, Reason, Stop, Val, broken, form};
use crate::array::Array;
use crate::proto;

/// A node and the values that it reads.
pub struct NodeCx<'a> {
    node: &'a proto::Node,
    inputs: Vec<Option<Val>>,
    /// Opset of the default domain.
    pub opset: i64,
}

impl<'a> NodeCx<'a> {
    pub fn new(node: &'a proto::Node, values: &HashMap<String, Val>, opset: i64) -> R<NodeCx<'a>> {
        let mut inputs = Vec::with_capacity(node.input.len());
        for name in &node.input {
            inputs.push(match (name.is_empty(), values.get(name)) {
                (true, _) => None,
                (false, Some(val)) => Some(val.clone()),
                // An input of a type without a tensor has stopped the translation before.
                (false, None) => return broken(format!("nothing gives `{name}`")),
            });
        }
        Ok(NodeCx { node, inputs, opset })
    }

    pub fn op(&self) -> &str {
        &self.node.op_type
    }

    pub fn domain(&self) -> &str {
        &self.node.domain
    }

    /// Whether any input's value depends on an input of the case. Shapes and types do not: they are fixed.
    pub fn is_derived(&self) -> bool {
        let n_read = match self.op() {
            "Shape" | "Size" => 0,
            "CastLike" => 1,
            _ => self.inputs.len(),
        };
        self.inputs.iter().take(n_read).flatten().any(|v| v.derived)
    }

    pub fn n_inputs(&self) -> usize {
        self.inputs.len()
    }

    /// Whether the node's output `i` is asked for.
    pub fn wants(&self, i: usize) -> bool {
        self.node.output.get(i).is_some_and(|name| !name.is_empty())
    }

    pub fn n_outputs(&self) -> usize {
        self.node.output.len()
    }

    pub fn input(&self, i: usize) -> R<&Val> {
        self.optional(i)
            .ok_or_else(|| Stop::Broken(format!("{}: input {i} is missing", self.op())))
    }

    pub fn optional(&self, i: usize) -> Option<&Val> {
        self.inputs.get(i)?.as_ref()
    }

    pub fn all(&self) -> R<Vec<&Val>> {
        (0..self.inputs.len()).map(|i| self.input(i)).collect()
    }

    /// The value of an input that becomes an attribute of ours.
    pub fn known(&self, i: usize) -> R<&Array> {
        match &self.input(i)?.host {
            Some(array) => Ok(array),
            None => form(format!("{}: input {i} is no constant", self.op())),
        }
    }

    pub fn attribute(&self, name: &str) -> Option<&proto::Attribute> {
        self.node.attribute.iter().find(|a| a.name == name)
    }

    pub fn int(&self, name: &str, default: i64) -> i64 {
        self.attribute(name).map_or(default, |a| a.i)
    }

    pub fn flag(&self, name: &str) -> bool {
        self.int(name, 0) != 0
    }

    pub fn float(&self, name: &str, default: f32) -> f32 {
        self.attribute(name).map_or(default, |a| a.f)
    }

    pub fn ints(&self, name: &str) -> Option<Vec<i64>> {
        self.attribute(name).map(|a| a.ints.clone())
    }

    pub fn text(&self, name: &str, default: &str) -> String {
        self.attribute(name)
            .map_or_else(|| default.to_owned(), |a| String::from_utf8_lossy(&a.s).into_owned())
    }

    /// A list that is an attribute in old opsets and an input in new ones; `None` when neither is given.
    pub fn list(&self, name: &str, input: usize) -> R<Option<Vec<i64>>> {
        if self.optional(input).is_some() {
            return Ok(Some(self.known(input)?.to_ints()));
        }
        Ok(self.ints(name))
    }

    /// A dimension of `rank`, negative from the end.
    pub fn axis(&self, axis: i64, rank: usize) -> R<usize> {
        let at = if axis < 0 { axis + rank as i64 } else { axis };
        match usize::try_from(at) {
            Ok(at) if at <= rank => Ok(at),
            _ => broken(format!("{}: axis {axis} of rank {rank}", self.op())),
        }
    }

    pub fn axes(&self, axes: &[i64], rank: usize) -> R<Vec<usize>> {
        axes.iter().map(|&a| self.axis(a, rank)).collect()
    }

    /// Stops: the values have a type that the op has no meaning for.
    pub fn wrong_type<T>(&self, val: &Val) -> R<T> {
        Err(Stop::NotCovered(Reason::Type(format!(
            "{} of {}",
            self.op(),
            val.elem.name()
        ))))
    }
}
