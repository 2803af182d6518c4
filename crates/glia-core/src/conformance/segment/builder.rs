//! Builds planned segments as the planner does: values, weights, states, lifetimes and slots.

use std::sync::Arc;

use crate::{
    BackendError, ConstId, ConstSource, DType, Dim, InputRole, Instr, Op, Segment, Slot, SlotId, StateDef, StateId,
    Symbol, Tensor, ValueDef, ValueId, ValueKind, ValueType,
};

/// A segment and its weights.
#[derive(Clone)]
pub(in crate::conformance) struct Built {
    pub segment: Arc<Segment>,
    pub weights: Arc<Weights>,
}

/// Weights by id.
pub(in crate::conformance) struct Weights(pub Vec<Tensor>);

impl ConstSource for Weights {
    fn tensor(&self, id: ConstId) -> Result<Tensor, BackendError> {
        self.0.get(id.index()).cloned().ok_or(BackendError::UnknownId {
            what: "weight",
            id: id.0.into(),
        })
    }

    fn n_consts(&self) -> usize {
        self.0.len()
    }
}

/// Whether values whose lifetimes do not meet share memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::conformance) enum Slots {
    /// As the planner does it.
    Shared,
    /// One each, in the order of the instructions: neighbours in memory are neighbours in the schedule.
    Apart,
}

/// A segment under construction. Cases obey the shape rules, so what breaks them is a mistake of the suite.
#[derive(Default)]
pub(in crate::conformance) struct SegmentBuilder {
    segment: Segment,
    weights: Vec<Tensor>,
}

const OBEYS: &str = "segments of the suite obey the shape rules";

impl SegmentBuilder {
    fn value(&mut self, name: impl Into<String>, ty: ValueType, kind: ValueKind) -> ValueId {
        let name = name.into();
        self.segment.values.push(ValueDef { name, ty, kind });
        ValueId(self.segment.values.len() as u32 - 1)
    }

    fn fed(&mut self, name: &str, ty: ValueType, role: InputRole) -> ValueId {
        let id = self.value(name, ty, ValueKind::Input(role));
        self.segment.inputs.push(id);
        id
    }

    /// An input by name.
    pub fn input(&mut self, name: &str, dtype: DType, dims: impl Into<Vec<Dim>>) -> ValueId {
        self.fed(name, ValueType::new(dtype, dims), InputRole::Named(name.to_owned()))
    }

    /// The injected positions of all rows.
    pub fn positions(&mut self) -> ValueId {
        let ty = ValueType::new(DType::I32, [Dim::T]);
        self.fed("positions", ty, InputRole::Positions)
    }

    /// The injected wanted rows.
    pub fn wanted_rows(&mut self) -> ValueId {
        let ty = ValueType::new(DType::I32, [Dim::R]);
        self.fed("wanted_rows", ty, InputRole::WantedRows)
    }

    pub fn weight(&mut self, name: &str, tensor: Tensor) -> ValueId {
        let ty = ValueType::fixed(tensor.dtype(), tensor.shape());
        self.weights.push(tensor);
        let id = ConstId(self.weights.len() as u32 - 1);
        self.value(name, ty, ValueKind::Const(id))
    }

    /// Adds a node; its outputs are called after it.
    pub fn node(&mut self, name: &str, op: Op, inputs: &[ValueId]) -> Vec<ValueId> {
        let types = self.segment.types(inputs);
        let state = op.state(&types).map(|spec| {
            let node = name.to_owned();
            self.segment.states.push(StateDef { node, spec });
            StateId(self.segment.states.len() as u32 - 1)
        });
        let mut outputs = Vec::new();
        for (part, ty) in op.infer(&types).expect(OBEYS).into_iter().enumerate() {
            let kind = match state {
                Some(state) => ValueKind::State(state, part),
                None if op.is_view() => ValueKind::Alias(inputs[0]),
                None if ty.depends_on(Symbol::P) || ty.depends_on(Symbol::S) => ValueKind::Dynamic,
                // Chosen at the end.
                None => ValueKind::Temp(SlotId(u32::MAX)),
            };
            let of = if part == 0 {
                name.to_owned()
            } else {
                format!("{name}.{part}")
            };
            outputs.push(self.value(of, ty, kind));
        }
        self.segment.instrs.push(Instr {
            node: name.to_owned(),
            op,
            inputs: inputs.to_vec(),
            outputs: outputs.clone(),
            frees: Vec::new(),
            state,
        });
        outputs
    }

