//! Choosing elements: Gather and its kin, scatters, ArgMax, TopK, OneHot, Trilu, Compress.

use glia_core::{DType, Op};
use glia_ir::Vid;

use super::arithmetic::operand;
use super::{Family, Outputs, like_first};
use crate::array::Elem;
use crate::translate::{NodeCx, R, Translator, Val, broken, form};

pub const FAMILY: Family = &[
    ("Gather", gather),
    ("GatherElements", gather_elements),
    ("GatherND", gather_nd),
    ("ScatterElements", scatter_elements),
    ("Scatter", scatter_elements),
    ("ScatterND", scatter_nd),
    ("Compress", compress),
    ("ReverseSequence", reverse_sequence),
    ("Trilu", trilu),
    ("ArgMax", |t, cx| arg(t, cx, false)),
    ("ArgMin", |t, cx| arg(t, cx, true)),
    ("TopK", top_k),
    ("Hardmax", hardmax),
    ("OneHot", one_hot),
];

/// Indices from an input; negative ones count from the end, which only known ones can be asked for.
fn index_vector(t: &mut Translator<'_>, val: &Val, n: usize) -> R<Vid> {
    if let Some(host) = &val.host
        && host.data.iter().any(|&i| i < 0.0)
    {
        let from_end = |i: i64| usize::try_from(if i < 0 { i + n as i64 } else { i }).unwrap_or(usize::MAX);
        return t.indices(&host.to_ints().into_iter().map(from_end).collect::<Vec<_>>());
    }
    let vid = t.vid(val)?;
    let n_indices = val.shape.iter().product();
    let vid = t.reshape(vid, &[n_indices])?;
    if t.dtype(vid)?.is_int() {
        Ok(vid)
    } else {
        t.cast(vid, DType::I64)
    }
}

fn gather(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let (x, at) = (cx.input(0)?, cx.input(1)?);
    let axis = cx.axis(cx.int("axis", 0), x.shape.len())?;
    let indices = index_vector(t, at, x.shape[axis])?;
    let vid = t.vid(x)?;
    let y = t.gather(vid, axis, indices)?;
    let shape = [&x.shape[..axis], &at.shape, &x.shape[axis + 1..]].concat();
    let y = t.reshape(y, &shape)?;
    like_first(cx, y)
}

/// Steps between neighbours of each dimension.
fn strides(shape: &[usize]) -> Vec<usize> {
    let mut out = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        out[i - 1] = out[i] * shape[i];
    }
    out
}

/// Flat positions that indices along `axis` name, one for each element of the indices.
fn along(cx: &NodeCx<'_>, shape: &[usize], indices: usize, axis: usize) -> R<Vec<usize>> {
    let at = cx.known(indices)?;
    let (steps, own) = (strides(shape), strides(&at.shape));
    let n = shape[axis] as f64;
    let flat = |(flat, &i): (usize, &f64)| {
        let mut position = 0;
        for (d, &step) in steps.iter().enumerate() {
            let here = flat / own[d] % at.shape[d];
            position += step
                * if d == axis {
                    (if i < 0.0 { i + n } else { i }) as usize
                } else {
                    here
                };
        }
        position
    };
    Ok(at.data.iter().enumerate().map(flat).collect())
}

/// Elements of the flattened tensor at known positions.
fn pick_flat(t: &mut Translator<'_>, x: Vid, positions: &[usize], shape: &[usize]) -> R<Vid> {
    let n = t.shape(x)?.iter().product();
    let flat = t.reshape(x, &[n])?;
    let at = t.indices(positions)?;
    let y = t.gather(flat, 0, at)?;
    t.reshape(y, shape)
}

fn gather_elements(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let (x, at) = (cx.input(0)?, cx.input(1)?);
    let axis = cx.axis(cx.int("axis", 0), x.shape.len())?;
    let positions = along(cx, &x.shape, 1, axis)?;
    let vid = t.vid(x)?;
    let y = pick_flat(t, vid, &positions, &at.shape)?;
    like_first(cx, y)
}

