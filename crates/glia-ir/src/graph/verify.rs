//! Proves that a graph is well formed: names, ids, order, arity, types, state rules. Linear in its size.

use std::collections::HashSet;

use glia_core::{DType, Dim, MAX_RANK, Shape, ValueType, tensor_bytes};

use super::{Graph, GraphError, NameKind, Node, NodeId, RESERVED_NAMES, ValueSource, Vid};

impl Graph {
    /// Whether nodes run in a possible order on operands that their ops take, and every id and name is right.
    ///
    /// Holds afterwards: names of nodes, values and outputs are unique; every id is in range; each value is read
    /// after it is made; declared types are the inferred ones; weights have fixed dimensions; rows of a state are
    /// fixed and one per token of the step.
    ///
    /// # Errors
    /// The first fault found, naming the node or value.
    pub fn verify(&self) -> Result<(), GraphError> {
        self.check_names()?;
        self.check_values()?;
        for (id, node) in self.iter_nodes() {
            self.check_links(id, node)?;
        }
        for (id, node) in self.iter_nodes() {
            self.check_order(id, node)?;
        }
        for node in &self.nodes {
            self.check_types(node)?;
            check_state(node, &self.types(&node.inputs))?;
        }
        if self.outputs.is_empty() {
            return Err(GraphError::NoOutputs {
                graph: self.name.clone(),
            });
        }
        for output in &self.outputs {
            self.known(output.value, || format!("output `{}`", output.name))?;
        }
        Ok(())
    }

    fn check_names(&self) -> Result<(), GraphError> {
        for (what, len) in [("nodes", self.nodes.len()), ("values", self.values.len())] {
            if u32::try_from(len).is_err() {
                return Err(GraphError::TooMany { what, max: u32::MAX });
            }
        }
        unique(NameKind::Node, self.nodes.iter().map(|n| n.name.as_str()))?;
        unique(NameKind::Value, self.values.iter().map(|v| v.name.as_str()))?;
        unique(NameKind::Output, self.outputs.iter().map(|o| o.name.as_str()))
    }

