//! Builds graphs node by node: infers types at once and keeps names readable and unique.

mod sugar;

use std::collections::HashMap;

use glia_core::{Op, ValueType};

use super::verify::{check_state, check_type};
use super::{Graph, GraphError, NameKind, Node, NodeId, Output, RESERVED_NAMES, Value, ValueSource, Vid};

/// Adds nodes to a [`Graph`] in the order in which they will run.
///
/// ```
/// use glia_core::{DType, Dim, ValueType};
/// use glia_ir::GraphBuilder;
///
/// let mut b = GraphBuilder::new("tiny");
/// let ids = b.input("input_ids", ValueType::new(DType::I32, [Dim::T]))?;
/// let table = b.weight("embed.weight", ValueType::fixed(DType::F32, &[32, 8]))?;
/// let x = b.token_embed("embed", ids, table)?;
/// let logits = b.matmul("lm_head", x, table, None)?;
/// b.output("logits", logits)?;
/// let graph = b.finish()?;
/// assert_eq!(graph.value(logits).ty.to_string(), "f32[T, 32]");
/// # Ok::<(), glia_ir::GraphError>(())
/// ```
#[derive(Clone, Debug)]
pub struct GraphBuilder {
    graph: Graph,
    values: HashMap<String, Vid>,
    nodes: HashMap<String, NodeId>,
    scope: Vec<String>,
}

impl GraphBuilder {
    /// An empty graph of this name.
    pub fn new(name: impl Into<String>) -> GraphBuilder {
        let graph = Graph {
            name: name.into(),
            ..Graph::default()
        };
        GraphBuilder {
            graph,
            values: HashMap::new(),
            nodes: HashMap::new(),
            scope: Vec::new(),
        }
    }

    /// What was built so far.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Type of a value.
    ///
    /// # Errors
    /// [`GraphError::UnknownValue`].
    pub fn ty(&self, id: Vid) -> Result<&ValueType, GraphError> {
        match self.graph.values.get(id.index()) {
            Some(value) => Ok(&value.ty),
            None => Err(GraphError::UnknownValue {
                by: "the caller".to_owned(),
                id: id.0,
                n_values: self.graph.values.len(),
            }),
        }
    }

    /// An input that the caller gives with each step.
    ///
    /// # Errors
    /// [`GraphError::ReservedName`], [`GraphError::DuplicateName`], [`GraphError::BadType`].
    pub fn input(&mut self, name: &str, ty: ValueType) -> Result<Vid, GraphError> {
        self.named(name, ty, ValueSource::Input)
    }

    /// The injected positions, I32 `[T]`.
    pub fn positions(&mut self) -> Vid {
        self.injected(ValueSource::Positions)
    }

    /// The injected position of the first new token, I32 `[1]`.
    pub fn pos(&mut self) -> Vid {
        self.injected(ValueSource::Pos)
    }

    /// The injected wanted rows, I32 `[R]`.
    pub fn wanted_rows(&mut self) -> Vid {
        self.injected(ValueSource::WantedRows)
    }

    /// A weight; asked for twice, it is the same value.
    ///
    /// # Errors
    /// [`GraphError::WeightConflict`] when the types differ, [`GraphError::WeightNotFixed`] and those of
    /// [`GraphBuilder::input`].
    pub fn weight(&mut self, name: &str, ty: ValueType) -> Result<Vid, GraphError> {
        if let Some(&id) = self.values.get(name) {
            let value = self.graph.value(id);
            if value.source == ValueSource::Weight {
                if value.ty == ty {
                    return Ok(id);
                }
                return Err(GraphError::WeightConflict {
                    name: name.to_owned(),
                    first: value.ty.clone(),
                    second: ty,
                });
            }
        }
        if ty.as_fixed().is_none() {
            return Err(GraphError::WeightNotFixed {
                name: name.to_owned(),
                ty,
            });
        }
        self.named(name, ty, ValueSource::Weight)
    }

