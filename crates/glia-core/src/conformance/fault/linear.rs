//! Mistakes of products and of elementwise ops.

use super::{Fault, like, list, one, right, shaped, wide, with_input};
use crate::{Binary, DType, Gate, Op, Tensor, Unary};

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        says: "a transposed weight: the matrix is read as [k, n] instead of [n, k]",
        wrong: |op, inputs| {
            let w = inputs.get(1).filter(|w| *op == Op::MatMul && w.shape().rank() == 2)?;
            let [n, k] = [w.shape()[0], w.shape()[1]];
            let turned = one(Op::Transpose { a: 0, b: 1 }, &[wide(w)?.reshaped([k, n]).ok()?])?;
            with_input(op, inputs, 1, turned)
        },
    },
    Fault {
        says: "a missing bias: the third input of the product is not added",
        wrong: |op, inputs| {
            let without = inputs.get(..2).filter(|_| *op == Op::MatMul && inputs.len() == 3)?;
            right(op, without)
        },
    },
    Fault {
        says: "a wrong broadcast of the bias: its first element is added to every column",
        wrong: |op, inputs| {
            let bias = inputs.get(2).filter(|_| *op == Op::MatMul)?;
            let first = *list(bias)?.first()?;
            with_input(op, inputs, 2, like(bias, &vec![first; bias.n_elems()]))
        },
    },
    Fault {
        says: "batches ignored: every batch is multiplied by the first matrix",
        wrong: |op, inputs| {
            let w = inputs.get(1).filter(|w| *op == Op::MatMul && w.shape().rank() > 2)?;
            let (all, n) = (list(w)?, w.shape()[w.shape().rank() - 2] * w.shape().last_dim());
            let first: Vec<f64> = all.get(..n)?.iter().copied().cycle().take(all.len()).collect();
            with_input(op, inputs, 1, shaped(DType::F64, w.shape(), &first))
        },
    },
    Fault {
        says: "a lost tail: the last elements of each row, beyond a multiple of 4, are left out of the sum",
        wrong: |op, inputs| without_tail(op, inputs, 4),
    },
    Fault {
        says: "a lost tail: the last elements of each row, beyond a multiple of 8, are left out of the sum",
        wrong: |op, inputs| without_tail(op, inputs, 8),
    },
    Fault {
        says: "a lost tail: the last elements of each row, beyond a multiple of 16, are left out of the sum",
        wrong: |op, inputs| without_tail(op, inputs, 16),
    },
    Fault {
        says: "a lost tail: the last elements of each row, beyond a multiple of 32, are left out of the sum",
        wrong: |op, inputs| without_tail(op, inputs, 32),
    },
    Fault {
        says: "only the first row of x is used: every row of the product is the first",
        wrong: |op, inputs| {
            let x = inputs.first().filter(|x| *op == Op::MatMul && x.shape().rank() > 1)?;
            let (all, k) = (list(x)?, x.shape().last_dim());
            let first: Vec<f64> = all.get(..k)?.iter().copied().cycle().take(all.len()).collect();
            with_input(op, inputs, 0, like(x, &first))
        },
    },
    Fault {
        says: "a wrong broadcast: the second operand is walked element by element from its start again",
        wrong: |op, inputs| broadcast(op, inputs, |i, n, _| i % n),
    },
    Fault {
        says: "a wrong broadcast: only the first element of the second operand is used",
        wrong: |op, inputs| broadcast(op, inputs, |_, _, _| 0),
    },
    Fault {
        says: "a wrong broadcast: the second operand is spread over rows instead of columns, or the other way round",
        wrong: |op, inputs| broadcast(op, inputs, |i, n, last| i / last % n),
    },
    Fault {
        says: "no broadcast: both operands are walked element by element",
        wrong: |op, inputs| {
            let (Op::Binary(_), [a, b]) = (op, inputs) else {
                return None;
            };
            let shape = *right(op, inputs)?.first()?.shape();
            let n = shape.n_elems();
            let walked = |t: &Tensor| {
                let all = list(t).filter(|all| !all.is_empty())?;
                let again: Vec<f64> = all.iter().copied().cycle().take(n).collect();
                Some(shaped(t.dtype(), &shape, &again))
            };
            (a.shape() != b.shape()).then(|| right(op, &[walked(a)?, walked(b)?]))?
        },
    },
    Fault {
        says: "swapped operands",
        wrong: |op, inputs| match (op, inputs) {
            (Op::Binary(_), [a, b]) => right(op, &[b.clone(), a.clone()]),
            (Op::Gated(_), [gate, up]) => right(op, &[up.clone(), gate.clone()]),
            _ => None,
        },
    },
    Fault {
        says: "addition in place of another operation",
        wrong: |op, inputs| matches!(op, Op::Binary(_)).then(|| right(&Op::Binary(Binary::Add), inputs))?,
    },
    Fault {
        says: "the other form of GELU: erf and tanh are exchanged",
        wrong: |op, inputs| {
            let other = match op {
                Op::Unary(Unary::Gelu) => Op::Unary(Unary::GeluTanh),
                Op::Unary(Unary::GeluTanh) => Op::Unary(Unary::Gelu),
                Op::Gated(Gate::Gelu) => Op::Gated(Gate::GeluTanh),
                Op::Gated(Gate::GeluTanh) => Op::Gated(Gate::Gelu),
                _ => return None,
            };
            right(&other, inputs)
        },
    },
    Fault {
        says: "another activation: SiLU",
        wrong: |op, inputs| match op {
            Op::Unary(_) => right(&Op::Unary(Unary::Silu), inputs),
            Op::Gated(_) => right(&Op::Gated(Gate::Silu), inputs),
            _ => None,
        },
    },
    Fault {
        says: "no activation: the gate is multiplied as it is",
        wrong: |op, inputs| matches!(op, Op::Gated(_)).then(|| right(&Op::Binary(Binary::Mul), inputs))?,
    },
    Fault {
        says: "the upper bound is ignored",
        wrong: |op, inputs| match op {
            Op::Clamp { min, .. } => right(
                &Op::Clamp {
                    min: *min,
                    max: f32::INFINITY,
                },
                inputs,
            ),
            _ => None,
        },
    },
    Fault {
        says: "the lower bound is ignored",
        wrong: |op, inputs| match op {
            Op::Clamp { max, .. } => right(
                &Op::Clamp {
                    min: f32::NEG_INFINITY,
                    max: *max,
                },
                inputs,
            ),
            _ => None,
        },
    },
];

