//! Single ops through the same kernels: a segment of one instruction, compiled and run once.

use std::sync::Arc;

use glia_core::{
    BackendError, CompileOptions, ConstId, ConstSource, DType, InputRole, Instr, Op, Precision, Program, ProgramState,
    Segment, Slot, SlotId, StateOptions, Step, Tensor, ValueDef, ValueId, ValueKind, ValueType,
};

use crate::isa::Isa;
use crate::pack::Store;
use crate::simd::Level;
use crate::threads::Team;

struct Given<'a>(&'a [&'a Tensor]);

impl ConstSource for Given<'_> {
    fn tensor(&self, id: ConstId) -> Result<Tensor, BackendError> {
        let tensor = self.0.get(id.index()).ok_or(BackendError::UnknownId {
            what: "weight",
            id: id.0.into(),
        })?;
        Ok((*tensor).clone())
    }

    fn n_consts(&self) -> usize {
        self.0.len()
    }
}

/// Runs one op on host tensors. A cache is empty: its rows so far are those given.
///
/// # Errors
/// [`BackendError`].
pub(crate) fn execute(
    op: &Op,
    inputs: &[&Tensor],
    team: &Arc<Team>,
    isa: (Isa, Level),
) -> Result<Vec<Tensor>, BackendError> {
    if let Op::KvCache = op {
        op.infer(&types(inputs))?;
        return Ok(inputs.iter().map(|t| (*t).clone()).collect());
    }
    let (inputs_ty, outputs_ty) = (types(inputs), op.infer(&types(inputs))?);
    let mut segment = Segment::default();
    let mut push = |name: String, ty: ValueType, kind| {
        segment.values.push(ValueDef { name, ty, kind });
        ValueId(segment.values.len() as u32 - 1)
    };
    let mut given = Vec::new();
    let mut ids = Vec::new();
    for (i, ty) in inputs_ty.into_iter().enumerate() {
        // Weights of other dtypes than F32 are taken as constants, as in a plan.
        let weight =
            i > 0 && ty.dtype != DType::F32 && !matches!(op, Op::Gather { .. } | Op::Rope(_) | Op::Concat { .. });
        let kind = if weight {
            ValueKind::Const(ConstId(i as u32))
        } else {
            ValueKind::Input(InputRole::Named(format!("x{i}")))
        };
        let id = push(format!("x{i}"), ty, kind);
        ids.push(id);
        if !weight {
            given.push((id, inputs[i].clone()));
        }
    }
    let n_outputs = outputs_ty.len() as u32;
    let slots = outputs_ty
        .iter()
        .map(|ty| Slot {
            users: vec![ty.clone()],
        })
        .collect();
    let outputs: Vec<ValueId> = outputs_ty
        .into_iter()
        .zip(0..n_outputs)
        .map(|(ty, i)| push(format!("y{i}"), ty, ValueKind::Temp(SlotId(i))))
        .collect();
    segment.slots = slots;
    segment.inputs = given.iter().map(|(id, _)| *id).collect();
    segment.outputs = outputs.clone();
    segment.instrs = vec![Instr {
        node: op.kind().to_owned(),
        op: op.clone(),
        inputs: ids,
        outputs,
        frees: vec![],
        state: None,
    }];
    let consts = Given(inputs);
    let options = CompileOptions::new(&consts, Precision::Exact);
    let program = super::compile(&segment, &options, team, isa, Store::Packed, String::new())?;
    let program = program.ok_or_else(|| BackendError::UnsupportedOp {
        backend: crate::error::NAME.to_owned(),
        op: op.to_string(),
    })?;
    let tensors: Vec<Tensor> = given.into_iter().map(|(_, t)| t).collect();
    let mut state: Box<dyn ProgramState> = program.open(&StateOptions::default())?;
    let result = state.run(&Step::new(&[], &tensors, &[]));
    state.rollback();
    result
}

fn types(inputs: &[&Tensor]) -> Vec<ValueType> {
    inputs.iter().map(|t| ValueType::fixed(t.dtype(), t.shape())).collect()
}