    /// A node; returns its outputs. Its name gets the names of the open scopes in front.
    ///
    /// # Errors
    /// [`GraphError::DuplicateName`], [`GraphError::UnknownValue`], and [`GraphError::Infer`] when the op does not
    /// take these operands.
    pub fn node(&mut self, name: &str, op: Op, inputs: &[Vid]) -> Result<Vec<Vid>, GraphError> {
        let name = self.full_name(name);
        if name.is_empty() {
            return Err(GraphError::EmptyName { kind: NameKind::Node });
        }
        if self.nodes.contains_key(&name) {
            return Err(GraphError::duplicate(NameKind::Node, &name));
        }
        let mut types = Vec::with_capacity(inputs.len());
        for &id in inputs {
            let value = self
                .graph
                .values
                .get(id.index())
                .ok_or_else(|| GraphError::UnknownValue {
                    by: format!("node `{name}`"),
                    id: id.0,
                    n_values: self.graph.values.len(),
                })?;
            types.push(value.ty.clone());
        }
        let node = NewNode {
            name,
            op,
            inputs: inputs.to_vec(),
            value_names: None,
        };
        self.push_node(node, &types)
    }

    /// A node whose name, scopes included, and whose outputs' names are given: passes keep those of the graph they
    /// rewrite. The names must be free.
    pub(crate) fn node_named(
        &mut self,
        name: &str,
        op: Op,
        inputs: &[Vid],
        value_names: Option<Vec<String>>,
    ) -> Result<Vec<Vid>, GraphError> {
        let types = self.graph.types(inputs);
        let node = NewNode {
            name: name.to_owned(),
            op,
            inputs: inputs.to_vec(),
            value_names,
        };
        self.push_node(node, &types)
    }

    fn push_node(&mut self, new: NewNode, types: &[ValueType]) -> Result<Vec<Vid>, GraphError> {
        let results = new.op.infer(types).map_err(|e| GraphError::infer(&new.name, e))?;
        let suffixes = output_suffixes(&new.op, results.len());
        let id = NodeId(next_id("nodes", self.graph.nodes.len())?);
        let mut node = Node {
            name: new.name,
            op: new.op,
            inputs: new.inputs,
            outputs: Vec::with_capacity(results.len()),
        };
        check_state(&node, types)?;
        for (ty, suffix) in results.iter().zip(&suffixes) {
            check_type(&format!("{}{suffix}", node.name), ty)?;
        }
        for (output, (ty, suffix)) in results.into_iter().zip(suffixes).enumerate() {
            let value_name = match new.value_names.as_ref().and_then(|names| names.get(output)) {
                Some(name) => name.clone(),
                None => self.fresh_value_name(&format!("{}{suffix}", node.name)),
            };
            let source = ValueSource::Node { node: id, output };
            node.outputs.push(self.push_value(value_name, ty, source)?);
        }
        let outputs = node.outputs.clone();
        self.nodes.insert(node.name.clone(), id);
        self.graph.nodes.push(node);
        Ok(outputs)
    }

    /// A node with one output.
    ///
    /// # Errors
    /// As [`GraphBuilder::node`]; [`GraphError::WrongOutputs`] when the op has more.
    pub fn node1(&mut self, name: &str, op: Op, inputs: &[Vid]) -> Result<Vid, GraphError> {
        let (kind, n) = (op.kind(), op.n_outputs());
        if n != 1 {
            return Err(GraphError::WrongOutputs {
                node: self.full_name(name),
                op: kind.to_owned(),
                expected: n,
                got: 1,
            });
        }
        Ok(self.node(name, op, inputs)?[0])
    }

    /// Puts `name.` in front of the names of nodes that `build` adds; nests.
    ///
    /// # Errors
    /// Those of `build`.
    pub fn scope<T, E>(
        &mut self,
        name: impl Into<String>,
        build: impl FnOnce(&mut GraphBuilder) -> Result<T, E>,
    ) -> Result<T, E> {
        self.scope.push(name.into());
        let result = build(self);
        self.scope.pop();
        result
    }

