//! What is known when the graph is built, computed on the host: shapes, constants, index arithmetic. Not for floats
//! that depend on an input: those are for backends.

use super::ops::broadcast;
use super::{NodeCx, Stop};
use crate::array::{self, Array, Elem};

type Folded = Result<Option<Array>, String>;

/// The only output of a node whose inputs are all known; `None` when they are not, or the op is not folded.
pub fn fold(cx: &NodeCx<'_>) -> Folded {
    match cx.op() {
        "Shape" => {
            let shape = &input_shape(cx)?;
            let rank = shape.len() as i64;
            let bound = |v: i64| (if v < 0 { v + rank } else { v }).clamp(0, rank) as usize;
            let (start, end) = (bound(cx.int("start", 0)), bound(cx.int("end", rank)));
            let dims = shape.get(start..end).unwrap_or(&[]);
            return Ok(Some(Array::ints(&dims.iter().map(|&d| d as i64).collect::<Vec<_>>())));
        }
        "Size" => {
            let n: usize = input_shape(cx)?.iter().product();
            return Ok(Some(Array::new(Elem::I64, &[], vec![n as f64])));
        }
        "Constant" => return constant(cx),
        // Of the second input only the type counts.
        "CastLike" => {
            let (x, like) = (cx.optional(0), cx.optional(1));
            let host = x.and_then(|x| x.host.as_ref());
            return Ok(host.zip(like).and_then(|(x, like)| cast(x, like.elem)));
        }
        _ => {}
    }
    let mut inputs = Vec::new();
    for i in 0..cx.n_inputs() {
        match cx.optional(i).map(|v| &v.host) {
            Some(Some(array)) => inputs.push(array),
            Some(None) => return Ok(None),
            None => return Ok(None),
        }
    }
    known(cx, &inputs)
}

fn input_shape(cx: &NodeCx<'_>) -> Result<Vec<usize>, String> {
    match cx.input(0) {
        Ok(val) => Ok(val.shape.clone()),
        Err(_) => Err(format!("{} without an input", cx.op())),
    }
}

fn constant(cx: &NodeCx<'_>) -> Folded {
    if let Some(tensor) = cx.attribute("value").and_then(|a| a.t.as_ref()) {
        return Ok(array::read(tensor)?.ok().map(|read| read.array));
    }
    if let Some(a) = cx.attribute("value_int") {
        return Ok(Some(Array::new(Elem::I64, &[], vec![a.i as f64])));
    }
    if let Some(a) = cx.attribute("value_float") {
        return Ok(Some(Array::new(Elem::F32, &[], vec![a.f.into()])));
    }
    if let Some(values) = cx.ints("value_ints") {
        return Ok(Some(Array::ints(&values)));
    }
    Ok(cx.attribute("value_floats").map(|a| {
        let data = a.floats.iter().map(|&v| v.into()).collect();
        Array::new(Elem::F32, &[a.floats.len()], data)
    }))
}

fn known(cx: &NodeCx<'_>, inputs: &[&Array]) -> Folded {
    let Some(&x) = inputs.first() else { return Ok(None) };
    let truth = |v: bool| f64::from(u8::from(v));
    let whole = !x.elem.is_float();
    let two = |f: &dyn Fn(f64, f64) -> f64| zip(x.elem, inputs, f);
    let test = |f: &dyn Fn(f64, f64) -> bool| zip(Elem::BOOL, inputs, &|a, b| truth(f(a, b)));
    let one = |f: &dyn Fn(f64) -> f64| {
        let data = x.data.iter().map(|&v| rounded(x.elem, f(v))).collect();
        Ok(Some(Array::new(x.elem, &x.shape, data)))
    };
    match cx.op() {
        "Add" => two(&|a, b| a + b),
        "Sub" => two(&|a, b| a - b),
        "Mul" => two(&|a, b| a * b),
        "Div" => two(&|a, b| if whole { (a / b).trunc() } else { a / b }),
        "Mod" => two(&|a, b| {
            if cx.flag("fmod") {
                a % b
            } else {
                a - b * (a / b).floor()
            }
        }),
        "Max" => two(&f64::max),
        "Min" => two(&f64::min),
        "Equal" => test(&|a, b| a == b),
        "Less" => test(&|a, b| a < b),
        "LessOrEqual" => test(&|a, b| a <= b),
        "Greater" => test(&|a, b| a > b),
        "GreaterOrEqual" => test(&|a, b| a >= b),
        "And" => test(&|a, b| a != 0.0 && b != 0.0),
        "Or" => test(&|a, b| a != 0.0 || b != 0.0),
        "Not" => one(&|a| truth(a == 0.0)),
        "Neg" => one(&|a| -a),
        "Sqrt" => one(&f64::sqrt),
        "Log" => one(&f64::ln),
        "Exp" => one(&f64::exp),
        "Reciprocal" => one(&|a| 1.0 / a),
        "Identity" => one(&|a| a),
        "Cast" => Ok(cast(x, Elem(cx.int("to", 0) as i32))),
        "Range" => range(inputs),
        "Where" => choose(inputs),
        "ConstantOfShape" => {
            let value = cx.attribute("value").and_then(|a| a.t.as_ref());
            let value = match value.map(array::read).transpose()? {
                Some(Ok(read)) => read.array,
                Some(Err(_)) => return Ok(None),
                None => Array::new(Elem::F32, &[1], vec![0.0]),
            };
            let shape: Vec<usize> = x.data.iter().map(|&v| v as usize).collect();
            let n = shape.iter().product();
            Ok(Some(Array::new(
                value.elem,
                &shape,
                vec![value.data.first().copied().unwrap_or(0.0); n],
            )))
        }
        "Concat" => Ok(concat(cx, inputs)),
        "Gather" => gather(cx, inputs),
        "Slice" => slice(inputs),
        "Expand" => {
            let target: Vec<usize> = inputs
                .get(1)
                .map(|a| a.data.iter().map(|&v| v as usize).collect())
                .unwrap_or_default();
            let shape = broadcast(&[&x.shape, &target]).map_err(text)?;
            let data = positions(&x.shape, &shape).into_iter().map(|p| x.data[p]).collect();
            Ok(Some(Array::new(x.elem, &shape, data)))
        }
        "Reshape" | "Squeeze" | "Unsqueeze" | "Flatten" => {
            let shape = super::families::shapes::target(cx).map_err(text)?;
            Ok(Some(Array::new(x.elem, &shape, x.data.clone())))
        }
        "ReduceProd" if x.shape.len() == 1 => {
            let shape: &[usize] = if cx.int("keepdims", 1) != 0 { &[1] } else { &[] };
            Ok(Some(Array::new(x.elem, shape, vec![x.data.iter().product()])))
        }
        _ => Ok(None),
    }
}

