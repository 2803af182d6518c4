//! Matrix products: with weights in F32, or, unless results are to be exact, in F16 by cooperative matrices and in bytes
//! where that is faster.

mod coop;
mod dots;
mod float;
mod product;
mod way;

use glia_core::{BackendError, ConstId, DType, Instr, Op, ValueId};

use self::product::{Product, product, rows_of};
use super::{GROUP, elementwise};
use crate::program::{BufId, Lower};
use crate::shader::{Call, KernelKey, Source};

pub(super) use self::product::weight_words;

pub(super) fn lower(cx: &mut Lower<'_>, instr: &Instr) -> Result<(), BackendError> {
    let bias = instr.inputs.get(2).map(|&id| cx.value(id)).transpose()?;
    let rank = cx.ty(instr.inputs[1]).rank();
    if rank > 2 || cx.const_of(instr.inputs[1]).is_none() {
        return dense(cx, instr, bias);
    }
    product(
        cx,
        &Product {
            x: instr.inputs[0],
            weights: &instr.inputs[1..2],
            bias,
            residual: None,
            gate: None,
            outputs: &instr.outputs,
        },
    )
}

/// A product that is added to `other`.
pub(super) fn added(
    cx: &mut Lower<'_>,
    instr: &Instr,
    other: ValueId,
    outputs: &[ValueId],
) -> Result<(), BackendError> {
    let bias = instr.inputs.get(2).map(|&id| cx.value(id)).transpose()?;
    product(
        cx,
        &Product {
            x: instr.inputs[0],
            weights: &instr.inputs[1..2],
            bias,
            residual: Some(other),
            gate: None,
            outputs,
        },
    )
}

/// The biases of several products, one after the other.
fn biases(cx: &mut Lower<'_>, instrs: &[&Instr]) -> Result<Option<BufId>, BackendError> {
    let mut bias = Vec::new();
    for id in instrs.iter().filter_map(|i| i.inputs.get(2)) {
        if let Some(of) = cx.const_of(*id) {
            bias.extend(crate::weights::plain_words(&cx.weight(of)?)?);
        }
    }
    (!bias.is_empty()).then(|| cx.upload_words("bias", &bias)).transpose()
}

/// Two products of one value, of which the first gates the second.
pub(super) fn gated(cx: &mut Lower<'_>, products: [&Instr; 2], gated: &Instr) -> Result<(), BackendError> {
    let Op::Gated(gate) = gated.op else { return Ok(()) };
    let weights = products.map(|instr| instr.inputs[1]);
    let ids: Vec<ConstId> = weights.iter().filter_map(|&id| cx.const_of(id)).collect();
    // Columns that belong together must lie in one part.
    if cx.matrix(&ids)?.parts.len() != 1 {
        several(cx, &products)?;
        return elementwise::gated(cx, gated, gate);
    }
    let bias = biases(cx, &products)?;
    product(
        cx,
        &Product {
            x: products[0].inputs[0],
            weights: &weights,
            bias,
            residual: None,
            gate: Some(gate),
            outputs: &gated.outputs,
        },
    )
}

/// Products of one value with several weights of one dtype.
pub(super) fn several(cx: &mut Lower<'_>, instrs: &[&Instr]) -> Result<(), BackendError> {
    let bias = biases(cx, instrs)?;
    let weights: Vec<ValueId> = instrs.iter().map(|i| i.inputs[1]).collect();
    let outputs: Vec<ValueId> = instrs.iter().map(|i| i.outputs[0]).collect();
    product(
        cx,
        &Product {
            x: instrs[0].inputs[0],
            weights: &weights,
            bias,
            residual: None,
            gate: None,
            outputs: &outputs,
        },
    )
}

/// Both operands are computed: batch by batch.
fn dense(cx: &mut Lower<'_>, instr: &Instr, bias: Option<BufId>) -> Result<(), BackendError> {
    let (x, w) = (cx.value(instr.inputs[0])?, cx.value(instr.inputs[1])?);
    let y = cx.value(instr.outputs[0])?;
    let types = [instr.inputs[0], instr.inputs[1]].map(|id| cx.ty(id).clone());
    debug_assert_eq!(types[0].dtype, DType::F32);
    let has_bias = bias.is_some();
    let key = |access: &[_]| KernelKey::new(Source::Batched, access).flag("BIAS", has_bias);
    cx.kernel(key, &[w, x, bias.unwrap_or(x)], &[y], move |info| {
        let [x, w] = types.each_ref().map(|ty| info.shape(ty));
        let (k, n) = (x.last_dim(), w[w.rank() - 2]);
        let m = rows_of(&x);
        let batches: usize = w[..w.rank() - 2].iter().product();
        Call::new((m * n).div_ceil(GROUP), &[m, n, k, m.checked_div(batches).unwrap_or(0)])
    })
}
