//! Which nodes the backend runs: F32 activations, indices that the host gives, weights of every dtype.

use glia_core::{DType, NodeView, Op, ValueType};

use crate::weights::Format;

/// Elements that a kernel can index.
const MAX_ELEMS: usize = u32::MAX as usize;

/// Whether the device runs this node.
pub(crate) fn supports_node(node: &NodeView<'_>) -> bool {
    let all_fit = node.inputs.iter().chain(node.outputs).all(fits);
    let weight = |i: usize| node.is_const.get(i).copied().unwrap_or(false);
    let is = |i: usize, dtype| node.inputs.get(i).is_some_and(|ty: &ValueType| ty.dtype == dtype);
    let float = |i: usize| is(i, DType::F32) || (weight(i) && plain(node.inputs[i].dtype));
    let index = |i: usize| is(i, DType::I32) || is(i, DType::I64);
    all_fit
        && match node.op {
            Op::MatMul => {
                let w = &node.inputs[1];
                let packed = weight(1) && w.rank() == 2 && weight_dtype(w.dtype);
                is(0, DType::F32) && (packed || is(1, DType::F32)) && (node.inputs.len() < 3 || float(2))
            }
            Op::TokenEmbed => {
                let table = &node.inputs[1];
                index(0) && (is(1, DType::F32) || (weight(1) && weight_dtype(table.dtype)))
            }
            Op::Gather { .. } => (is(0, DType::F32) || is(0, DType::I32)) && index(1),
            Op::Rope(_) => {
                is(0, DType::F32) && index(1) && (2..node.inputs.len()).all(|i| is(i, DType::F32) && weight(i))
            }
            Op::KvCache => is(0, DType::F32) && is(1, DType::F32),
            Op::Reshape { .. }
            | Op::Transpose { .. }
            | Op::Permute { .. }
            | Op::Slice { .. }
            | Op::Concat { .. }
            | Op::Split { .. }
            | Op::Repeat { .. } => (0..node.inputs.len()).all(|i| is(i, DType::F32) || is(i, DType::I32)),
            Op::Cast { to } => (is(0, DType::F32) || is(0, DType::I32)) && matches!(to, DType::F32 | DType::I32),
            Op::Sdpa(_) => {
                // What a thread or workgroup holds of a head.
                let fits = |i: usize| {
                    let dims = &node.inputs[i].dims;
                    dims.last().and_then(|d| d.as_fixed()).is_some_and(|d| d <= 512)
                };
                fits(1) && fits(2) && (0..node.inputs.len()).all(float)
            }
            _ => (0..node.inputs.len()).all(float),
        }
}

fn fits(ty: &ValueType) -> bool {
    let mut fixed = ty.dims.iter().filter_map(|d| d.as_fixed());
    fixed
        .try_fold(1usize, |n, d| n.checked_mul(d))
        .is_some_and(|n| n < MAX_ELEMS)
}

fn plain(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
}

/// Weights that kernels read.
fn weight_dtype(dtype: DType) -> bool {
    Format::of(dtype).is_some()
}