fn text(stop: Stop) -> String {
    format!("{stop:?}")
}

/// F32 constants are rounded as ONNX would round them.
fn rounded(elem: Elem, v: f64) -> f64 {
    if elem == Elem::F32 { f64::from(v as f32) } else { v }
}

fn cast(x: &Array, to: Elem) -> Option<Array> {
    to.dtype()?;
    let data = x.data.iter().map(|&v| {
        if to == Elem::BOOL {
            f64::from(u8::from(v != 0.0))
        } else if to.is_float() {
            rounded(to, v)
        } else {
            v.trunc()
        }
    });
    Some(Array::new(to, &x.shape, data.collect()))
}

fn zip(elem: Elem, inputs: &[&Array], f: &dyn Fn(f64, f64) -> f64) -> Folded {
    let [a, b] = inputs else { return Ok(None) };
    let shape = broadcast(&[&a.shape, &b.shape]).map_err(text)?;
    let (pa, pb) = (positions(&a.shape, &shape), positions(&b.shape, &shape));
    let data = pa
        .iter()
        .zip(&pb)
        .map(|(&i, &j)| rounded(elem, f(a.data[i], b.data[j])))
        .collect();
    Ok(Some(Array::new(elem, &shape, data)))
}

fn choose(inputs: &[&Array]) -> Folded {
    let [c, a, b] = inputs else { return Ok(None) };
    let shape = broadcast(&[&c.shape, &a.shape, &b.shape]).map_err(text)?;
    let at = |array: &Array| -> Vec<f64> {
        positions(&array.shape, &shape)
            .into_iter()
            .map(|p| array.data[p])
            .collect()
    };
    let (c, x, y) = (at(c), at(a), at(b));
    let data = (0..c.len()).map(|i| if c[i] != 0.0 { x[i] } else { y[i] }).collect();
    Ok(Some(Array::new(a.elem, &shape, data)))
}

/// For each element of `to`, the element of `from` that broadcasting shows there.
pub fn positions(from: &[usize], to: &[usize]) -> Vec<usize> {
    let n: usize = to.iter().product();
    let skip = to.len() - from.len();
    (0..n)
        .map(|mut flat| {
            let (mut at, mut stride) = (0, 1);
            for axis in (0..to.len()).rev() {
                let i = flat % to[axis];
                flat /= to[axis];
                if let Some(axis) = axis.checked_sub(skip) {
                    at += if from[axis] == 1 { 0 } else { i } * stride;
                    stride *= from[axis];
                }
            }
            at
        })
        .collect()
}

fn range(inputs: &[&Array]) -> Folded {
    let scalars: Vec<f64> = inputs.iter().filter_map(|a| a.data.first().copied()).collect();
    let [start, limit, delta] = scalars[..] else {
        return Ok(None);
    };
    let n = ((limit - start) / delta).ceil().max(0.0) as usize;
    let data = (0..n).map(|i| start + i as f64 * delta).collect();
    Ok(Some(Array::new(inputs[0].elem, &[n], data)))
}

fn concat(cx: &NodeCx<'_>, inputs: &[&Array]) -> Option<Array> {
    if inputs.iter().any(|a| a.shape.len() != 1) || cx.int("axis", 0) > 0 {
        return None;
    }
    let data: Vec<f64> = inputs.iter().flat_map(|a| a.data.iter().copied()).collect();
    Some(Array::new(inputs[0].elem, &[data.len()], data))
}

fn gather(cx: &NodeCx<'_>, inputs: &[&Array]) -> Folded {
    let [x, at] = inputs else { return Ok(None) };
    if x.shape.len() != 1 || cx.int("axis", 0) > 0 {
        return Ok(None);
    }
    let n = x.data.len() as f64;
    let pick = |&i: &f64| x.data.get((if i < 0.0 { i + n } else { i }) as usize).copied();
    let data = at.data.iter().map(pick).collect::<Option<Vec<_>>>();
    let data = data.ok_or("Gather: an index is outside")?;
    Ok(Some(Array::new(x.elem, &at.shape, data)))
}

fn slice(inputs: &[&Array]) -> Folded {
    let x = inputs[0];
    if x.shape.len() != 1 {
        return Ok(None);
    }
    let list = |i: usize| inputs.get(i).and_then(|a| a.to_ints().first().copied());
    let (Some(start), Some(end)) = (list(1), list(2)) else {
        return Ok(None);
    };
    let picked = super::families::shapes::picks(x.data.len(), start, end, list(4).unwrap_or(1));
    Ok(Some(Array::new(
        x.elem,
        &[picked.len()],
        picked.iter().map(|&i| x.data[i]).collect(),
    )))
}
