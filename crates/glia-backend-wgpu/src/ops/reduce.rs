//! Reductions along an axis: softmax, sum, mean, argmax, top-k.

use glia_core::{BackendError, Instr, Shape, ValueType};

use super::GROUP;
use crate::program::Lower;
use crate::shader::{Call, KernelKey, Source};

/// Whether threads take rows of this axis alone, which they pass over `passes` times.
fn alone(cx: &Lower<'_>, ty: &ValueType, axis: usize, passes: usize) -> bool {
    let len = ty.dims[axis].as_fixed();
    len.and_then(|n| n.checked_mul(passes))
        .is_some_and(|n| cx.caps().alone(n))
}

/// Workgroups for `n` rows.
fn groups(n: usize, alone: bool) -> usize {
    if alone { n.div_ceil(GROUP) } else { n }
}

/// Rows along an axis: how many, their length, and the stride of their elements.
fn rows(shape: &Shape, axis: usize) -> [usize; 3] {
    let stride: usize = shape[axis + 1..].iter().product();
    let outer: usize = shape[..axis].iter().product();
    [outer * stride, shape[axis], stride]
}

pub(super) fn softmax(cx: &mut Lower<'_>, instr: &Instr, axis: usize) -> Result<(), BackendError> {
    let (x, y) = (cx.value(instr.inputs[0])?, cx.value(instr.outputs[0])?);
    let ty = cx.ty(instr.inputs[0]).clone();
    let alone = alone(cx, &ty, axis, 3);
    let key = |access: &[_]| KernelKey::new(Source::Softmax, access).flag("ALONE", alone);
    cx.kernel(key, &[x], &[y], move |info| {
        let [n, len, stride] = rows(&info.shape(&ty), axis);
        Call::new(if len == 0 { 0 } else { groups(n, alone) }, &[n, len, stride])
    })
}

fn along(cx: &mut Lower<'_>, instr: &Instr, axis: usize, argmax: bool, mean: bool) -> Result<(), BackendError> {
    let (x, y) = (cx.value(instr.inputs[0])?, cx.value(instr.outputs[0])?);
    let ty = cx.ty(instr.inputs[0]).clone();
    let alone = alone(cx, &ty, axis, 1);
    let key = |access: &[_]| {
        KernelKey::new(Source::Reduce, access)
            .flag("ARGMAX", argmax)
            .flag("ALONE", alone)
    };
    cx.kernel(key, &[x], &[y], move |info| {
        let [n, len, stride] = rows(&info.shape(&ty), axis);
        let divisor = if mean { len as f32 } else { 1.0 };
        Call::new(groups(n, alone), &[n, len, stride]).float(3, divisor)
    })
}

pub(super) fn argmax(cx: &mut Lower<'_>, instr: &Instr, axis: usize) -> Result<(), BackendError> {
    along(cx, instr, axis, true, false)
}

pub(super) fn sum(cx: &mut Lower<'_>, instr: &Instr, axis: usize, mean: bool) -> Result<(), BackendError> {
    along(cx, instr, axis, false, mean)
}

pub(super) fn top_k(cx: &mut Lower<'_>, instr: &Instr, k: usize) -> Result<(), BackendError> {
    let x = cx.value(instr.inputs[0])?;
    let (values, indices) = (cx.value(instr.outputs[0])?, cx.value(instr.outputs[1])?);
    let ty = cx.ty(instr.inputs[0]).clone();
    let alone = alone(cx, &ty, ty.rank() - 1, k);
    cx.kernel(
        |access| KernelKey::new(Source::TopK, access).flag("ALONE", alone),
        &[x],
        &[values, indices],
        move |info| {
            let shape = info.shape(&ty);
            let len = shape.last_dim();
            let n = shape.n_elems().checked_div(len).unwrap_or(0);
            Call::new(if k == 0 { 0 } else { groups(n, alone) }, &[n, len, k])
        },
    )
}