    /// A node of one output.
    pub fn one(&mut self, name: &str, op: Op, inputs: &[ValueId]) -> ValueId {
        self.node(name, op, inputs)[0]
    }

    /// Finds lifetimes and slots.
    pub fn finish(mut self, outputs: &[ValueId], slots: Slots) -> Built {
        self.segment.outputs = outputs.to_vec();
        self.free_after_last_reader();
        self.place(slots);
        self.segment.check_ids().expect("ids of the builder are in range");
        Built {
            segment: Arc::new(self.segment),
            weights: Arc::new(Weights(self.weights)),
        }
    }

    fn free_after_last_reader(&mut self) {
        let segment = &mut self.segment;
        let mut last: Vec<Option<usize>> = vec![None; segment.values.len()];
        for (i, instr) in segment.instrs.iter().enumerate() {
            for &id in instr.inputs.iter().chain(&instr.outputs) {
                last[segment.resolve(id).index()] = Some(i);
            }
        }
        for &id in &segment.outputs {
            last[segment.resolve(id).index()] = None;
        }
        for i in 0..segment.values.len() {
            let root = segment.resolve(ValueId(i as u32));
            let made_here = matches!(segment.value(root).kind, ValueKind::Temp(_) | ValueKind::Dynamic);
            if let (true, Some(at)) = (made_here, last[root.index()]) {
                segment.instrs[at].frees.push(ValueId(i as u32));
            }
        }
    }

    fn place(&mut self, slots: Slots) {
        let segment = &mut self.segment;
        let mut free: Vec<SlotId> = Vec::new();
        for i in 0..segment.instrs.len() {
            for id in segment.instrs[i].outputs.clone() {
                let def = &mut segment.values[id.index()];
                if !matches!(def.kind, ValueKind::Temp(_)) {
                    continue;
                }
                let slot = if slots == Slots::Shared { free.pop() } else { None };
                let slot = slot.unwrap_or_else(|| {
                    segment.slots.push(Slot { users: Vec::new() });
                    SlotId(segment.slots.len() as u32 - 1)
                });
                segment.slots[slot.index()].users.push(def.ty.clone());
                def.kind = ValueKind::Temp(slot);
            }
            for id in &segment.instrs[i].frees {
                if let ValueKind::Temp(slot) = segment.values[id.index()].kind {
                    free.push(slot);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Unary;

    #[test]
    fn slots_are_shared_once_their_values_have_no_reader() {
        let build = |slots| {
            let mut b = SegmentBuilder::default();
            let x = b.input("x", DType::F32, [Dim::T, 4.into()]);
            let relu = || Op::Unary(Unary::Relu);
            let y = b.one("y", relu(), &[x]);
            let flat = b.one("flat", Op::Reshape { dims: vec![-1, 2, 2] }, &[y]);
            let z = b.one("z", relu(), &[flat]);
            let w = b.one("w", relu(), &[z]);
            b.finish(&[w], slots).segment.to_string()
        };
        let shared = "input %x f32[T, 4]\n  %y f32[T, 4] @m0 = relu(%x)\n  %flat f32[T, 2, 2] =%y = \
                      reshape{dims=[-1, 2, 2]}(%y)\n  %z f32[T, 2, 2] @m1 = relu(%flat) free %y %flat\n  \
                      %w f32[T, 2, 2] @m0 = relu(%z) free %z\noutput %w\n";
        assert_eq!(build(Slots::Shared), shared);
        assert!(build(Slots::Apart).contains("%w f32[T, 2, 2] @m2"));
    }
}