/// For each index tuple (the last dimension of the indices), the block that it names: its start and its size.
fn blocks(cx: &NodeCx<'_>, shape: &[usize], indices: usize, batch: usize) -> R<(Vec<usize>, usize)> {
    let at = cx.known(indices)?;
    let Some(&depth) = at.shape.last() else {
        return broken("indices without a dimension");
    };
    let steps = strides(shape);
    let n_tuples = at.data.len().checked_div(depth).unwrap_or(1);
    let per_batch = n_tuples / at.shape[..batch].iter().product::<usize>().max(1);
    let start = |tuple: usize| {
        let mut position = 0;
        let mut left = tuple / per_batch.max(1);
        for d in (0..batch).rev() {
            position += left % shape[d] * steps[d];
            left /= shape[d];
        }
        for (k, &i) in at.data[tuple * depth..(tuple + 1) * depth].iter().enumerate() {
            let n = shape[batch + k] as f64;
            position += (if i < 0.0 { i + n } else { i }) as usize * steps[batch + k];
        }
        position
    };
    let size = shape[batch + depth..].iter().product();
    Ok(((0..n_tuples).map(start).collect(), size))
}

fn gather_nd(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let (x, at) = (cx.input(0)?, cx.input(1)?);
    let batch = cx.int("batch_dims", 0) as usize;
    let (starts, size) = blocks(cx, &x.shape, 1, batch)?;
    let positions: Vec<usize> = starts.iter().flat_map(|&s| s..s + size).collect();
    let depth = at.shape.last().copied().unwrap_or(0);
    let shape = [&at.shape[..at.shape.len() - 1], &x.shape[batch + depth..]].concat();
    let vid = t.vid(x)?;
    let y = pick_flat(t, vid, &positions, &shape)?;
    like_first(cx, y)
}

/// Data and updates side by side; each element of the result comes from one of them.
fn scatter(t: &mut Translator<'_>, cx: &NodeCx<'_>, positions: &[usize]) -> Outputs {
    let x = cx.input(0)?;
    let n: usize = x.shape.iter().product();
    match cx.text("reduction", "none").as_str() {
        "none" => {}
        "add" => return scatter_add(t, cx, positions),
        other => return form(format!("a scatter that reduces by {other}")),
    }
    let mut from: Vec<usize> = (0..n).collect();
    for (i, &p) in positions.iter().enumerate() {
        match from.get_mut(p) {
            Some(slot) => *slot = n + i,
            None => return broken("a scatter index is outside"),
        }
    }
    let (data, updates) = (t.vid(x)?, t.vid(cx.input(2)?)?);
    let (data, updates) = (t.reshape(data, &[n])?, t.reshape(updates, &[positions.len()])?);
    let table = t.concat(&[data, updates], 0)?;
    let y = pick_flat(t, table, &from, &x.shape)?;
    like_first(cx, y)
}

/// Updates times the matrix that says which element each belongs to.
fn scatter_add(t: &mut Translator<'_>, cx: &NodeCx<'_>, positions: &[usize]) -> Outputs {
    let x = cx.input(0)?;
    let n: usize = x.shape.iter().product();
    let m = positions.len();
    let belongs = (0..n * m)
        .map(|i| f64::from(u8::from(positions[i % m] == i / m)))
        .collect();
    let belongs = t.floats(&[n, m], belongs)?;
    let (data, updates) = (operand(t, cx, 0)?, operand(t, cx, 2)?);
    let updates = t.reshape(updates, &[1, m])?;
    let sums = t.op(Op::MatMul, &[updates, belongs])?;
    let sums = t.reshape(sums, &x.shape)?;
    let y = t.add(data, sums)?;
    like_first(cx, y)
}

