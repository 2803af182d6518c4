//! Normalisations and softmax. Ours work on the last dimension: others get there by permuting and reshaping.

use glia_core::Op;
use glia_ir::Vid;

use super::{Family, Outputs, like_first};
use crate::array::Elem;
use crate::translate::{NodeCx, R, Translator, form};

pub const FAMILY: Family = &[
    ("Softmax", softmax),
    ("RMSNormalization", rms_norm),
    ("LayerNormalization", layer_norm),
    ("GroupNormalization", group_norm),
    ("InstanceNormalization", instance_norm),
    ("MeanVarianceNormalization", mean_variance),
    ("LpNormalization", lp_norm),
];

/// Before opset 13 all dimensions from the axis on are one.
fn softmax(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let x = cx.input(0)?;
    let rank = x.shape.len();
    let old = cx.opset < 13;
    let axis = cx.axis(cx.int("axis", if old { 1 } else { -1 }), rank)?;
    let vid = t.float(cx, x)?;
    let y = if old {
        let n = x.shape[..axis].iter().product();
        let m = x.shape[axis..].iter().product();
        let flat = t.reshape(vid, &[n, m])?;
        let y = t.op(Op::Softmax { axis: 1 }, &[flat])?;
        t.reshape(y, &x.shape)?
    } else {
        t.op(Op::Softmax { axis }, &[vid])?
    };
    like_first(cx, y)
}

