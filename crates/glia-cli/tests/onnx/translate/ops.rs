//! Single nodes and small idioms that several families use.

use glia_core::{Binary, DType, Op, Unary};
use glia_ir::Vid;

use super::{R, Translator, Val, broken};
use crate::array::{Array, Elem};

impl Translator<'_> {
    /// The value in F32: what the arithmetic of the vocabulary is for.
    pub fn f32(&mut self, val: &Val) -> R<Vid> {
        let vid = self.vid(val)?;
        self.cast(vid, DType::F32)
    }

    /// As [`Translator::f32`], stopping for integers: for translations that round.
    pub fn float(&mut self, cx: &super::NodeCx<'_>, val: &Val) -> R<Vid> {
        if !val.elem.is_float() {
            return cx.wrong_type(val);
        }
        self.f32(val)
    }

    pub fn cast(&mut self, vid: Vid, to: DType) -> R<Vid> {
        if self.dtype(vid)? == to {
            return Ok(vid);
        }
        self.op(Op::Cast { to }, &[vid])
    }

    pub fn binary(&mut self, op: Binary, a: Vid, b: Vid) -> R<Vid> {
        self.op(Op::Binary(op), &[a, b])
    }

    pub fn add(&mut self, a: Vid, b: Vid) -> R<Vid> {
        self.binary(Binary::Add, a, b)
    }

    pub fn sub(&mut self, a: Vid, b: Vid) -> R<Vid> {
        self.binary(Binary::Sub, a, b)
    }

    pub fn mul(&mut self, a: Vid, b: Vid) -> R<Vid> {
        self.binary(Binary::Mul, a, b)
    }

    pub fn div(&mut self, a: Vid, b: Vid) -> R<Vid> {
        self.binary(Binary::Div, a, b)
    }

    pub fn unary(&mut self, op: Unary, x: Vid) -> R<Vid> {
        self.op(Op::Unary(op), &[x])
    }

    pub fn scale(&mut self, x: Vid, factor: f32) -> R<Vid> {
        if factor == 1.0 {
            return Ok(x);
        }
        self.op(Op::Scale { factor }, &[x])
    }

    pub fn neg(&mut self, x: Vid) -> R<Vid> {
        self.scale(x, -1.0)
    }

    pub fn clamp(&mut self, x: Vid, min: f32, max: f32) -> R<Vid> {
        self.op(Op::Clamp { min, max }, &[x])
    }

    /// An F32 constant.
    pub fn floats(&mut self, shape: &[usize], values: Vec<f64>) -> R<Vid> {
        self.constant(&Array::new(Elem::F32, shape, values))
    }

    pub fn scalar(&mut self, value: f32) -> R<Vid> {
        self.floats(&[1], vec![value.into()])
    }

    /// `x + c`.
    pub fn add_scalar(&mut self, x: Vid, c: f32) -> R<Vid> {
        let rank = self.shape(x)?.len();
        let c = self.floats(&vec![1; rank], vec![c.into()])?;
        self.add(x, c)
    }

    /// `1 - x`.
    pub fn one_minus(&mut self, x: Vid) -> R<Vid> {
        let x = self.neg(x)?;
        self.add_scalar(x, 1.0)
    }

    pub fn indices(&mut self, values: &[usize]) -> R<Vid> {
        let data = values.iter().map(|&v| v as f64).collect();
        self.constant(&Array::new(Elem::I32, &[values.len()], data))
    }

    pub fn reshape(&mut self, x: Vid, shape: &[usize]) -> R<Vid> {
        if self.shape(x)? == shape {
            return Ok(x);
        }
        self.op(
            Op::Reshape {
                dims: shape.iter().map(|&d| d as i64).collect(),
            },
            &[x],
        )
    }

    pub fn permute(&mut self, x: Vid, perm: &[usize]) -> R<Vid> {
        if perm.iter().enumerate().all(|(i, &p)| i == p) {
            return Ok(x);
        }
        self.op(Op::Permute { perm: perm.to_vec() }, &[x])
    }

    pub fn slice(&mut self, x: Vid, axis: usize, start: usize, end: usize) -> R<Vid> {
        if start == 0 && self.shape(x)?.get(axis) == Some(&end) {
            return Ok(x);
        }
        self.op(
            Op::Slice {
                axis,
                start,
                end: Some(end),
            },
            &[x],
        )
    }

    pub fn concat(&mut self, inputs: &[Vid], axis: usize) -> R<Vid> {
        if let [only] = inputs {
            return Ok(*only);
        }
        self.op(Op::Concat { axis }, inputs)
    }

    pub fn gather(&mut self, x: Vid, axis: usize, indices: Vid) -> R<Vid> {
        self.op(Op::Gather { axis }, &[x, indices])
    }

    /// Sum along `axis`, kept with size 1.
    pub fn sum(&mut self, x: Vid, axis: usize) -> R<Vid> {
        self.op(Op::Sum { axis, keep: true }, &[x])
    }

    /// The axes moved to the end and joined to one, with the shape of the others in front.
    pub fn axes_last(&mut self, x: Vid, axes: &[usize]) -> R<(Vid, Vec<usize>)> {
        let shape = self.shape(x)?;
        let kept: Vec<usize> = (0..shape.len()).filter(|i| !axes.contains(i)).collect();
        let mut moved: Vec<usize> = axes.to_vec();
        moved.sort_unstable();
        let perm: Vec<usize> = kept.iter().chain(&moved).copied().collect();
        let front: Vec<usize> = kept.iter().map(|&i| shape[i]).collect();
        let x = self.permute(x, &perm)?;
        let n = moved.iter().map(|&i| shape[i]).product();
        let mut joined = front.clone();
        joined.push(n);
        Ok((self.reshape(x, &joined)?, front))
    }

    /// Repeats dimensions of size 1 until the shape is `to`.
    pub fn expand(&mut self, x: Vid, to: &[usize]) -> R<Vid> {
        let mut shape = self.shape(x)?;
        if shape.len() > to.len() {
            return broken("expand to a lower rank");
        }
        while shape.len() < to.len() {
            shape.insert(0, 1);
        }
        let mut x = self.reshape(x, &shape)?;
        for (axis, (&from, &to)) in shape.iter().zip(to).enumerate() {
            if from != to {
                x = self.op(Op::Repeat { axis, n: to }, &[x])?;
            }
        }
        Ok(x)
    }

    /// Same value and shape, through a view: a graph may not return an input as it is.
    pub fn view(&mut self, x: Vid) -> R<Vid> {
        let dims = self.shape(x)?.iter().map(|&d| d as i64).collect();
        self.op(Op::Reshape { dims }, &[x])
    }

    /// 1 where `x` is not zero, else 0, in F32.
    pub fn is_nonzero(&mut self, x: Vid) -> R<Vid> {
        let x = self.op(Op::Cast { to: DType::Bool }, &[x])?;
        self.cast(x, DType::F32)
    }

    /// 1 where `x` is infinite, else 0, in F32: nothing else has the reciprocal 0.
    pub fn is_infinite(&mut self, x: Vid) -> R<Vid> {
        let rank = self.shape(x)?.len();
        let one = self.floats(&vec![1; rank], vec![1.0])?;
        let inverse = self.div(one, x)?;
        let finite = self.is_nonzero(inverse)?;
        self.one_minus(finite)
    }

    /// 1 where `a > b`, else 0, in F32; of finite numbers.
    pub fn greater(&mut self, a: Vid, b: Vid) -> R<Vid> {
        let over = self.sub(a, b)?;
        let over = self.unary(Unary::Relu, over)?;
        self.is_nonzero(over)
    }

    /// `yes` where the condition (0 or 1 in F32) is 1, else `no`: both picked from one table by computed indices, so
    /// that no value, infinite or not, is touched by arithmetic. The three have one shape.
    pub fn select(&mut self, condition: Vid, yes: Vid, no: Vid) -> R<Vid> {
        let shape = self.shape(yes)?;
        let n: usize = shape.iter().product();
        let condition = self.reshape(condition, &[n])?;
        let (yes, no) = (self.reshape(yes, &[n])?, self.reshape(no, &[n])?);
        let table = self.concat(&[no, yes], 0)?;
        let ramp = self.floats(&[n], (0..n).map(|i| i as f64).collect())?;
        let at = self.scale(condition, n as f32)?;
        let at = self.add(at, ramp)?;
        let at = self.cast(at, DType::I32)?;
        let picked = self.gather(table, 0, at)?;
        self.reshape(picked, &shape)
    }

    /// Largest of the last dimension, which is dropped.
    pub fn max_last(&mut self, x: Vid) -> R<Vid> {
        let mut shape = self.shape(x)?;
        let top = self.op_n(Op::TopK { k: 1 }, &[x])?;
        shape.pop();
        self.reshape(top[0], &shape)
    }

    /// The nearest whole number, even on ties, of numbers below 2^63.
    pub fn round_even(&mut self, x: Vid) -> R<Vid> {
        let whole = self.cast(x, DType::I64)?;
        self.cast(whole, DType::F32)
    }

    /// Largest whole number not above `x`, of numbers below 2^63.
    pub fn floor(&mut self, x: Vid) -> R<Vid> {
        let near = self.round_even(x)?;
        let over = self.greater(near, x)?;
        self.sub(near, over)
    }
}

/// The shape that NumPy broadcasts these to.
pub fn broadcast(shapes: &[&[usize]]) -> R<Vec<usize>> {
    let rank = shapes.iter().map(|s| s.len()).max().unwrap_or(0);
    let mut out = vec![1; rank];
    for shape in shapes {
        for (i, &d) in shape.iter().rev().enumerate() {
            let slot = &mut out[rank - 1 - i];
            if *slot == 1 {
                *slot = d;
            } else if d != 1 && d != *slot {
                return broken(format!("shapes {shapes:?} do not broadcast"));
            }
        }
    }
    Ok(out)
}
