//! Comparisons, logic and selection. Truth is 0 or 1 in F32 until an output wants it as bool.

use glia_core::Binary;
use glia_ir::Vid;

use super::arithmetic::operand;
use super::{Family, Outputs};
use crate::array::Elem;
use crate::translate::ops::broadcast;
use crate::translate::{NodeCx, R, Translator};

pub const FAMILY: Family = &[
    ("Greater", |t, cx| ordered(t, cx, [0, 1], false)),
    ("Less", |t, cx| ordered(t, cx, [1, 0], false)),
    ("GreaterOrEqual", |t, cx| ordered(t, cx, [1, 0], true)),
    ("LessOrEqual", |t, cx| ordered(t, cx, [0, 1], true)),
    ("Equal", equal),
    ("And", and),
    ("Or", or),
    ("Xor", xor),
    ("Not", not),
    ("IsInf", is_inf),
    ("IsNaN", is_nan),
    ("Where", choose),
];

fn truth(vid: Vid) -> Outputs {
    Ok(vec![(vid, Elem::BOOL)])
}

/// Whether one operand exceeds the other, or the contrary.
fn ordered(t: &mut Translator<'_>, cx: &NodeCx<'_>, [a, b]: [usize; 2], negated: bool) -> Outputs {
    let (a, b) = (operand(t, cx, a)?, operand(t, cx, b)?);
    let over = t.greater(a, b)?;
    truth(if negated { t.one_minus(over)? } else { over })
}

/// Finite numbers are equal when nothing is between them; infinity is compared by its own test, when it is a constant.
fn equal(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    for (i, j) in [(0, 1), (1, 0)] {
        let constant = cx.input(i)?.host.as_ref().and_then(|a| a.data.first().copied());
        if let Some(value) = constant.filter(|v| v.is_infinite()) {
            let x = t.float(cx, cx.input(j)?)?;
            return truth(infinite(t, x, [value < 0.0, value > 0.0])?);
        }
    }
    let (a, b) = (operand(t, cx, 0)?, operand(t, cx, 1)?);
    let differ = t.sub(a, b)?;
    let differ = t.is_nonzero(differ)?;
    truth(t.one_minus(differ)?)
}

/// Whether `x` is infinite, of the signs asked for: below zero, above zero.
fn infinite(t: &mut Translator<'_>, x: Vid, [below, above]: [bool; 2]) -> R<Vid> {
    let found = t.is_infinite(x)?;
    if below && above {
        return Ok(found);
    }
    let side = if above { x } else { t.neg(x)? };
    let side = t.unary(glia_core::Unary::Relu, side)?;
    let side = t.is_nonzero(side)?;
    let wanted = t.scale(side, f32::from(u8::from(below || above)))?;
    t.mul(found, wanted)
}

fn is_inf(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let x = t.float(cx, cx.input(0)?)?;
    let signs = [cx.int("detect_negative", 1) != 0, cx.int("detect_positive", 1) != 0];
    truth(infinite(t, x, signs)?)
}

/// `x - x` is not 0 for what is no finite number.
fn is_nan(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let x = t.float(cx, cx.input(0)?)?;
    let differ = t.sub(x, x)?;
    let differ = t.is_nonzero(differ)?;
    let infinite = t.is_infinite(x)?;
    truth(t.sub(differ, infinite)?)
}

fn both(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> R<[Vid; 2]> {
    Ok([t.f32(cx.input(0)?)?, t.f32(cx.input(1)?)?])
}

fn and(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let [a, b] = both(t, cx)?;
    truth(t.mul(a, b)?)
}

fn or(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let [a, b] = both(t, cx)?;
    let sum = t.add(a, b)?;
    truth(t.clamp(sum, 0.0, 1.0)?)
}

/// `(a - b)²`.
fn xor(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let [a, b] = both(t, cx)?;
    let differ = t.binary(Binary::Sub, a, b)?;
    truth(t.mul(differ, differ)?)
}

fn not(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let x = t.f32(cx.input(0)?)?;
    truth(t.one_minus(x)?)
}

fn choose(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let vals = cx.all()?;
    let shape = broadcast(&vals.iter().map(|v| v.shape.as_slice()).collect::<Vec<_>>())?;
    let condition = t.f32(cx.input(0)?)?;
    let (mut yes, mut no) = (t.vid(cx.input(1)?)?, t.vid(cx.input(2)?)?);
    if t.dtype(yes)? != t.dtype(no)? {
        (yes, no) = (t.f32(cx.input(1)?)?, t.f32(cx.input(2)?)?);
    }
    let condition = t.expand(condition, &shape)?;
    let (yes, no) = (t.expand(yes, &shape)?, t.expand(no, &shape)?);
    let y = t.select(condition, yes, no)?;
    Ok(vec![(y, cx.input(1)?.elem)])
}