fn scatter_elements(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let x = cx.input(0)?;
    let axis = cx.axis(cx.int("axis", 0), x.shape.len())?;
    let positions = along(cx, &x.shape, 1, axis)?;
    scatter(t, cx, &positions)
}

fn scatter_nd(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let (starts, size) = blocks(cx, &cx.input(0)?.shape, 1, 0)?;
    let positions: Vec<usize> = starts.iter().flat_map(|&s| s..s + size).collect();
    scatter(t, cx, &positions)
}

fn compress(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let x = cx.input(0)?;
    let kept: Vec<usize> = (0..)
        .zip(&cx.known(1)?.data)
        .filter(|(_, v)| **v != 0.0)
        .map(|(i, _)| i)
        .collect();
    let vid = t.vid(x)?;
    let y = match cx.attribute("axis") {
        Some(a) => {
            let axis = cx.axis(a.i, x.shape.len())?;
            let at = t.indices(&kept)?;
            t.gather(vid, axis, at)?
        }
        None => pick_flat(t, vid, &kept, &[kept.len()])?,
    };
    like_first(cx, y)
}

fn reverse_sequence(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let x = cx.input(0)?;
    let (batch, time) = (cx.int("batch_axis", 1) as usize, cx.int("time_axis", 0) as usize);
    let lens = cx.known(1)?.to_ints();
    let steps = strides(&x.shape);
    let n: usize = x.shape.iter().product();
    let from = |flat: usize| {
        let at = |axis: usize| flat / steps[axis] % x.shape[axis];
        let (len, i) = (lens[at(batch)] as usize, at(time));
        if i < len {
            flat - i * steps[time] + (len - 1 - i) * steps[time]
        } else {
            flat
        }
    };
    let positions: Vec<usize> = (0..n).map(from).collect();
    let vid = t.vid(x)?;
    let y = pick_flat(t, vid, &positions, &x.shape)?;
    like_first(cx, y)
}

/// Elements of a triangle, and a zero for the others.
fn trilu(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let x = cx.input(0)?;
    let [.., h, w] = x.shape[..] else {
        return form("fewer than two dimensions");
    };
    let k = match cx.optional(1) {
        Some(_) => cx.known(1)?.to_ints().first().copied().unwrap_or(0),
        None => 0,
    };
    let upper = cx.int("upper", 1) != 0;
    let n: usize = x.shape.iter().product();
    let from = |flat: usize| {
        let ahead = (flat % w) as i64 - (flat / w % h) as i64;
        let kept = if upper { ahead >= k } else { ahead <= k };
        if kept { flat } else { n }
    };
    let positions: Vec<usize> = (0..n).map(from).collect();
    let vid = t.vid(x)?;
    let flat = t.reshape(vid, &[n])?;
    let zero = t.constant(&crate::array::Array::new(x.elem, &[1], vec![0.0]))?;
    let zero = t.cast(zero, t.dtype(flat)?)?;
    let table = t.concat(&[flat, zero], 0)?;
    let y = pick_flat(t, table, &positions, &x.shape)?;
    like_first(cx, y)
}

fn arg(t: &mut Translator<'_>, cx: &NodeCx<'_>, smallest: bool) -> Outputs {
    let x = cx.input(0)?;
    let axis = cx.axis(cx.int("axis", 0), x.shape.len())?;
    let n = x.shape[axis];
    let mut vid = operand(t, cx, 0)?;
    if smallest {
        vid = t.neg(vid)?;
    }
    let backwards = cx.flag("select_last_index");
    if backwards {
        let at = t.indices(&(0..n).rev().collect::<Vec<_>>())?;
        vid = t.gather(vid, axis, at)?;
    }
    let mut y = t.op(Op::Argmax { axis }, &[vid])?;
    if backwards {
        let from_end = t.cast(y, DType::F32)?;
        let from_end = t.neg(from_end)?;
        y = t.add_scalar(from_end, (n - 1) as f32)?;
    }
    let mut shape = x.shape.clone();
    if cx.int("keepdims", 1) != 0 {
        shape[axis] = 1;
    } else {
        shape.remove(axis);
    }
    let y = t.reshape(y, &shape)?;
    Ok(vec![(y, Elem::I64)])
}

