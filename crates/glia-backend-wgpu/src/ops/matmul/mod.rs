//! Matrix products: with weights in F32, or, unless results are to be exact, in F16 by cooperative matrices and in bytes
//! where that is faster.

mod coop;
mod dots;
mod float;
mod product;
mod way;

use glia_core::{BackendError, DType, Instr, ValueId};

use self::product::{Product, product, rows_of};
use super::GROUP;
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
            outputs,
        },
    )
}

/// Products of one value with several weights of one dtype.
pub(super) fn several(cx: &mut Lower<'_>, instrs: &[&Instr]) -> Result<(), BackendError> {
    let mut bias = Vec::new();
    for id in instrs.iter().filter_map(|i| i.inputs.get(2)) {
        if let Some(of) = cx.const_of(*id) {
            bias.extend(crate::weights::plain_words(&cx.weight(of)?)?);
        }
    }
    let bias = (!bias.is_empty()).then(|| cx.upload_words("bias", &bias)).transpose()?;
    let weights: Vec<ValueId> = instrs.iter().map(|i| i.inputs[1]).collect();
    let outputs: Vec<ValueId> = instrs.iter().map(|i| i.outputs[0]).collect();
    product(
        cx,
        &Product {
            x: instrs[0].inputs[0],
            weights: &weights,
            bias,
            residual: None,
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