    /// Declares that the graph returns `value` as `name`.
    ///
    /// # Errors
    /// [`GraphError::DuplicateName`], [`GraphError::UnknownValue`].
    pub fn output(&mut self, name: &str, value: Vid) -> Result<(), GraphError> {
        if name.is_empty() {
            return Err(GraphError::EmptyName { kind: NameKind::Output });
        }
        if self.graph.outputs.iter().any(|o| o.name == name) {
            return Err(GraphError::duplicate(NameKind::Output, name));
        }
        self.ty(value)?;
        self.graph.outputs.push(Output {
            name: name.to_owned(),
            value,
        });
        Ok(())
    }

    /// The graph, verified.
    ///
    /// # Errors
    /// Those of [`Graph::verify`].
    pub fn finish(self) -> Result<Graph, GraphError> {
        self.graph.verify()?;
        Ok(self.graph)
    }

    /// The graph as it is.
    pub(crate) fn into_graph(self) -> Graph {
        self.graph
    }

    fn full_name(&self, name: &str) -> String {
        let mut full = self.scope.join(".");
        if !full.is_empty() && !name.is_empty() {
            full.push('.');
        }
        full + name
    }

    fn injected(&mut self, source: ValueSource) -> Vid {
        let Some((name, ty)) = source.injected() else {
            unreachable!("called with injected sources only")
        };
        if let Some(&id) = self.values.get(name) {
            return id;
        }
        // Reserved names are free by construction, and three values never exhaust the ids: `push_value` refuses at
        // `u32::MAX`, far above what fits in memory.
        let id = Vid(self.graph.values.len() as u32);
        self.values.insert(name.to_owned(), id);
        self.graph.values.push(Value {
            name: name.to_owned(),
            ty,
            source,
        });
        id
    }

    fn named(&mut self, name: &str, ty: ValueType, source: ValueSource) -> Result<Vid, GraphError> {
        if name.is_empty() {
            return Err(GraphError::EmptyName { kind: NameKind::Value });
        }
        if RESERVED_NAMES.contains(&name) {
            return Err(GraphError::ReservedName { name: name.to_owned() });
        }
        if self.values.contains_key(name) {
            return Err(GraphError::duplicate(NameKind::Value, name));
        }
        check_type(name, &ty)?;
        self.push_value(name.to_owned(), ty, source)
    }

    fn push_value(&mut self, name: String, ty: ValueType, source: ValueSource) -> Result<Vid, GraphError> {
        let id = Vid(next_id("values", self.graph.values.len())?);
        self.values.insert(name.clone(), id);
        self.graph.values.push(Value { name, ty, source });
        Ok(id)
    }

    fn fresh_value_name(&self, wanted: &str) -> String {
        fresh_name(wanted, |name| {
            self.values.contains_key(name) || RESERVED_NAMES.contains(&name)
        })
    }
}

/// `wanted`, or `wanted~2`, `wanted~3` .. when that is taken.
pub(crate) fn fresh_name(wanted: &str, taken: impl Fn(&str) -> bool) -> String {
    if !taken(wanted) {
        return wanted.to_owned();
    }
    let mut n = 2u64;
    loop {
        let name = format!("{wanted}~{n}");
        if !taken(&name) {
            return name;
        }
        n += 1;
    }
}

/// A node on its way into the graph.
struct NewNode {
    name: String,
    op: Op,
    inputs: Vec<Vid>,
    value_names: Option<Vec<String>>,
}

fn next_id(what: &'static str, len: usize) -> Result<u32, GraphError> {
    u32::try_from(len).map_err(|_| GraphError::TooMany { what, max: u32::MAX })
}

/// What follows the node's name in the names of its outputs.
fn output_suffixes(op: &Op, n_outputs: usize) -> Vec<String> {
    match op {
        Op::KvCache => vec![".k".into(), ".v".into()],
        Op::TopK { .. } => vec![".values".into(), ".indices".into()],
        _ if n_outputs == 1 => vec![String::new()],
        _ => (0..n_outputs).map(|i| format!(".{i}")).collect(),
    }
}
