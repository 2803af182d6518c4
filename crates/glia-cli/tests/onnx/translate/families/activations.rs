//! Activation functions, gates and Clip.

use glia_core::{Gate, Op, Unary};
use glia_ir::Vid;

use super::arithmetic::{absolute, largest, operand};
use super::{Family, Outputs, like_first};
use crate::translate::{NodeCx, R, Translator};

pub const FAMILY: Family = &[
    ("Relu", |t, cx| plain(t, cx, Unary::Relu)),
    ("Sigmoid", |t, cx| plain(t, cx, Unary::Sigmoid)),
    ("Tanh", |t, cx| plain(t, cx, Unary::Tanh)),
    ("Exp", |t, cx| plain(t, cx, Unary::Exp)),
    ("Gelu", gelu),
    ("Swish", swish),
    ("SwiGLU", swiglu),
    ("Clip", clip),
    ("LeakyRelu", |t, cx| one(t, cx, leaky)),
    ("PRelu", prelu),
    ("ThresholdedRelu", |t, cx| one(t, cx, thresholded)),
    ("HardSigmoid", |t, cx| one(t, cx, hard_sigmoid)),
    ("HardSwish", |t, cx| one(t, cx, hard_swish)),
    ("Elu", |t, cx| one(t, cx, elu)),
    ("Selu", |t, cx| one(t, cx, selu)),
    ("Celu", |t, cx| one(t, cx, celu)),
    ("Softsign", |t, cx| one(t, cx, softsign)),
    ("Shrink", |t, cx| one(t, cx, shrink)),
];

fn plain(t: &mut Translator<'_>, cx: &NodeCx<'_>, op: Unary) -> Outputs {
    let x = if op == Unary::Relu {
        operand(t, cx, 0)?
    } else {
        t.float(cx, cx.input(0)?)?
    };
    let y = t.unary(op, x)?;
    like_first(cx, y)
}

fn one(t: &mut Translator<'_>, cx: &NodeCx<'_>, f: fn(&mut Translator<'_>, &NodeCx<'_>, Vid) -> R<Vid>) -> Outputs {
    let x = t.float(cx, cx.input(0)?)?;
    let y = f(t, cx, x)?;
    like_first(cx, y)
}

fn gelu(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let tanh = cx.text("approximate", "none") == "tanh";
    plain(t, cx, if tanh { Unary::GeluTanh } else { Unary::Gelu })
}

/// `x * sigmoid(alpha x)`.
fn swished(t: &mut Translator<'_>, x: Vid, alpha: f32) -> R<Vid> {
    if alpha == 1.0 {
        return t.unary(Unary::Silu, x);
    }
    let inner = t.scale(x, alpha)?;
    let gate = t.unary(Unary::Sigmoid, inner)?;
    t.mul(x, gate)
}

fn swish(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    one(t, cx, |t, cx, x| swished(t, x, cx.float("alpha", 1.0)))
}

fn swiglu(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let (gate, up) = (t.f32(cx.input(0)?)?, t.f32(cx.input(1)?)?);
    let alpha = cx.float("alpha", 1.0);
    let y = if alpha == 1.0 {
        t.op(Op::Gated(Gate::Silu), &[gate, up])?
    } else {
        let gate = swished(t, gate, alpha)?;
        t.mul(gate, up)?
    };
    like_first(cx, y)
}

/// Known bounds are a clamp (two when they cross: the upper one wins), others the larger and smaller of two tensors.
fn clip(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let mut y = operand(t, cx, 0)?;
    let bound = |i: usize| {
        cx.optional(i)
            .map(|v| v.host.as_ref().and_then(|a| a.data.first().copied()))
    };
    let attribute = |name: &str| cx.attribute(name).map(|a| Some(f64::from(a.f)));
    let (low, high) = (bound(1).or(attribute("min")), bound(2).or(attribute("max")));
    y = match low {
        Some(Some(low)) => t.clamp(y, low as f32, f32::INFINITY)?,
        Some(None) => {
            let low = operand(t, cx, 1)?;
            largest(t, &[y, low])?
        }
        None => t.view(y)?,
    };
    y = match high {
        Some(Some(high)) => t.clamp(y, f32::NEG_INFINITY, high as f32)?,
        Some(None) => {
            let high = operand(t, cx, 2)?;
            let (a, b) = (t.neg(y)?, t.neg(high)?);
            let y = largest(t, &[a, b])?;
            t.neg(y)?
        }
        None => y,
    };
    like_first(cx, y)
}

