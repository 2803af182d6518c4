//! Losses over known targets, and writes into a cache.

use glia_core::Op;

use super::{Family, Outputs, like_first};
use crate::translate::{NodeCx, Translator, form};

pub const FAMILY: Family = &[("NegativeLogLikelihoodLoss", nll), ("TensorScatter", tensor_scatter)];

/// `-weight[target] * x[.., target, ..]`, each, added up, or over the sum of the weights.
fn nll(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let (x, target) = (cx.input(0)?, cx.input(1)?);
    let (n_classes, inner) = (x.shape[1], x.shape[2..].iter().product::<usize>());
    let classes = cx.known(1)?.to_ints();
    let ignored = cx.attribute("ignore_index").map(|a| a.i);
    let counts: Vec<bool> = classes.iter().map(|&c| Some(c) != ignored).collect();
    let class = |i: usize| if counts[i] { classes[i].max(0) as usize } else { 0 };
    let n = classes.len();
    let at = |i: usize| (i / inner.max(1) * n_classes + class(i)) * inner + i % inner.max(1);
    let flat = t.float(cx, x)?;
    let flat = t.reshape(flat, &[x.shape.iter().product()])?;
    let indices = t.indices(&(0..n).map(at).collect::<Vec<_>>())?;
    let picked = t.gather(flat, 0, indices)?;
    let mut weights = t.floats(&[n], counts.iter().map(|&c| f64::from(u8::from(c))).collect())?;
    if let Some(given) = cx.optional(2) {
        let given = t.f32(given)?;
        let indices = t.indices(&(0..n).map(class).collect::<Vec<_>>())?;
        let given = t.gather(given, 0, indices)?;
        weights = t.mul(weights, given)?;
    }
    let losses = t.mul(picked, weights)?;
    let losses = t.neg(losses)?;
    let reduction = cx.text("reduction", "mean");
    if reduction == "none" {
        let y = t.reshape(losses, &target.shape)?;
        return like_first(cx, y);
    }
    let mut y = t.op(Op::Sum { axis: 0, keep: false }, &[losses])?;
    if reduction == "mean" {
        let total = t.op(Op::Sum { axis: 0, keep: false }, &[weights])?;
        y = t.div(y, total)?;
    }
    like_first(cx, y)
}

/// Updates written from a known place on, round the end when circular.
fn tensor_scatter(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let (past, update) = (cx.input(0)?, cx.input(1)?);
    let axis = cx.axis(cx.int("axis", -2), past.shape.len())?;
    let (batch, len, n_new) = (past.shape[0], past.shape[axis], update.shape[axis]);
    if axis == 0 {
        return form("TensorScatter: along the batch");
    }
    let starts = match cx.optional(2) {
        Some(_) => cx.known(2)?.to_ints(),
        None => vec![0; batch],
    };
    let circular = cx.text("mode", "linear") == "circular";
    let (past_vid, update_vid) = (t.vid(past)?, t.vid(update)?);
    let mut parts = Vec::new();
    for (seq, &start) in starts.iter().enumerate() {
        // Old rows first, new ones behind them: each row of the result comes from one of the two.
        let old = t.slice(past_vid, 0, seq, seq + 1)?;
        let new = t.slice(update_vid, 0, seq, seq + 1)?;
        let table = t.concat(&[old, new], axis)?;
        let mut rows: Vec<usize> = (0..len).collect();
        for i in 0..n_new {
            let at = start as usize + i;
            match rows.get_mut(if circular { at % len.max(1) } else { at }) {
                Some(row) => *row = len + i,
                None => return form("TensorScatter: beyond the end"),
            }
        }
        let rows = t.indices(&rows)?;
        parts.push(t.gather(table, axis, rows)?);
    }
    let y = t.concat(&parts, 0)?;
    like_first(cx, y)
}