/// Rows of the dimensions from `axis` on, and how long they are.
fn rows(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> R<(Vid, [usize; 2])> {
    let x = cx.input(0)?;
    let axis = cx.axis(cx.int("axis", -1), x.shape.len())?;
    let n = x.shape[..axis].iter().product();
    let d = x.shape[axis..].iter().product();
    let vid = t.float(cx, x)?;
    Ok((t.reshape(vid, &[n, d])?, [n, d]))
}

/// A gain or bias of the normalised dimensions as a vector, or `None` when it varies otherwise.
fn vector(t: &mut Translator<'_>, cx: &NodeCx<'_>, i: usize, d: usize) -> R<Option<Vid>> {
    let val = cx.input(i)?;
    if val.shape.iter().product::<usize>() != d {
        return Ok(None);
    }
    let vid = t.f32(val)?;
    Ok(Some(t.reshape(vid, &[d])?))
}

fn rms_norm(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let (x, [_, d]) = rows(t, cx)?;
    let eps = cx.float("epsilon", 1e-5);
    let op = Op::RmsNorm { eps, plus_one: false };
    let shape = cx.input(0)?.shape.clone();
    let y = match vector(t, cx, 1, d)? {
        Some(gain) => {
            let y = t.op(op, &[x, gain])?;
            t.reshape(y, &shape)?
        }
        None => {
            let y = t.op(op, &[x])?;
            let y = t.reshape(y, &shape)?;
            let gain = t.f32(cx.input(1)?)?;
            t.mul(y, gain)?
        }
    };
    like_first(cx, y)
}

/// The mean is a second output; the inverse of the deviation needs a root that the vocabulary lacks on its own.
fn layer_norm(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let (x, [_, d]) = rows(t, cx)?;
    let mut inputs = vec![x];
    for i in 1..cx.n_inputs().min(3) {
        match vector(t, cx, i, d)? {
            Some(vid) => inputs.push(vid),
            None => return form("LayerNormalization: a gain that is broadcast"),
        }
    }
    let eps = cx.float("epsilon", 1e-5);
    let y = t.op(Op::LayerNorm { eps }, &inputs)?;
    let shape = cx.input(0)?.shape.clone();
    let y = t.reshape(y, &shape)?;
    let mut outputs = vec![(y, cx.input(0)?.elem)];
    if cx.wants(1) || cx.wants(2) {
        let axis = cx.axis(cx.int("axis", -1), shape.len())?;
        let mut kept = shape.clone();
        kept[axis..].fill(1);
        let mean = t.op(Op::Mean { axis: 1, keep: true }, &[x])?;
        let mean = t.reshape(mean, &kept)?;
        outputs.push((mean, Elem::F32));
        if cx.wants(2) {
            let inverse = inverse_deviation(t, x, eps)?;
            outputs.push((t.reshape(inverse, &kept)?, Elem::F32));
        }
    }
    Ok(outputs)
}

/// `1 / sqrt(var + eps)` of each row: what normalising makes of one more deviation. With `c = x - mean` the normalised
/// row is `c * inverse`, so that `sum(c * normalised) / sum(c * c)` is the inverse.
fn inverse_deviation(t: &mut Translator<'_>, x: Vid, eps: f32) -> R<Vid> {
    let mean = t.op(Op::Mean { axis: 1, keep: true }, &[x])?;
    let centred = t.sub(x, mean)?;
    let normal = t.op(Op::LayerNorm { eps }, &[x])?;
    let (above, below) = (t.mul(centred, normal)?, t.mul(centred, centred)?);
    let (above, below) = (t.sum(above, 1)?, t.sum(below, 1)?);
    t.div(above, below)
}

/// LayerNorm over rows of one group, then gain and bias per channel.
fn grouped(t: &mut Translator<'_>, cx: &NodeCx<'_>, n_groups: usize) -> Outputs {
    let x = cx.input(0)?;
    let [n, c, ..] = x.shape[..] else {
        return form("fewer than two dimensions");
    };
    let inner: usize = x.shape[2..].iter().product();
    let vid = t.float(cx, x)?;
    let rows = t.reshape(vid, &[n * n_groups, c / n_groups * inner])?;
    let y = t.op(
        Op::LayerNorm {
            eps: cx.float("epsilon", 1e-5),
        },
        &[rows],
    )?;
    let y = t.reshape(y, &[n, c, inner])?;
    let mut per_channel = [y; 2];
    for (i, slot) in per_channel.iter_mut().enumerate() {
        let val = cx.input(i + 1)?;
        if val.shape != [c] {
            return form("gain and bias per group");
        }
        let vid = t.f32(val)?;
        *slot = t.reshape(vid, &[1, c, 1])?;
    }
    let y = t.mul(y, per_channel[0])?;
    let y = t.add(y, per_channel[1])?;
    let y = t.reshape(y, &x.shape)?;
    like_first(cx, y)
}

fn group_norm(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    grouped(t, cx, cx.int("num_groups", 1) as usize)
}

fn instance_norm(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let channels = cx.input(0)?.shape.get(1).copied().unwrap_or(1);
    grouped(t, cx, channels)
}

fn mean_variance(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let x = cx.input(0)?;
    let rank = x.shape.len();
    let axes = cx.axes(&cx.ints("axes").unwrap_or_else(|| vec![0, 2, 3]), rank)?;
    let kept: Vec<usize> = (0..rank).filter(|i| !axes.contains(i)).collect();
    let order: Vec<usize> = kept.iter().chain(&axes).copied().collect();
    let vid = t.float(cx, x)?;
    let (rows, _) = t.axes_last(vid, &axes)?;
    // Added to the deviation there, inside the root here: too small to be seen in either place.
    let y = t.op(Op::LayerNorm { eps: 0.0 }, &[rows])?;
    let moved: Vec<usize> = order.iter().map(|&i| x.shape[i]).collect();
    let y = t.reshape(y, &moved)?;
    let back: Vec<usize> = (0..rank).filter_map(|i| order.iter().position(|&o| o == i)).collect();
    let y = t.permute(y, &back)?;
    like_first(cx, y)
}

/// `x / |x|_p` along an axis: for p = 2 an RMSNorm over the root of its length.
fn lp_norm(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let x = cx.input(0)?;
    let rank = x.shape.len();
    let axis = cx.axis(cx.int("axis", -1), rank)?;
    let vid = t.float(cx, x)?;
    if cx.int("p", 2) == 1 {
        let size = super::arithmetic::absolute(t, vid)?;
        let size = t.sum(size, axis)?;
        let y = t.div(vid, size)?;
        return like_first(cx, y);
    }
    let mut perm: Vec<usize> = (0..rank).collect();
    perm.swap(axis, rank - 1);
    let moved = t.permute(vid, &perm)?;
    // Too small to be seen beside any other square; it keeps a row of zeros zero.
    let op = Op::RmsNorm {
        eps: f32::MIN_POSITIVE,
        plus_one: false,
    };
    let y = t.op(op, &[moved])?;
    let y = t.scale(y, (1.0 / (x.shape[axis] as f64).sqrt()) as f32)?;
    let y = t.permute(y, &perm)?;
    like_first(cx, y)
}