    fn check_values(&self) -> Result<(), GraphError> {
        for (id, value) in self.iter_values() {
            check_type(&value.name, &value.ty)?;
            if let Some((name, expected)) = value.source.injected() {
                if value.name != name || value.ty != expected {
                    return Err(GraphError::BadInjected {
                        name: value.name.clone(),
                        ty: value.ty.clone(),
                        expected,
                    });
                }
                continue;
            }
            if RESERVED_NAMES.contains(&value.name.as_str()) {
                return Err(GraphError::ReservedName {
                    name: value.name.clone(),
                });
            }
            match value.source {
                ValueSource::Weight if value.ty.as_fixed().is_none() => {
                    return Err(GraphError::WeightNotFixed {
                        name: value.name.clone(),
                        ty: value.ty.clone(),
                    });
                }
                ValueSource::Node { node, output } => {
                    let listed = self.nodes.get(node.index()).and_then(|n| n.outputs.get(output));
                    if listed != Some(&id) {
                        return Err(GraphError::BadSource {
                            value: value.name.clone(),
                            node: node.0,
                            output,
                        });
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn known(&self, id: Vid, by: impl FnOnce() -> String) -> Result<(), GraphError> {
        if id.index() < self.values.len() {
            return Ok(());
        }
        Err(GraphError::UnknownValue {
            by: by(),
            id: id.0,
            n_values: self.values.len(),
        })
    }

    fn check_links(&self, id: NodeId, node: &Node) -> Result<(), GraphError> {
        for &value in node.inputs.iter().chain(&node.outputs) {
            self.known(value, || format!("node `{}`", node.name))?;
        }
        for (output, &value) in node.outputs.iter().enumerate() {
            if self.value(value).source != (ValueSource::Node { node: id, output }) {
                return Err(GraphError::NotItsOutput {
                    node: node.name.clone(),
                    value: self.value(value).name.clone(),
                    output,
                });
            }
        }
        Ok(())
    }

    fn check_order(&self, id: NodeId, node: &Node) -> Result<(), GraphError> {
        for &input in &node.inputs {
            let Some(producer) = self.producer(input).filter(|&p| p >= id) else {
                continue;
            };
            if let Some(nodes) = self.path(id, producer) {
                return Err(GraphError::Cycle { nodes });
            }
            return Err(GraphError::UseBeforeDefinition {
                node: node.name.clone(),
                value: self.value(input).name.clone(),
                producer: self.node(producer).name.clone(),
            });
        }
        Ok(())
    }

    /// Names along the way from `from` to `to` and, as `to` feeds `from`, back: a cycle. `None` without such a way.
    fn path(&self, from: NodeId, to: NodeId) -> Option<Vec<String>> {
        // Walks up from `to`; `next[n]` is the node below `n` on the way.
        let mut next: Vec<Option<NodeId>> = vec![None; self.nodes.len()];
        let mut seen = vec![false; self.nodes.len()];
        let mut stack = vec![to];
        seen[to.index()] = true;
        while let Some(at) = stack.pop() {
            if at == from {
                let mut names = vec![self.node(from).name.clone()];
                let mut at = from;
                while let Some(below) = next[at.index()] {
                    names.push(self.node(below).name.clone());
                    at = below;
                }
                names.push(self.node(from).name.clone());
                return Some(names);
            }
            for producer in self.node(at).inputs.iter().filter_map(|&v| self.producer(v)) {
                if !std::mem::replace(&mut seen[producer.index()], true) {
                    next[producer.index()] = Some(at);
                    stack.push(producer);
                }
            }
        }
        None
    }

    fn check_types(&self, node: &Node) -> Result<(), GraphError> {
        let inferred = node
            .op
            .infer(&self.types(&node.inputs))
            .map_err(|e| GraphError::infer(&node.name, e))?;
        if inferred.len() != node.outputs.len() {
            return Err(GraphError::WrongOutputs {
                node: node.name.clone(),
                op: node.op.kind().to_owned(),
                expected: inferred.len(),
                got: node.outputs.len(),
            });
        }
        for (inferred, &output) in inferred.into_iter().zip(&node.outputs) {
            let value = self.value(output);
            if inferred != value.ty {
                return Err(GraphError::TypeMismatch {
                    node: node.name.clone(),
                    op: node.op.kind().to_owned(),
                    value: value.name.clone(),
                    declared: Box::new(value.ty.clone()),
                    inferred: Box::new(inferred),
                });
            }
        }
        Ok(())
    }
}

fn unique<'a>(kind: NameKind, names: impl Iterator<Item = &'a str>) -> Result<(), GraphError> {
    let mut seen = HashSet::new();
    for name in names {
        if name.is_empty() {
            return Err(GraphError::EmptyName { kind });
        }
        if !seen.insert(name) {
            return Err(GraphError::duplicate(kind, name));
        }
    }
    Ok(())
}

/// Rank, addressable size, and whole blocks of quantised rows, as far as the type says before a step.
pub(super) fn check_type(name: &str, ty: &ValueType) -> Result<(), GraphError> {
    let bad = |reason: String| GraphError::BadType {
        value: name.to_owned(),
        ty: ty.clone(),
        reason,
    };
    if ty.rank() > MAX_RANK {
        return Err(bad(format!("the rank exceeds {MAX_RANK}")));
    }
    // A step-dependent dimension counts as 1 here: the step checks it again with its real size.
    let mut least = Vec::with_capacity(ty.rank());
    for (i, dim) in ty.dims.iter().enumerate() {
        let constant = *dim != Dim::fixed(0) && is_constant(dim);
        let size = dim.as_fixed();
        if constant && size.is_none() {
            return Err(bad(format!("dimension {i} is negative or too large")));
        }
        if ty.dtype.is_quantized() && i + 1 == ty.rank() && size.is_none() {
            return Err(bad("rows of quantised values must have a fixed size".to_owned()));
        }
        least.push(size.unwrap_or(1));
    }
    let shape = Shape::try_new(&least).ok_or_else(|| bad(format!("the rank exceeds {MAX_RANK}")))?;
    // Ops compute in up to eight bytes per element, so that size must be addressable too.
    tensor_bytes(DType::F64, &shape)
        .and_then(|_| tensor_bytes(ty.dtype, &shape))
        .map(|_| ())
        .map_err(|e| bad(e.to_string()))
}

fn is_constant(dim: &Dim) -> bool {
    use glia_core::Symbol::{N, P, R, S, T};
    [T, P, R, N, S].iter().all(|&s| !dim.depends_on(s))
}

/// States grow by a row per token of the step: `[T, ..]` with fixed rows.
pub(super) fn check_state(node: &Node, inputs: &[ValueType]) -> Result<(), GraphError> {
    let Some(spec) = node.op.state(inputs) else {
        return Ok(());
    };
    let bad = |reason: String| GraphError::BadState {
        node: node.name.clone(),
        op: node.op.kind().to_owned(),
        reason,
    };
    for (i, part) in spec.parts.iter().enumerate() {
        if part.as_fixed().is_none() {
            return Err(bad(format!("rows of input {i} must have a fixed size, not {part}")));
        }
    }
    for (i, ty) in inputs.iter().enumerate() {
        if ty.dims.first() != Some(&Dim::T) {
            return Err(bad(format!(
                "input {i} must have a row per token of the step, [T, ..], not {ty}"
            )));
        }
    }
    Ok(())
}