/// Ours falls and takes the last dimension: the smallest are the largest of the negated.
fn top_k(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let x = cx.input(0)?;
    let rank = x.shape.len();
    let axis = cx.axis(cx.int("axis", -1), rank)?;
    let k = match cx.list("k", 1)? {
        Some(k) => k.first().copied().unwrap_or(1) as usize,
        None => cx.int("k", 1) as usize,
    };
    let largest = cx.int("largest", 1) != 0;
    let mut perm: Vec<usize> = (0..rank).collect();
    perm.swap(axis, rank - 1);
    let mut vid = operand(t, cx, 0)?;
    if !largest {
        vid = t.neg(vid)?;
    }
    let rows = t.permute(vid, &perm)?;
    let top = t.op_n(Op::TopK { k }, &[rows])?;
    let mut values = t.permute(top[0], &perm)?;
    if !largest {
        values = t.neg(values)?;
    }
    let indices = t.permute(top[1], &perm)?;
    Ok(vec![(values, x.elem), (indices, Elem::I64)])
}

/// Rows of the unit matrix by the largest element's index.
fn hardmax(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let x = cx.input(0)?;
    let rank = x.shape.len();
    let axis = cx.axis(cx.int("axis", -1), rank)?;
    let n = x.shape[axis];
    let vid = t.float(cx, x)?;
    let best = t.op(Op::Argmax { axis }, &[vid])?;
    let y = unit_rows(t, best, n, axis)?;
    like_first(cx, y)
}

/// For each index a row of the unit matrix, as a new dimension `axis`, in F32.
pub fn unit_rows(t: &mut Translator<'_>, indices: Vid, n: usize, axis: usize) -> R<Vid> {
    let shape = t.shape(indices)?;
    let unit = (0..n * n).map(|i| f64::from(u8::from(i / n == i % n))).collect();
    let unit = t.floats(&[n, n], unit)?;
    let flat = t.reshape(indices, &[shape.iter().product()])?;
    let rows = t.gather(unit, 0, flat)?;
    let rows = t.reshape(rows, &[shape.as_slice(), &[n]].concat())?;
    let mut perm: Vec<usize> = (0..shape.len()).collect();
    perm.insert(axis, shape.len());
    t.permute(rows, &perm)
}

/// `off + unit * (on - off)`; an index outside gives a row of `off`.
fn one_hot(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let at = cx.input(0)?;
    let n = cx.known(1)?.to_ints().first().copied().unwrap_or(0);
    let axis = cx.axis(cx.int("axis", -1), at.shape.len() + 1)?;
    let from_end = |i: i64| if i < 0 { i + n } else { i };
    let rows: Vec<i64> = cx.known(0)?.to_ints().into_iter().map(from_end).collect();
    if rows.iter().any(|i| !(0..n).contains(i)) {
        return form("OneHot: an index outside");
    }
    let vid = if at.host.as_ref().is_some_and(|a| a.data.iter().any(|&i| i < 0.0)) || at.elem.is_float() {
        t.indices(&rows.iter().map(|&i| i as usize).collect::<Vec<_>>())?
    } else {
        t.vid(at)?
    };
    let vid = t.reshape(vid, &at.shape)?;
    let unit = unit_rows(t, vid, n as usize, axis)?;
    let values = t.f32(cx.input(2)?)?;
    let (off, on) = (t.slice(values, 0, 0, 1)?, t.slice(values, 0, 1, 2)?);
    let height = t.sub(on, off)?;
    let y = t.mul(unit, height)?;
    let y = t.add(y, off)?;
    Ok(vec![(y, cx.input(2)?.elem)])
}
