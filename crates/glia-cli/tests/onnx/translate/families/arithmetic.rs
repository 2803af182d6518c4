//! Elementwise arithmetic with broadcasting, on floats, and on integers that F32 holds exactly.

use glia_core::{Binary, Op};
use glia_ir::Vid;

use super::{Family, Outputs, like_first};
use crate::translate::ops::broadcast;
use crate::translate::{NodeCx, R, Translator, form};

pub const FAMILY: Family = &[
    ("Add", |t, cx| binary(t, cx, Binary::Add)),
    ("Sub", |t, cx| binary(t, cx, Binary::Sub)),
    ("Mul", |t, cx| binary(t, cx, Binary::Mul)),
    ("Div", div),
    ("Mod", modulo),
    ("Pow", pow),
    ("Sum", |t, cx| fold(t, cx, Binary::Add)),
    ("Mean", mean),
    ("Max", |t, cx| extreme(t, cx, false)),
    ("Min", |t, cx| extreme(t, cx, true)),
    ("Neg", neg),
    ("Abs", abs),
    ("Reciprocal", reciprocal),
    ("Sign", sign),
    ("Floor", |t, cx| rounding(t, cx, |t, x| t.floor(x))),
    ("Round", |t, cx| rounding(t, cx, |t, x| t.round_even(x))),
    ("Ceil", ceil),
    ("Cos", |t, cx| rounding(t, cx, |t, x| Ok(cos_sin(t, x)?[0]))),
    ("Sin", |t, cx| rounding(t, cx, |t, x| Ok(cos_sin(t, x)?[1]))),
    ("Tan", tan),
    ("Cosh", |t, cx| hyperbolic(t, cx, Binary::Add)),
    ("Sinh", |t, cx| hyperbolic(t, cx, Binary::Sub)),
];

/// An operand in F32; integers only when all of the case's are exact there.
pub fn operand(t: &mut Translator<'_>, cx: &NodeCx<'_>, i: usize) -> R<Vid> {
    let val = cx.input(i)?;
    if !val.elem.is_float() && !t.exact_in_f32() {
        return form(format!("{} of integers that F32 does not hold", cx.op()));
    }
    t.f32(val)
}

fn binary(t: &mut Translator<'_>, cx: &NodeCx<'_>, op: Binary) -> Outputs {
    let (a, b) = (operand(t, cx, 0)?, operand(t, cx, 1)?);
    let y = t.binary(op, a, b)?;
    like_first(cx, y)
}

/// Integers are divided towards zero: the quotient of numbers below 2^24 rounds to no other whole number.
fn div(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let (a, b) = (operand(t, cx, 0)?, operand(t, cx, 1)?);
    let mut y = t.div(a, b)?;
    if !cx.input(0)?.elem.is_float() {
        y = truncate(t, y)?;
    }
    like_first(cx, y)
}

/// Towards zero.
pub fn truncate(t: &mut Translator<'_>, x: Vid) -> R<Vid> {
    let up = t.unary(glia_core::Unary::Relu, x)?;
    let up = t.floor(up)?;
    let down = t.neg(x)?;
    let down = t.unary(glia_core::Unary::Relu, down)?;
    let down = t.floor(down)?;
    t.sub(up, down)
}

/// `a - b * floor(a / b)`, with `fmod` `a - b * trunc(a / b)`.
fn modulo(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    if cx.input(0)?.elem.is_float() {
        return form("the remainder of floats needs a quotient that is exact");
    }
    let (a, b) = (operand(t, cx, 0)?, operand(t, cx, 1)?);
    let quotient = t.div(a, b)?;
    let quotient = if cx.flag("fmod") {
        truncate(t, quotient)?
    } else {
        t.floor(quotient)?
    };
    let whole = t.mul(b, quotient)?;
    let y = t.sub(a, whole)?;
    like_first(cx, y)
}

/// Powers with a known, whole, small exponent.
fn pow(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let exponent = match cx.known(1)?.data[..] {
        [e] if e.fract() == 0.0 && (1.0..=8.0).contains(&e) => e as usize,
        _ => return form("Pow: only with one small whole exponent"),
    };
    let x = operand(t, cx, 0)?;
    let mut y = x;
    for _ in 1..exponent {
        y = t.mul(y, x)?;
    }
    like_first(cx, y)
}

fn folded(t: &mut Translator<'_>, cx: &NodeCx<'_>, op: Binary) -> R<Vid> {
    let mut y = operand(t, cx, 0)?;
    for i in 1..cx.n_inputs() {
        let x = operand(t, cx, i)?;
        y = t.binary(op, y, x)?;
    }
    if cx.n_inputs() == 1 { t.view(y) } else { Ok(y) }
}

fn fold(t: &mut Translator<'_>, cx: &NodeCx<'_>, op: Binary) -> Outputs {
    let y = folded(t, cx, op)?;
    like_first(cx, y)
}

