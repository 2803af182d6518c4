//! Moves without arithmetic: Reshape and its kin, Transpose, Slice, Split, Concat, Expand, Tile, Pad.

use glia_ir::Vid;

use super::{Family, Outputs, like_first};
use crate::translate::ops::broadcast;
use crate::translate::{NodeCx, R, Translator, broken, form};

pub const FAMILY: Family = &[
    ("Reshape", view),
    ("Flatten", view),
    ("Squeeze", view),
    ("Unsqueeze", view),
    ("Identity", identity),
    ("Dropout", dropout),
    ("Transpose", transpose),
    ("Concat", concat),
    ("Split", split),
    ("Slice", slice),
    ("Expand", expand),
    ("Tile", tile),
    ("Pad", pad),
    ("CenterCropPad", center_crop_pad),
    ("DepthToSpace", depth_to_space),
    ("SpaceToDepth", space_to_depth),
];

/// The shape that a reshaping op gives.
pub fn target(cx: &NodeCx<'_>) -> R<Vec<usize>> {
    let shape = &cx.input(0)?.shape;
    let rank = shape.len();
    let n: usize = shape.iter().product();
    match cx.op() {
        "Flatten" => {
            let axis = cx.axis(cx.int("axis", 1), rank)?;
            let (a, b) = shape.split_at(axis);
            Ok(vec![a.iter().product(), b.iter().product()])
        }
        "Squeeze" => {
            let drop = match cx.list("axes", 1)? {
                Some(axes) => cx.axes(&axes, rank)?,
                None => (0..rank).filter(|&i| shape[i] == 1).collect(),
            };
            Ok((0..rank).filter(|i| !drop.contains(i)).map(|i| shape[i]).collect())
        }
        "Unsqueeze" => {
            let axes = cx.list("axes", 1)?.unwrap_or_default();
            let new = cx.axes(&axes, rank + axes.len())?;
            let mut dims = shape.iter();
            let next = |i: usize| {
                if new.contains(&i) {
                    Some(1)
                } else {
                    dims.next().copied()
                }
            };
            Ok((0..rank + new.len()).map_while(next).collect())
        }
        _ => {
            let wanted = cx.list("shape", 1)?.unwrap_or_default();
            let keeps_zero = cx.flag("allowzero");
            let mut dims = Vec::new();
            for (i, &d) in wanted.iter().enumerate() {
                dims.push(match (d, keeps_zero) {
                    (0, false) => shape.get(i).copied().map(|d| d as i64).unwrap_or(0),
                    _ => d,
                });
            }
            let rest: i64 = dims.iter().filter(|&&d| d >= 0).product();
            let fill = if rest == 0 { 0 } else { n as i64 / rest };
            Ok(dims.iter().map(|&d| if d < 0 { fill } else { d } as usize).collect())
        }
    }
}

fn view(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let dims: Vec<i64> = target(cx)?.iter().map(|&d| d as i64).collect();
    let x = t.vid(cx.input(0)?)?;
    let y = t.op(glia_core::Op::Reshape { dims }, &[x])?;
    like_first(cx, y)
}

fn identity(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let x = t.vid(cx.input(0)?)?;
    let y = t.view(x)?;
    like_first(cx, y)
}

/// Nothing is dropped outside training: the mask is all true.
fn dropout(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let training = cx.optional(2).is_some() && cx.known(2)?.data.first().is_some_and(|&v| v != 0.0);
    let ratio = match cx.optional(1) {
        Some(_) => cx.known(1)?.data.first().copied().unwrap_or(0.5),
        None => cx.float("ratio", 0.5).into(),
    };
    if training && ratio != 0.0 {
        return form("training: what is dropped is random");
    }
    let x = cx.input(0)?;
    let vid = t.vid(x)?;
    let mut outputs = vec![(t.view(vid)?, x.elem)];
    if cx.wants(1) {
        let n = x.shape.iter().product();
        let mask = t.constant(&crate::array::Array::new(
            crate::array::Elem::BOOL,
            &x.shape,
            vec![1.0; n],
        ))?;
        outputs.push((t.view(mask)?, crate::array::Elem::BOOL));
    }
    Ok(outputs)
}

fn transpose(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let x = cx.input(0)?;
    let rank = x.shape.len();
    let perm = match cx.ints("perm") {
        Some(perm) => cx.axes(&perm, rank)?,
        None => (0..rank).rev().collect(),
    };
    let x = t.vid(x)?;
    let y = t.op(glia_core::Op::Permute { perm }, &[x])?;
    like_first(cx, y)
}