/// `relu(x)` and `relu(-x)`.
fn sides(t: &mut Translator<'_>, x: Vid) -> R<[Vid; 2]> {
    let minus = t.neg(x)?;
    Ok([t.unary(Unary::Relu, x)?, t.unary(Unary::Relu, minus)?])
}

fn leaky(t: &mut Translator<'_>, cx: &NodeCx<'_>, x: Vid) -> R<Vid> {
    let [up, down] = sides(t, x)?;
    let down = t.scale(down, cx.float("alpha", 0.01))?;
    t.sub(up, down)
}

fn prelu(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let x = t.f32(cx.input(0)?)?;
    let slope = t.f32(cx.input(1)?)?;
    let [up, down] = sides(t, x)?;
    let down = t.mul(down, slope)?;
    let y = t.sub(up, down)?;
    like_first(cx, y)
}

/// `x` where it exceeds `alpha`, else 0.
fn thresholded(t: &mut Translator<'_>, cx: &NodeCx<'_>, x: Vid) -> R<Vid> {
    let over = t.add_scalar(x, -cx.float("alpha", 1.0))?;
    let over = t.unary(Unary::Relu, over)?;
    let over = t.is_nonzero(over)?;
    t.mul(x, over)
}

fn hard_sigmoid(t: &mut Translator<'_>, cx: &NodeCx<'_>, x: Vid) -> R<Vid> {
    hard(t, x, cx.float("alpha", 0.2), cx.float("beta", 0.5))
}

fn hard(t: &mut Translator<'_>, x: Vid, alpha: f32, beta: f32) -> R<Vid> {
    let y = t.scale(x, alpha)?;
    let y = t.add_scalar(y, beta)?;
    t.clamp(y, 0.0, 1.0)
}

fn hard_swish(t: &mut Translator<'_>, _: &NodeCx<'_>, x: Vid) -> R<Vid> {
    let gate = hard(t, x, 1.0 / 6.0, 0.5)?;
    t.mul(x, gate)
}

/// `a * relu(x) + b * (e^(min(x, 0) / c) - 1)`.
fn exponential(t: &mut Translator<'_>, x: Vid, [a, b, c]: [f32; 3]) -> R<Vid> {
    let up = t.unary(Unary::Relu, x)?;
    let up = t.scale(up, a)?;
    let low = t.clamp(x, f32::NEG_INFINITY, 0.0)?;
    let low = t.scale(low, 1.0 / c)?;
    let low = t.unary(Unary::Exp, low)?;
    let low = t.add_scalar(low, -1.0)?;
    let low = t.scale(low, b)?;
    t.add(up, low)
}

fn elu(t: &mut Translator<'_>, cx: &NodeCx<'_>, x: Vid) -> R<Vid> {
    exponential(t, x, [1.0, cx.float("alpha", 1.0), 1.0])
}

fn selu(t: &mut Translator<'_>, cx: &NodeCx<'_>, x: Vid) -> R<Vid> {
    // The defaults of the definition.
    let (alpha, gamma) = (cx.float("alpha", 1.673_263_2), cx.float("gamma", 1.050_701));
    exponential(t, x, [gamma, gamma * alpha, 1.0])
}

fn celu(t: &mut Translator<'_>, cx: &NodeCx<'_>, x: Vid) -> R<Vid> {
    let alpha = cx.float("alpha", 1.0);
    exponential(t, x, [1.0, alpha, alpha])
}

/// `x / (1 + |x|)`.
fn softsign(t: &mut Translator<'_>, _: &NodeCx<'_>, x: Vid) -> R<Vid> {
    let size = absolute(t, x)?;
    let size = t.add_scalar(size, 1.0)?;
    t.div(x, size)
}

/// `x + bias` below `-lambd`, `x - bias` above `lambd`, else 0.
fn shrink(t: &mut Translator<'_>, cx: &NodeCx<'_>, x: Vid) -> R<Vid> {
    let (bias, lambda) = (cx.float("bias", 0.0), cx.float("lambd", 0.5));
    let side = |t: &mut Translator<'_>, x: Vid| -> R<Vid> {
        let over = t.add_scalar(x, -lambda)?;
        let over = t.unary(Unary::Relu, over)?;
        let over = t.is_nonzero(over)?;
        let moved = t.add_scalar(x, -bias)?;
        t.mul(over, moved)
    };
    let up = side(t, x)?;
    let minus = t.neg(x)?;
    let down = side(t, minus)?;
    t.sub(up, down)
}
