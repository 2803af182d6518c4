//! What an instruction of a segment costs in a step: its operands' shapes and where they lie, given to [`Op::cost`].
//!
//! [`Op::cost`]: crate::Op::cost

use super::{Instr, Segment, ValueId, ValueKind};
use crate::{Cost, CostValue, DType, Sizes, StateKind, Traffic};

impl Segment {
    /// The least that an instruction moves and computes in a step.
    ///
    /// `sizes` are those of the whole step, `seqs` those of each of its sequences: sequence-wise ops are counted for
    /// each. `kv_dtypes` are the storage dtypes of keys and values. `None` when a size overflows, or an id is unknown.
    pub fn cost(&self, instr: &Instr, sizes: &Sizes, seqs: &[Sizes], kv_dtypes: [DType; 2]) -> Option<Cost> {
        let one = |sizes: &Sizes| {
            let values = |ids: &[ValueId]| -> Option<Vec<CostValue>> {
                ids.iter().map(|&id| self.cost_value(id, sizes, kv_dtypes)).collect()
            };
            Some(instr.op.cost(&values(&instr.inputs)?, &values(&instr.outputs)?))
        };
        if !instr.op.is_sequence_wise() {
            return one(sizes);
        }
        let mut all = Cost::default();
        for sizes in seqs {
            all += one(sizes)?;
        }
        Some(all)
    }

    fn cost_value(&self, id: ValueId, sizes: &Sizes, kv_dtypes: [DType; 2]) -> Option<CostValue> {
        let def = self.values.get(id.index())?;
        let (mut dtype, mut traffic) = (def.ty.dtype, Traffic::Activation);
        match &self.values.get(self.resolve(id).index())?.kind {
            ValueKind::Const(_) => traffic = Traffic::Weight,
            ValueKind::State(state, part) => {
                traffic = Traffic::Cache;
                let rows = self.states.get(state.index())?.spec.kind == StateKind::Rows;
                dtype = kv_dtypes.get(*part).copied().filter(|_| rows).unwrap_or(dtype);
            }
            _ => {}
        }
        let shape = def.ty.shape(sizes)?;
        Some(CostValue { dtype, shape, traffic })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::{ConstId, InputRole, StateDef, StateId, ValueDef};
    use crate::{Dim, Op, Sdpa, ValueType};

    /// Keys, of which values are made too, and queries: one head of 32.
    fn attention() -> Segment {
        let row = |first: Dim| ValueType::new(DType::F32, [first, 1.into(), 32.into()]);
        let input = |name: &str| ValueKind::Input(InputRole::Named(name.to_owned()));
        let values = [
            ("x", row(Dim::T), input("x")),
            ("k", row(Dim::PT), ValueKind::State(StateId(0), 0)),
            ("v", row(Dim::PT), ValueKind::State(StateId(0), 1)),
            ("y", row(Dim::T), ValueKind::Dynamic),
            (
                "flat",
                ValueType::new(DType::F32, [Dim::T, 32.into()]),
                ValueKind::Alias(ValueId(3)),
            ),
            (
                "w",
                ValueType::fixed(DType::Q4_0, &[8, 32]),
                ValueKind::Const(ConstId(0)),
            ),
            ("z", ValueType::new(DType::F32, [Dim::T, 8.into()]), ValueKind::Dynamic),
        ];
        let mut segment = Segment::default();
        for (name, ty, kind) in values {
            let name = name.to_owned();
            segment.values.push(ValueDef { name, ty, kind });
        }
        let row = segment.values[0].ty.clone();
        segment.states.push(StateDef {
            node: "cache".to_owned(),
            spec: Op::KvCache.state(&[row.clone(), row]).unwrap(),
        });
        let sdpa = Op::Sdpa(Sdpa {
            scale: 1.0,
            causal: true,
            window: None,
            softcap: None,
            mask: false,
            sinks: false,
        });
        for (op, inputs, outputs) in [
            (Op::KvCache, &[0, 0][..], &[1, 2][..]),
            (sdpa, &[0, 1, 2], &[3]),
            (Op::MatMul, &[4, 5], &[6]),
        ] {
            let ids = |list: &[u32]| list.iter().map(|&i| ValueId(i)).collect();
            segment.instrs.push(Instr {
                node: op.kind().to_owned(),
                op,
                inputs: ids(inputs),
                outputs: ids(outputs),
                frees: vec![],
                state: None,
            });
        }
        segment
    }

    #[test]
    fn sequences_read_their_own_past_once_and_share_weights() {
        let segment = attention();
        let sizes = |t, p, n| Sizes { t, p, n, r: t, s: 0 };
        // Two sequences of one token each, behind 9 and 19 tokens.
        let seqs = [sizes(1, 9, 1), sizes(1, 19, 1)];
        let cost = |i: usize| {
            let instr = &segment.instrs[i];
            segment
                .cost(instr, &sizes(2, 19, 2), &seqs, [DType::F16, DType::Q8_0])
                .unwrap()
        };
        assert_eq!((cost(0).cache_bytes, cost(0).read_bytes), (2 * (64 + 34), 2 * 2 * 128));
        assert_eq!(cost(1).cache_bytes, (10 + 20) * (64 + 34));
        assert_eq!(cost(1).ops, (10 + 20) * (2 * 64 + 5));
        // The weight is read for both, through the view of what attention made.
        assert_eq!((cost(2).weight_bytes, cost(2).read_bytes), (8 * 18, 2 * 32 * 4));
        assert_eq!(cost(2).ops, 2 * 2 * 8 * 32);
    }

    #[test]
    fn unknown_values_and_endless_sizes_have_no_cost() {
        let segment = attention();
        let mut instr = segment.instrs[2].clone();
        let endless = Sizes {
            t: usize::MAX,
            p: 1,
            ..Sizes::default()
        };
        let kv = [DType::F32; 2];
        assert_eq!(segment.cost(&segment.instrs[1], &endless, &[endless], kv), None);
        instr.inputs[0] = ValueId(99);
        assert_eq!(segment.cost(&instr, &Sizes::default(), &[], kv), None);
    }
}
