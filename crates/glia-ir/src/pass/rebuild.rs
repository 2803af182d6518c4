//! Replays a graph into a new one, node by node, while a pass replaces some of them. Names are kept, so a printed
//! graph stays comparable across passes; values nobody asks for are not carried over.

use std::collections::{HashMap, HashSet};

use glia_core::{Op, ValueType};

use crate::graph::{Graph, GraphBuilder, GraphError, NodeId, ValueSource, Vid, fresh_name};

pub(super) struct Rebuild<'g> {
    pub old: &'g Graph,
    new: GraphBuilder,
    /// The new value of each old one.
    map: Vec<Option<Vid>>,
    /// Names of the old graph and those given since.
    taken: HashSet<String>,
    /// Declared outputs that return another value than the new one of the old.
    redirected: HashMap<String, Vid>,
}

impl<'g> Rebuild<'g> {
    /// A new graph with the inputs and weights of the old one, in their order.
    pub fn new(old: &'g Graph) -> Result<Rebuild<'g>, GraphError> {
        let nodes = old.nodes.iter().map(|n| n.name.clone());
        let values = old.values.iter().map(|v| v.name.clone());
        let mut rebuild = Rebuild {
            old,
            new: GraphBuilder::new(old.name.clone()),
            map: vec![None; old.values.len()],
            taken: nodes.chain(values).collect(),
            redirected: HashMap::new(),
        };
        for (id, value) in old.iter_values() {
            let new = match value.source {
                ValueSource::Input => rebuild.new.input(&value.name, value.ty.clone())?,
                ValueSource::Weight => rebuild.new.weight(&value.name, value.ty.clone())?,
                ValueSource::Pos => rebuild.new.pos(),
                ValueSource::Positions => rebuild.new.positions(),
                ValueSource::WantedRows => rebuild.new.wanted_rows(),
                ValueSource::Node { .. } => continue,
            };
            rebuild.set(id, new);
        }
        Ok(rebuild)
    }

    pub fn graph(&self) -> &Graph {
        self.new.graph()
    }

    pub fn builder(&mut self) -> &mut GraphBuilder {
        &mut self.new
    }

    pub fn ty(&self, new: Vid) -> &ValueType {
        &self.new.graph().value(new).ty
    }

    /// The new value of an old one.
    pub fn get(&mut self, old: Vid) -> Result<Vid, GraphError> {
        self.map[old.index()].ok_or_else(|| {
            let value = self.old.value(old);
            GraphError::UnmappedValue {
                value: value.name.clone(),
            }
        })
    }

    pub fn get_all(&mut self, old: &[Vid]) -> Result<Vec<Vid>, GraphError> {
        old.iter().map(|&v| self.get(v)).collect()
    }

    /// Lets `new` stand for the old value from here on.
    pub fn set(&mut self, old: Vid, new: Vid) {
        self.map[old.index()] = Some(new);
    }

    /// The node as it is, on the new values of its inputs.
    pub fn copy(&mut self, id: NodeId) -> Result<(), GraphError> {
        let node = self.old.node(id);
        let inputs = self.get_all(&node.inputs)?;
        self.replace(id, node.op.clone(), &inputs)
    }

    /// Another op with as many outputs in the node's place, under its names.
    pub fn replace(&mut self, id: NodeId, op: Op, inputs: &[Vid]) -> Result<(), GraphError> {
        let node = self.old.node(id);
        let names = node.outputs.iter().map(|&v| self.old.value(v).name.clone()).collect();
        let outputs = self.new.node_named(&node.name, op, inputs, Some(names))?;
        for (&old, new) in node.outputs.iter().zip(outputs) {
            self.set(old, new);
        }
        Ok(())
    }

    /// A node that the old graph lacks, under a name like `wanted`.
    pub fn add(&mut self, wanted: &str, op: Op, inputs: &[Vid]) -> Result<Vec<Vid>, GraphError> {
        let name = fresh_name(wanted, |n| self.taken.contains(n));
        let outputs = self.new.node_named(&name, op, inputs, None)?;
        for &output in &outputs {
            self.taken.insert(self.new.graph().value(output).name.clone());
        }
        self.taken.insert(name);
        Ok(outputs)
    }

    /// Lets the declared output return this new value.
    pub fn redirect(&mut self, output: &str, value: Vid) {
        self.redirected.insert(output.to_owned(), value);
    }

    /// The new graph with the outputs of the old one, without weights and injected values that nothing reads. Inputs
    /// stay: they are the interface.
    pub fn finish(mut self) -> Result<Graph, GraphError> {
        for output in &self.old.outputs {
            let value = match self.redirected.get(&output.name) {
                Some(&value) => value,
                None => self.get(output.value)?,
            };
            self.new.output(&output.name, value)?;
        }
        Ok(compact(self.new.into_graph()))
    }
}

/// Drops weights and injected values that nothing reads; ids close up.
fn compact(mut graph: Graph) -> Graph {
    let mut keep: Vec<bool> = graph
        .values
        .iter()
        .map(|v| matches!(v.source, ValueSource::Input | ValueSource::Node { .. }))
        .collect();
    let read = graph.nodes.iter().flat_map(|n| &n.inputs).copied();
    for id in read.chain(graph.outputs.iter().map(|o| o.value)) {
        keep[id.index()] = true;
    }
    let mut next = 0;
    let ids: Vec<Vid> = keep
        .iter()
        .map(|&kept| {
            let id = Vid(next);
            next += u32::from(kept);
            id
        })
        .collect();
    let mut kept = keep.iter();
    graph.values.retain(|_| kept.next() == Some(&true));
    for node in &mut graph.nodes {
        for id in node.inputs.iter_mut().chain(&mut node.outputs) {
            *id = ids[id.index()];
        }
    }
    for output in &mut graph.outputs {
        output.value = ids[output.value.index()];
    }
    graph
}