fn concat(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let rank = cx.input(0)?.shape.len();
    let axis = cx.axis(cx.int("axis", 1), rank)?;
    let inputs = same_dtype(t, cx)?;
    let y = t.op(glia_core::Op::Concat { axis }, &inputs)?;
    like_first(cx, y)
}

/// All inputs in one dtype: what an earlier translation keeps in F32 may meet a plain input.
fn same_dtype(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> R<Vec<Vid>> {
    let inputs = cx.all()?.into_iter().map(|v| t.vid(v)).collect::<R<Vec<_>>>()?;
    let dtypes = inputs.iter().map(|&v| t.dtype(v)).collect::<R<Vec<_>>>()?;
    let to = dtypes[0];
    if dtypes.iter().all(|&d| d == to) {
        return Ok(inputs);
    }
    cx.all()?.into_iter().map(|v| t.f32(v)).collect()
}

fn split(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let x = cx.input(0)?;
    let axis = cx.axis(cx.int("axis", 0), x.shape.len())?;
    let size = x.shape[axis];
    let sizes: Vec<usize> = match cx.list("split", 1)? {
        Some(sizes) => sizes.iter().map(|&s| s as usize).collect(),
        None => {
            let n = cx.n_outputs();
            let piece = size.div_ceil(n);
            (0..n).map(|i| piece.min(size.saturating_sub(i * piece))).collect()
        }
    };
    let vid = t.vid(x)?;
    let pieces = t.op_n(glia_core::Op::Split { axis, sizes }, &[vid])?;
    Ok(pieces.into_iter().map(|p| (p, x.elem)).collect())
}

/// Indices that `start..end` by `step` keeps of `n`, as Python slices.
pub fn picks(n: usize, start: i64, end: i64, step: i64) -> Vec<usize> {
    let n = n as i64;
    let from_end = |v: i64| if v < 0 { v.saturating_add(n) } else { v };
    let (start, end) = (from_end(start), from_end(end));
    let mut out = Vec::new();
    if step > 0 {
        let mut i = start.clamp(0, n);
        while i < end.clamp(0, n) {
            out.push(i as usize);
            i += step;
        }
    } else if step < 0 {
        let mut i = start.clamp(-1, n - 1);
        while i > end.clamp(-1, n - 1) {
            out.push(i as usize);
            i += step;
        }
    }
    out
}

fn slice(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let x = cx.input(0)?;
    let rank = x.shape.len();
    let starts = cx.list("starts", 1)?.unwrap_or_default();
    let ends = cx.list("ends", 2)?.unwrap_or_default();
    let axes = match cx.list("axes", 3)? {
        Some(axes) => cx.axes(&axes, rank)?,
        None => (0..starts.len()).collect(),
    };
    let steps = cx.list("steps", 4)?.unwrap_or_else(|| vec![1; starts.len()]);
    if starts.len() != ends.len() || starts.len() != axes.len() || starts.len() != steps.len() {
        return broken("Slice: lists of different lengths");
    }
    let mut y = t.vid(x)?;
    for i in 0..starts.len() {
        let kept = picks(x.shape[axes[i]], starts[i], ends[i], steps[i]);
        y = if steps[i] == 1 {
            let start = kept.first().copied().unwrap_or(0);
            t.slice(y, axes[i], start, start + kept.len())?
        } else {
            let at = t.indices(&kept)?;
            t.gather(y, axes[i], at)?
        };
    }
    let y = t.view(y)?;
    like_first(cx, y)
}

fn expand(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let x = cx.input(0)?;
    let wanted: Vec<usize> = cx.known(1)?.to_ints().iter().map(|&d| d as usize).collect();
    let shape = broadcast(&[&x.shape, &wanted])?;
    let vid = t.vid(x)?;
    let y = t.expand(vid, &shape)?;
    let y = t.view(y)?;
    like_first(cx, y)
}

fn tile(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let repeats = cx.known(1)?.to_ints();
    let mut y = t.vid(cx.input(0)?)?;
    for (axis, &n) in repeats.iter().enumerate() {
        y = t.concat(&vec![y; n.max(1) as usize], axis)?;
    }
    like_first(cx, y)
}

/// Padding by picking: each index says which element comes, or that the constant does.
fn pad(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let x = cx.input(0)?;
    let rank = x.shape.len();
    let pads = cx.list("pads", 1)?.unwrap_or_default();
    let axes = match cx.optional(3) {
        Some(_) => cx.axes(&cx.known(3)?.to_ints(), rank)?,
        None => (0..rank).collect(),
    };
    let fill = match cx.optional(2) {
        Some(_) => cx.known(2)?.data.first().copied().unwrap_or(0.0),
        None => cx.float("value", 0.0).into(),
    };
    let mode = cx.text("mode", "constant");
    let mut y = t.vid(x)?;
    for (i, &axis) in axes.iter().enumerate() {
        let (before, after) = (pads[i], pads[i + axes.len()]);
        let n = x.shape[axis] as i64;
        if mode == "constant" {
            y = pad_constant(t, x.elem, y, axis, [before, after], fill)?;
            continue;
        }
        let at = |i: i64| match mode.as_str() {
            "edge" => i.clamp(0, n - 1),
            "wrap" => i.rem_euclid(n),
            _ => {
                let period = (2 * (n - 1)).max(1);
                let i = i.rem_euclid(period);
                i.min(period - i)
            }
        };
        let kept: Vec<usize> = (-before..n + after).map(|i| at(i) as usize).collect();
        let kept = t.indices(&kept)?;
        y = t.gather(y, axis, kept)?;
    }
    like_first(cx, y)
}

/// Constants before and after one axis; negative counts cut.
pub fn pad_constant(
    t: &mut Translator<'_>,
    elem: crate::array::Elem,
    x: Vid,
    axis: usize,
    counts: [i64; 2],
    fill: f64,
) -> R<Vid> {
    let n = t.shape(x)?[axis];
    let cut = counts.map(|c| (-c).max(0) as usize);
    let mut parts = vec![t.slice(x, axis, cut[0], n - cut[1])?];
    for (side, &count) in counts.iter().enumerate().filter(|(_, c)| **c > 0) {
        let mut shape = t.shape(x)?;
        shape[axis] = count as usize;
        let n = shape.iter().product();
        let mut array = crate::array::Array::new(elem, &shape, vec![fill; n]);
        if t.dtype(x)? == glia_core::DType::F32 {
            array.elem = crate::array::Elem::F32;
        }
        let block = t.constant(&array)?;
        let block = t.cast(block, t.dtype(x)?)?;
        parts.insert(if side == 0 { 0 } else { parts.len() }, block);
    }
    t.concat(&parts, axis)
}

fn center_crop_pad(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let x = cx.input(0)?;
    let rank = x.shape.len();
    let sizes = cx.known(1)?.to_ints();
    let axes = match cx.ints("axes") {
        Some(axes) => cx.axes(&axes, rank)?,
        None => (0..rank).collect(),
    };
    let mut y = t.vid(x)?;
    for (&axis, &to) in axes.iter().zip(&sizes) {
        let extra = to - x.shape[axis] as i64;
        // What is odd goes to the end when padding, and is cut from the end when cropping.
        let before = if extra >= 0 { extra / 2 } else { -(-extra / 2) };
        y = pad_constant(t, x.elem, y, axis, [before, extra - before], 0.0)?;
    }
    like_first(cx, y)
}

fn blocks(cx: &NodeCx<'_>) -> R<[usize; 5]> {
    let [n, c, h, w] = cx.input(0)?.shape[..] else {
        return form("not of rank 4");
    };
    Ok([n, c, h, w, cx.int("blocksize", 1) as usize])
}

fn depth_to_space(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let [n, c, h, w, b] = blocks(cx)?;
    let c = c / (b * b);
    let x = t.vid(cx.input(0)?)?;
    let x = if cx.text("mode", "DCR") == "DCR" {
        let x = t.reshape(x, &[n, b, b, c, h, w])?;
        t.permute(x, &[0, 3, 4, 1, 5, 2])?
    } else {
        let x = t.reshape(x, &[n, c, b, b, h, w])?;
        t.permute(x, &[0, 1, 4, 2, 5, 3])?
    };
    let y = t.reshape(x, &[n, c, h * b, w * b])?;
    like_first(cx, y)
}

fn space_to_depth(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let [n, c, h, w, b] = blocks(cx)?;
    let x = t.vid(cx.input(0)?)?;
    let x = t.reshape(x, &[n, c, h / b, b, w / b, b])?;
    // CRD keeps the channel outermost.
    let crd = cx.text("mode", "DCR") == "CRD";
    let x = t.permute(x, if crd { &[0, 1, 3, 5, 2, 4] } else { &[0, 3, 5, 1, 2, 4] })?;
    let y = t.reshape(x, &[n, c * b * b, h / b, w / b])?;
    like_first(cx, y)
}
