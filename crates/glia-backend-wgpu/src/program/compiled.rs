//! From a segment to a program: fused, lowered to dispatches, given memory.

use std::sync::Arc;

use glia_core::{
    BackendError, CompileOptions, DType, Program, ProgramState, Segment, SeqId, SeqRows, Sizes, StateOptions, Tensor,
    ValueId, ValueKind,
};

use super::lower::IndexLimit;
use super::needs::{self, OutputSet};
use super::slots::{self, Slots};
use super::state::State;
use super::{BufDef, BufId, Dispatch, Lower, StepInfo, TableHeader, fuse};
use crate::gpu::{Gpu, NAME, WITHOUT_F16};
use crate::ops;

/// A compiled segment.
pub(super) struct Compiled {
    pub gpu: Arc<Gpu>,
    pub segment: Segment,
    pub bufs: Vec<BufDef>,
    pub dispatches: Vec<Dispatch>,
    pub slots: Slots,
    /// For each dispatch, the outputs that need it.
    pub needs: Vec<OutputSet>,
    pub limits: Vec<IndexLimit>,
    pub outputs: Vec<Output>,
    pub max_context: usize,
    pub kv_dtypes: [DType; 2],
    pub one_sequence: bool,
    weight_bytes: usize,
}

/// Where an output of the segment comes from.
pub(super) enum Output {
    /// Made by a kernel.
    Buffer(ValueId, BufId),
    /// An input of the step, by its place in the list.
    Input(usize),
    /// A weight.
    Weight(Tensor),
}

/// Compiles a segment, or `None` when a state is not of a kind that is kept here.
///
/// # Errors
/// When a kernel does not compile, a weight cannot be read, or memory is out; each names its node.
pub(crate) fn compile(
    gpu: &Arc<Gpu>,
    segment: &Segment,
    options: &CompileOptions<'_>,
) -> Result<Arc<dyn Program>, BackendError> {
    segment.check_ids()?;
    let mut lower = Lower::new(gpu, segment, options);
    for item in fuse::items(segment, &|heads| ops::takes_heads(segment, options.kv_dtypes, heads)) {
        let instr = &segment.instrs[item.last()];
        lower.instrs = item.members().into();
        ops::lower(&mut lower, &item).map_err(|e| e.at(NAME, &instr.node, instr.op.kind()))?;
    }
    let mut outputs = Vec::with_capacity(segment.outputs.len());
    for &id in &segment.outputs {
        let root = segment.resolve(id);
        outputs.push(match segment.value(root).kind {
            ValueKind::Const(of) => Output::Weight(lower.weight(of)?.reshaped(fixed(segment, id)?)?),
            ValueKind::Input(_) => {
                let at = segment.inputs.iter().position(|&input| input == root);
                let unknown = BackendError::UnknownId {
                    what: "input",
                    id: root.0.into(),
                };
                Output::Input(at.ok_or(unknown)?)
            }
            _ => Output::Buffer(id, lower.value(id)?),
        });
    }
    let weight_bytes = lower.weight_bytes();
    let (bufs, dispatches) = (lower.bufs, lower.dispatches);
    let made_in: Vec<(usize, usize)> = outputs
        .iter()
        .enumerate()
        .filter_map(|(i, o)| match o {
            Output::Buffer(_, buf) => Some((i, buf.index())),
            _ => None,
        })
        .collect();
    let keep: Vec<usize> = made_in.iter().map(|(_, buf)| *buf).collect();
    let rows = [SeqRows {
        seq: SeqId(0),
        first_row: 0,
        n_rows: options.max_step_tokens,
        pos: options.max_context.saturating_sub(options.max_step_tokens),
    }];
    let planned = StepInfo {
        sizes: Sizes {
            t: rows[0].n_rows,
            p: rows[0].pos,
            r: 1,
            n: 1,
            s: rows[0].n_rows,
        },
        rows: &rows,
        table: TableHeader::default(),
    };
    let size = |buf: usize| match &bufs[buf] {
        BufDef::Temp(id) => planned.n_elems(&segment.value(*id).ty) as u64 * 4,
        BufDef::Scratch(size) => size(&planned),
        _ => 0,
    };
    Ok(Arc::new(Compiled {
        gpu: gpu.clone(),
        slots: slots::assign(&bufs, &dispatches, &keep, &size),
        needs: needs::of(&bufs, &dispatches, &made_in),
        segment: segment.clone(),
        limits: lower.limits,
        one_sequence: lower.one_sequence,
        bufs,
        dispatches,
        outputs,
        max_context: options.max_context,
        kv_dtypes: options.kv_dtypes,
        weight_bytes,
    }))
}

impl Compiled {
    /// The storage dtype of one part of the cache.
    pub fn kv_dtype(&self, part: usize) -> DType {
        self.kv_dtypes.get(part).copied().unwrap_or(DType::F32)
    }
}

fn fixed(segment: &Segment, id: ValueId) -> Result<glia_core::Shape, BackendError> {
    let ty = &segment.value(id).ty;
    ty.as_fixed().ok_or_else(|| BackendError::ShapeMismatch {
        op: "output".to_owned(),
        reason: format!("a weight cannot be returned as {ty}"),
    })
}

impl Program for Compiled {
    fn open(self: Arc<Self>, options: &StateOptions) -> Result<Box<dyn ProgramState>, BackendError> {
        Ok(Box::new(State::new(self, options)))
    }

    fn weight_bytes(&self) -> usize {
        self.weight_bytes
    }

    fn is_lost(&self) -> bool {
        self.gpu.is_lost()
    }

    fn describe(&self) -> String {
        let (n, m) = (self.dispatches.len(), self.segment.instrs.len());
        let mut line = format!("compiled for {}: {m} nodes in {n} dispatches", self.gpu.entry);
        if !self.gpu.caps.f16 {
            line += "; ";
            line += WITHOUT_F16;
        }
        line
    }
}
