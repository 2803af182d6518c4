//! Elementwise ops.

use glia_core::{BackendError, Binary, DType, Gate, Instr, Op, Unary};

use super::GROUP;
use super::strided::{Walk, strides};
use crate::program::Lower;
use crate::shader::{Call, KernelKey, Source};

pub(super) fn unary(cx: &mut Lower<'_>, instr: &Instr) -> Result<(), BackendError> {
    let (name, a, b) = match instr.op {
        Op::Unary(f) => (function(f), 0.0, 0.0),
        Op::Scale { factor } => ("scaled", factor, 0.0),
        Op::Clamp { min, max } => ("clamped", min, max),
        _ => return Ok(()),
    };
    let (x, y) = (cx.value(instr.inputs[0])?, cx.value(instr.outputs[0])?);
    let ty = cx.ty(instr.outputs[0]).clone();
    cx.kernel(
        |access| KernelKey::new(Source::Unary, access).text("FN", name),
        &[x],
        &[y],
        move |info| {
            let n = info.n_elems(&ty);
            Call::new(n.div_ceil(GROUP), &[n]).float(1, a).float(2, b)
        },
    )
}

fn function(f: Unary) -> &'static str {
    match f {
        Unary::Silu => "silu",
        Unary::Gelu => "gelu",
        Unary::GeluTanh => "gelu_tanh",
        Unary::Relu => "relu",
        Unary::Sigmoid => "sigmoid",
        Unary::Tanh => "hyperbolic_tangent",
        Unary::Exp => "exponential",
    }
}

pub(super) fn gate_function(gate: Gate) -> &'static str {
    match gate {
        Gate::Silu => "silu",
        Gate::Gelu => "gelu",
        Gate::GeluTanh => "gelu_tanh",
    }
}

pub(super) fn gated(cx: &mut Lower<'_>, instr: &Instr, gate: Gate) -> Result<(), BackendError> {
    let (g, up) = (cx.value(instr.inputs[0])?, cx.value(instr.inputs[1])?);
    let y = cx.value(instr.outputs[0])?;
    let ty = cx.ty(instr.outputs[0]).clone();
    let key = |access: &[_]| KernelKey::new(Source::Gated, access).text("FN", gate_function(gate));
    cx.kernel(key, &[g, up], &[y], move |info| {
        let n = info.n_elems(&ty);
        Call::new(n.div_ceil(GROUP), &[n])
    })
}

pub(super) fn binary(cx: &mut Lower<'_>, instr: &Instr, op: Binary) -> Result<(), BackendError> {
    let name = match op {
        Binary::Add => "add",
        Binary::Sub => "sub",
        Binary::Mul => "mul",
        Binary::Div => "div",
    };
    let (a, b) = (cx.value(instr.inputs[0])?, cx.value(instr.inputs[1])?);
    let y = cx.value(instr.outputs[0])?;
    let types = [instr.inputs[0], instr.inputs[1], instr.outputs[0]].map(|id| cx.ty(id).clone());
    let key = |access: &[_]| KernelKey::new(Source::Binary, access).text("FN", name);
    cx.kernel(key, &[a, b], &[y], move |info| {
        let [a, b, y] = types.each_ref().map(|ty| info.shape(ty));
        let stride = |shape: &glia_core::Shape, d: usize| {
            let own = (d + shape.rank()).checked_sub(y.rank());
            own.filter(|&d| shape[d] > 1).map_or(0, |d| strides(shape)[d])
        };
        let mut walk = Walk::default();
        (0..y.rank()).for_each(|d| walk.dim(y[d], [stride(&a, d), stride(&b, d)]));
        walk.call()
    })
}

pub(super) fn cast(cx: &mut Lower<'_>, instr: &Instr) -> Result<(), BackendError> {
    let Op::Cast { to } = instr.op else { return Ok(()) };
    let (x, y) = (cx.value(instr.inputs[0])?, cx.value(instr.outputs[0])?);
    let ty = cx.ty(instr.outputs[0]).clone();
    let name = |dtype| if dtype == DType::F32 { "f32" } else { "i32" };
    let (from, into) = (name(cx.ty(instr.inputs[0]).dtype), name(to));
    let function = if from == into {
        into
    } else if to == DType::F32 {
        "to_f32"
    } else {
        "to_i32"
    };
    let key = |access: &[_]| {
        KernelKey::new(Source::Cast, access)
            .text("FROM", from)
            .text("TO", into)
            .text("FN", function)
    };
    cx.kernel(key, &[x], &[y], move |info| {
        let n = info.n_elems(&ty);
        Call::new(n.div_ceil(GROUP), &[n])
    })
}
