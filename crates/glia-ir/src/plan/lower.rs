//! From a run of graph nodes to a [`Segment`]: values numbered, aliases and states found. Lifetimes and slots come
//! later.

use std::collections::HashMap;
use std::ops::Range;

use glia_core::{
    ConstId, InputRole, Instr, Segment, SlotId, StateDef, StateId, Symbol, ValueDef, ValueId, ValueKind, ValueType,
};

use crate::graph::{Graph, Node, ValueSource, Vid};

pub(super) struct Lowered {
    pub segment: Segment,
    /// For each input of the segment, the graph value that feeds it.
    pub imports: Vec<Vid>,
}

/// A slot that `slots` has not chosen yet.
pub(super) const NO_SLOT: SlotId = SlotId(u32::MAX);

pub(super) fn lower(graph: &Graph, nodes: Range<usize>, exports: &[Vid], weights: &[Vid]) -> Lowered {
    let consts = (0..).map(ConstId).zip(weights).map(|(c, &id)| (id, c)).collect();
    let mut lower = Lower {
        graph,
        consts,
        ids: HashMap::new(),
        out: Lowered {
            segment: Segment::default(),
            imports: Vec::new(),
        },
    };
    for node in &graph.nodes[nodes] {
        lower.node(node);
    }
    let outputs = exports.iter().map(|&id| lower.value(id)).collect();
    lower.out.segment.outputs = outputs;
    lower.out
}

struct Lower<'g> {
    graph: &'g Graph,
    consts: HashMap<Vid, ConstId>,
    ids: HashMap<Vid, ValueId>,
    out: Lowered,
}

impl Lower<'_> {
    fn push(&mut self, id: Vid, kind: ValueKind) -> ValueId {
        let value = self.graph.value(id);
        let def = ValueDef {
            name: value.name.clone(),
            ty: value.ty.clone(),
            kind,
        };
        let local = ValueId(self.out.segment.values.len() as u32);
        self.out.segment.values.push(def);
        self.ids.insert(id, local);
        local
    }

    /// The segment's number of a value: made here already, a weight, or an input.
    fn value(&mut self, id: Vid) -> ValueId {
        if let Some(&local) = self.ids.get(&id) {
            return local;
        }
        if let Some(&c) = self.consts.get(&id) {
            return self.push(id, ValueKind::Const(c));
        }
        let value = self.graph.value(id);
        let role = match value.source {
            ValueSource::Pos => InputRole::Pos,
            ValueSource::Positions => InputRole::Positions,
            ValueSource::WantedRows => InputRole::WantedRows,
            _ => InputRole::Named(value.name.clone()),
        };
        let local = self.push(id, ValueKind::Input(role));
        self.out.segment.inputs.push(local);
        self.out.imports.push(id);
        local
    }

    fn node(&mut self, node: &Node) {
        let inputs: Vec<ValueId> = node.inputs.iter().map(|&id| self.value(id)).collect();
        let state = node.op.state(&self.graph.types(&node.inputs)).map(|spec| {
            let states = &mut self.out.segment.states;
            states.push(StateDef {
                node: node.name.clone(),
                spec,
            });
            StateId(states.len() as u32 - 1)
        });
        let mut outputs = Vec::with_capacity(node.outputs.len());
        for (part, &id) in node.outputs.iter().enumerate() {
            let kind = match state {
                Some(state) => ValueKind::State(state, part),
                None if node.op.is_view() => ValueKind::Alias(inputs[0]),
                None if needs_heap(&self.graph.value(id).ty) => ValueKind::Dynamic,
                None => ValueKind::Temp(NO_SLOT),
            };
            outputs.push(self.push(id, kind));
        }
        self.out.segment.instrs.push(Instr {
            node: node.name.clone(),
            op: node.op.clone(),
            inputs,
            outputs,
            frees: Vec::new(),
            state,
        });
    }
}

/// Sizes that depend on the past or on an encoder are known to a step only.
fn needs_heap(ty: &ValueType) -> bool {
    ty.depends_on(Symbol::P) || ty.depends_on(Symbol::S)
}