fn without_tail(op: &Op, inputs: &[Tensor], step: usize) -> Option<Vec<Tensor>> {
    let x = inputs.first().filter(|_| *op == Op::MatMul)?;
    let k = x.shape().last_dim();
    if k == 0 || k.is_multiple_of(step) {
        return None;
    }
    let mut all = list(x)?;
    all.iter_mut()
        .enumerate()
        .filter(|(i, _)| i % k >= k / step * step)
        .for_each(|(_, v)| *v = 0.0);
    with_input(op, inputs, 0, like(x, &all))
}

/// The second operand picked by (index of the output, elements of the operand, columns of the output).
fn broadcast(op: &Op, inputs: &[Tensor], pick: fn(usize, usize, usize) -> usize) -> Option<Vec<Tensor>> {
    let (Op::Binary(_), [a, b]) = (op, inputs) else {
        return None;
    };
    let shape = *right(op, inputs)?.first()?.shape();
    let (all, n) = (list(b)?, b.n_elems());
    if n == 0 || a.n_elems() != shape.n_elems() || n == shape.n_elems() {
        return None;
    }
    let last = shape.last_dim();
    let picked: Vec<f64> = (0..shape.n_elems()).map(|i| all[pick(i, n, last)]).collect();
    with_input(op, inputs, 1, shaped(b.dtype(), &shape, &picked))
}
