//! Reductions over any axes, and running ones.

use glia_core::Op;
use glia_ir::Vid;

use super::arithmetic::{absolute, operand};
use super::{Family, Outputs, like_first};
use crate::translate::{NodeCx, R, Translator, form};

pub const FAMILY: Family = &[
    ("ReduceSum", |t, cx| reduce(t, cx, sum)),
    ("ReduceMean", |t, cx| reduce(t, cx, mean)),
    ("ReduceSumSquare", |t, cx| reduce(t, cx, sum_square)),
    ("ReduceL1", |t, cx| reduce(t, cx, l1)),
    ("ReduceMax", |t, cx| reduce(t, cx, largest)),
    ("ReduceMin", |t, cx| reduce(t, cx, smallest)),
    ("ReduceProd", |t, cx| reduce(t, cx, prod)),
    ("GlobalAveragePool", |t, cx| pool(t, cx, mean)),
    ("GlobalMaxPool", |t, cx| pool(t, cx, largest)),
    ("CumSum", cum_sum),
    ("CumProd", cum_prod),
];

/// Reduces the last dimension and drops it.
type Last = fn(&mut Translator<'_>, Vid) -> R<Vid>;

fn reduce(t: &mut Translator<'_>, cx: &NodeCx<'_>, f: Last) -> Outputs {
    let x = cx.input(0)?;
    let rank = x.shape.len();
    let axes = match cx.list("axes", 1)? {
        Some(axes) if !axes.is_empty() => cx.axes(&axes, rank)?,
        _ if cx.flag("noop_with_empty_axes") => vec![],
        _ => (0..rank).collect(),
    };
    let vid = operand(t, cx, 0)?;
    let y = reduced(t, vid, &axes, cx.int("keepdims", 1) != 0, f)?;
    like_first(cx, y)
}

fn reduced(t: &mut Translator<'_>, x: Vid, axes: &[usize], keep: bool, f: Last) -> R<Vid> {
    let shape = t.shape(x)?;
    // Without axes each element is reduced on its own.
    let (rows, front) = t.axes_last(x, axes)?;
    let y = f(t, rows)?;
    let shape = match keep {
        true => (0..shape.len())
            .map(|i| if axes.contains(&i) { 1 } else { shape[i] })
            .collect(),
        false => front,
    };
    t.reshape(y, &shape)
}

fn last(t: &Translator<'_>, x: Vid) -> R<usize> {
    Ok(t.shape(x)?.len().saturating_sub(1))
}

fn sum(t: &mut Translator<'_>, x: Vid) -> R<Vid> {
    let axis = last(t, x)?;
    t.op(Op::Sum { axis, keep: false }, &[x])
}

fn mean(t: &mut Translator<'_>, x: Vid) -> R<Vid> {
    let axis = last(t, x)?;
    t.op(Op::Mean { axis, keep: false }, &[x])
}

fn sum_square(t: &mut Translator<'_>, x: Vid) -> R<Vid> {
    let x = t.mul(x, x)?;
    sum(t, x)
}

fn l1(t: &mut Translator<'_>, x: Vid) -> R<Vid> {
    let x = absolute(t, x)?;
    sum(t, x)
}

fn largest(t: &mut Translator<'_>, x: Vid) -> R<Vid> {
    if t.shape(x)?.last() == Some(&0) {
        return form("the largest of nothing");
    }
    t.max_last(x)
}

fn smallest(t: &mut Translator<'_>, x: Vid) -> R<Vid> {
    let x = t.neg(x)?;
    let y = largest(t, x)?;
    t.neg(y)
}

/// One factor at a time.
fn prod(t: &mut Translator<'_>, x: Vid) -> R<Vid> {
    let axis = last(t, x)?;
    let mut shape = t.shape(x)?;
    let n = shape.pop().unwrap_or(1);
    if n == 0 {
        return form("the product of nothing");
    }
    let mut y = t.slice(x, axis, 0, 1)?;
    for i in 1..n {
        let factor = t.slice(x, axis, i, i + 1)?;
        y = t.mul(y, factor)?;
    }
    t.reshape(y, &shape)
}

fn pool(t: &mut Translator<'_>, cx: &NodeCx<'_>, f: Last) -> Outputs {
    let rank = cx.input(0)?.shape.len();
    let vid = t.float(cx, cx.input(0)?)?;
    let axes: Vec<usize> = (2..rank).collect();
    let y = reduced(t, vid, &axes, true, f)?;
    like_first(cx, y)
}

/// A product with the triangle of ones.
fn cum_sum(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let x = cx.input(0)?;
    let rank = x.shape.len();
    let axis = cx.axis(cx.known(1)?.to_ints().first().copied().unwrap_or(0), rank)?;
    let n = x.shape[axis];
    let (exclusive, reverse) = (cx.flag("exclusive"), cx.flag("reverse"));
    let counts = |to: usize, from: usize| {
        let (to, from) = if reverse { (from, to) } else { (to, from) };
        if exclusive { from < to } else { from <= to }
    };
    let triangle = (0..n * n).map(|i| f64::from(u8::from(counts(i / n, i % n)))).collect();
    let triangle = t.floats(&[n, n], triangle)?;
    let vid = operand(t, cx, 0)?;
    let mut perm: Vec<usize> = (0..rank).collect();
    perm.swap(axis, rank - 1);
    let rows = t.permute(vid, &perm)?;
    let y = t.op(Op::MatMul, &[rows, triangle])?;
    let y = t.permute(y, &perm)?;
    like_first(cx, y)
}

fn cum_prod(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let x = cx.input(0)?;
    let axis = cx.axis(cx.known(1)?.to_ints().first().copied().unwrap_or(0), x.shape.len())?;
    let n = x.shape[axis];
    let (exclusive, reverse) = (cx.flag("exclusive"), cx.flag("reverse"));
    let vid = operand(t, cx, 0)?;
    let mut shape = x.shape.clone();
    shape[axis] = 1;
    let ones = vec![1.0; shape.iter().product()];
    let mut running = t.floats(&shape, ones)?;
    let mut slices = Vec::new();
    for step in 0..n {
        let i = if reverse { n - 1 - step } else { step };
        let factor = t.slice(vid, axis, i, i + 1)?;
        let next = t.mul(running, factor)?;
        slices.push(if exclusive { running } else { next });
        running = next;
    }
    if reverse {
        slices.reverse();
    }
    let y = t.concat(&slices, axis)?;
    like_first(cx, y)
}
