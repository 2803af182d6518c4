//! Cast, CastLike, and the quantised forms that are casts with a scale.

use glia_core::DType;
use glia_ir::Vid;

use super::{Family, Outputs};
use crate::array::Elem;
use crate::translate::{NodeCx, R, Reason, Stop, Translator, form};

pub const FAMILY: Family = &[
    ("Cast", cast),
    ("CastLike", cast),
    ("DequantizeLinear", dequantize),
    ("QuantizeLinear", quantize),
    ("DynamicQuantizeLinear", dynamic_quantize),
];

fn cast(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let x = cx.input(0)?;
    let to = match cx.op() {
        "Cast" => Elem(cx.int("to", 0) as i32),
        _ => cx.input(1)?.elem,
    };
    let Some(dtype) = to.dtype() else {
        return Err(Stop::NotCovered(Reason::Type(to.name())));
    };
    let mut vid = t.vid(x)?;
    if x.elem.is_float() && !to.is_float() && to != Elem::BOOL {
        // ONNX rounds towards zero, glia to nearest.
        vid = t.f32(x)?;
        vid = super::arithmetic::truncate(t, vid)?;
        return Ok(vec![(t.cast(vid, dtype)?, to)]);
    }
    // What is kept in F32 may hold more digits than its type says: first the type, then the cast.
    let vid = match x.elem.dtype() {
        Some(own) if own != dtype => t.cast(vid, own)?,
        _ => vid,
    };
    let y = t.cast(vid, dtype)?;
    let y = if y == vid { t.view(y)? } else { y };
    Ok(vec![(y, to)])
}

/// A parameter per tensor, per slice of `axis`, or per block of it, in the rank of input 0.
fn spread(t: &mut Translator<'_>, cx: &NodeCx<'_>, i: usize) -> R<Vid> {
    let (x, p) = (cx.input(0)?, cx.input(i)?);
    let rank = x.shape.len();
    let vid = t.f32(p)?;
    let block = cx.int("block_size", 0) as usize;
    let axis = cx.axis(cx.int("axis", 1), rank).unwrap_or(0);
    match p.shape.len() {
        0 => t.reshape(vid, &vec![1; rank]),
        1 if p.shape[0] == 1 => t.reshape(vid, &vec![1; rank]),
        1 if block == 0 => {
            let mut shape = vec![1; rank];
            shape[axis] = p.shape[0];
            t.reshape(vid, &shape)
        }
        _ if block > 0 && p.shape.len() == rank => {
            let y = t.op(glia_core::Op::Repeat { axis, n: block }, &[vid])?;
            t.slice(y, axis, 0, x.shape[axis])
        }
        _ => form("a scale of an unknown form"),
    }
}

/// `(x - zero) * scale`.
fn dequantize(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let x = cx.input(0)?;
    let mut y = t.f32(x)?;
    if cx.optional(2).is_some() {
        let zero = spread(t, cx, 2)?;
        y = t.sub(y, zero)?;
    }
    let scale = spread(t, cx, 1)?;
    let y = t.mul(y, scale)?;
    let to = match cx.int("output_dtype", 0) {
        0 => cx.input(1)?.elem,
        to => Elem(to as i32),
    };
    Ok(vec![(y, to)])
}

/// `saturate(round(x / scale) + zero)`: the casts of glia round to nearest even and saturate.
fn quantize(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let to = match (cx.optional(2), cx.int("output_dtype", 0)) {
        (Some(zero), _) => zero.elem,
        (None, 0) => Elem::U8,
        (None, to) => Elem(to as i32),
    };
    let Some(dtype) = to.dtype().filter(|d| d.is_int()) else {
        return Err(Stop::NotCovered(Reason::Type(to.name())));
    };
    let x = t.f32(cx.input(0)?)?;
    let scale = spread(t, cx, 1)?;
    let y = t.div(x, scale)?;
    let mut y = t.cast(y, DType::I32)?;
    if cx.optional(2).is_some() {
        let zero = spread(t, cx, 2)?;
        let whole = t.cast(y, DType::F32)?;
        y = t.add(whole, zero)?;
    }
    let y = t.cast(y, dtype)?;
    Ok(vec![(y, to)])
}

/// Range of the data stretched to hold 0, 255 steps, rounded zero point.
fn dynamic_quantize(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let x = t.f32(cx.input(0)?)?;
    let shape = cx.input(0)?.shape.clone();
    let n: usize = shape.iter().product();
    let flat = t.reshape(x, &[n])?;
    let end = |t: &mut Translator<'_>, v: Vid| -> R<Vid> {
        let top = t.op_n(glia_core::Op::TopK { k: 1 }, &[v])?[0];
        t.unary(glia_core::Unary::Relu, top)
    };
    let high = end(t, flat)?;
    let minus = t.neg(flat)?;
    let low = end(t, minus)?;
    let range = t.add(high, low)?;
    let steps = t.scalar(255.0)?;
    let scale = t.div(range, steps)?;
    let zero = t.div(low, scale)?;
    let zero = t.cast(zero, DType::U8)?;
    let wide = t.cast(zero, DType::F32)?;
    let y = t.div(flat, scale)?;
    let y = t.round_even(y)?;
    let y = t.add(y, wide)?;
    let y = t.cast(y, DType::U8)?;
    let y = t.reshape(y, &shape)?;
    let (scale, zero) = (t.reshape(scale, &[])?, t.reshape(zero, &[])?);
    Ok(vec![(y, Elem::U8), (scale, Elem::F32), (zero, Elem::U8)])
}