fn mean(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let sum = folded(t, cx, Binary::Add)?;
    let y = t.scale(sum, 1.0 / cx.n_inputs() as f32)?;
    like_first(cx, y)
}

/// The largest of several tensors: side by side in a new last dimension, the top one.
pub fn largest(t: &mut Translator<'_>, operands: &[Vid]) -> R<Vid> {
    let shapes = operands.iter().map(|&v| t.shape(v)).collect::<R<Vec<_>>>()?;
    let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
    let shape = broadcast(&shapes)?;
    let mut column = shape.clone();
    column.push(1);
    let mut columns = Vec::new();
    for &x in operands {
        let x = t.expand(x, &shape)?;
        columns.push(t.reshape(x, &column)?);
    }
    let table = t.concat(&columns, shape.len())?;
    t.max_last(table)
}

fn extreme(t: &mut Translator<'_>, cx: &NodeCx<'_>, smallest: bool) -> Outputs {
    let mut operands = Vec::new();
    for i in 0..cx.n_inputs() {
        let x = operand(t, cx, i)?;
        operands.push(if smallest { t.neg(x)? } else { x });
    }
    let y = largest(t, &operands)?;
    let y = if smallest { t.neg(y)? } else { y };
    like_first(cx, y)
}

fn neg(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let x = operand(t, cx, 0)?;
    let y = t.neg(x)?;
    like_first(cx, y)
}

/// `relu(x) + relu(-x)`.
pub fn absolute(t: &mut Translator<'_>, x: Vid) -> R<Vid> {
    let minus = t.neg(x)?;
    let (a, b) = (
        t.unary(glia_core::Unary::Relu, x)?,
        t.unary(glia_core::Unary::Relu, minus)?,
    );
    t.add(a, b)
}

fn abs(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let x = operand(t, cx, 0)?;
    let y = absolute(t, x)?;
    like_first(cx, y)
}

fn reciprocal(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let x = t.float(cx, cx.input(0)?)?;
    let one = t.scalar(1.0)?;
    let y = t.div(one, x)?;
    let y = t.reshape(y, &cx.input(0)?.shape)?;
    like_first(cx, y)
}

/// `(x > 0) - (x < 0)`.
fn sign(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let x = operand(t, cx, 0)?;
    let minus = t.neg(x)?;
    let (up, down) = (
        t.unary(glia_core::Unary::Relu, x)?,
        t.unary(glia_core::Unary::Relu, minus)?,
    );
    let (up, down) = (t.is_nonzero(up)?, t.is_nonzero(down)?);
    let y = t.sub(up, down)?;
    like_first(cx, y)
}

fn rounding(t: &mut Translator<'_>, cx: &NodeCx<'_>, f: impl Fn(&mut Translator<'_>, Vid) -> R<Vid>) -> Outputs {
    let x = t.float(cx, cx.input(0)?)?;
    let y = f(t, x)?;
    like_first(cx, y)
}

fn ceil(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let x = t.float(cx, cx.input(0)?)?;
    let x = t.neg(x)?;
    let y = t.floor(x)?;
    let y = t.neg(y)?;
    like_first(cx, y)
}

/// Rotating `(1, 0)` by the angle at position 1 gives its cosine and sine: the rotary embedding with `x` as frequencies.
fn cos_sin(t: &mut Translator<'_>, x: Vid) -> R<[Vid; 2]> {
    let shape = t.shape(x)?;
    let n: usize = shape.iter().product();
    let freqs = t.reshape(x, &[n])?;
    let pairs = t.floats(&[1, 1, 2 * n], (0..2 * n).map(|i| f64::from(u8::from(i < n))).collect())?;
    let position = t.indices(&[1])?;
    let rope = glia_core::Rope {
        pairing: glia_core::RopePairing::NeoX,
        scale: 1.0,
        long_from: None,
    };
    let turned = t.op(Op::Rope(rope), &[pairs, position, freqs])?;
    let mut halves = [turned; 2];
    for (i, half) in halves.iter_mut().enumerate() {
        let cut = t.slice(turned, 2, i * n, (i + 1) * n)?;
        *half = t.reshape(cut, &shape)?;
    }
    Ok(halves)
}

fn tan(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    rounding(t, cx, |t, x| {
        let [cos, sin] = cos_sin(t, x)?;
        t.div(sin, cos)
    })
}

/// `(e^x ± e^-x) / 2`.
fn hyperbolic(t: &mut Translator<'_>, cx: &NodeCx<'_>, op: Binary) -> Outputs {
    let x = t.float(cx, cx.input(0)?)?;
    let minus = t.neg(x)?;
    let (a, b) = (
        t.unary(glia_core::Unary::Exp, x)?,
        t.unary(glia_core::Unary::Exp, minus)?,
    );
    let y = t.binary(op, a, b)?;
    let y = t.scale(y, 0.5)?;
    like_first(cx, y)
}
