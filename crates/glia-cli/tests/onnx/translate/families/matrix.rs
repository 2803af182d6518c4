//! Matrix products: MatMul, Gemm, Einsum and the quantised forms. The vocabulary multiplies by rows of W: `x Wᵀ`.

use glia_core::Op;
use glia_ir::Vid;

use super::{Family, Outputs, like_first};
use crate::array::Elem;
use crate::translate::ops::broadcast;
use crate::translate::{NodeCx, R, Translator, form};

pub const FAMILY: Family = &[
    ("MatMul", matmul),
    ("Gemm", gemm),
    ("Einsum", einsum),
    ("MatMulInteger", matmul_integer),
    ("QLinearMatMul", qlinear_matmul),
];

/// NumPy's matmul of two values in F32.
pub fn product(t: &mut Translator<'_>, a: Vid, b: Vid) -> R<Vid> {
    let (mut sa, mut sb) = (t.shape(a)?, t.shape(b)?);
    let (row, column) = (sa.len() == 1, sb.len() == 1);
    if row {
        sa.insert(0, 1);
    }
    if column {
        sb.push(1);
    }
    let (a, b) = (t.reshape(a, &sa)?, t.reshape(b, &sb)?);
    let y = matrices(t, a, b)?;
    let mut shape = t.shape(y)?;
    let rank = shape.len();
    if column {
        shape.remove(rank - 1);
    }
    if row {
        shape.remove(rank - 2);
    }
    t.reshape(y, &shape)
}

/// Both of rank 2 or more.
fn matrices(t: &mut Translator<'_>, a: Vid, b: Vid) -> R<Vid> {
    let (sa, sb) = (t.shape(a)?, t.shape(b)?);
    if sb.len() == 2 {
        let w = t.op(Op::Transpose { a: 0, b: 1 }, &[b])?;
        return t.op(Op::MatMul, &[a, w]);
    }
    let (batch_a, batch_b) = (&sa[..sa.len() - 2], &sb[..sb.len() - 2]);
    let batch = broadcast(&[batch_a, batch_b])?;
    let whole = |inner: &[usize]| [batch.as_slice(), inner].concat();
    let a = t.expand(a, &whole(&sa[sa.len() - 2..]))?;
    let b = t.expand(b, &whole(&sb[sb.len() - 2..]))?;
    let rank = batch.len() + 2;
    let w = t.op(
        Op::Transpose {
            a: rank - 2,
            b: rank - 1,
        },
        &[b],
    )?;
    t.op(Op::MatMul, &[a, w])
}

fn matmul(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let (a, b) = (t.float(cx, cx.input(0)?)?, t.float(cx, cx.input(1)?)?);
    let y = product(t, a, b)?;
    like_first(cx, y)
}

/// `alpha A' B' + beta C`; with B already transposed it is the vocabulary's own form, and a row of C its bias.
fn gemm(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let mut a = t.float(cx, cx.input(0)?)?;
    if cx.flag("transA") {
        a = t.op(Op::Transpose { a: 0, b: 1 }, &[a])?;
    }
    let mut w = t.f32(cx.input(1)?)?;
    if !cx.flag("transB") {
        w = t.op(Op::Transpose { a: 0, b: 1 }, &[w])?;
    }
    let a = t.scale(a, cx.float("alpha", 1.0))?;
    let Some(c) = cx.optional(2) else {
        let y = t.op(Op::MatMul, &[a, w])?;
        return like_first(cx, y);
    };
    let n = t.shape(w)?[0];
    let beta = cx.float("beta", 1.0);
    let bias = t.f32(c)?;
    let bias = t.scale(bias, beta)?;
    let is_row = matches!(c.shape[..], [m] | [1, m] if m == n);
    let y = if is_row {
        let bias = t.reshape(bias, &[n])?;
        t.op(Op::MatMul, &[a, w, bias])?
    } else {
        let y = t.op(Op::MatMul, &[a, w])?;
        t.add(y, bias)?
    };
    like_first(cx, y)
}

/// Every operand spread over all letters, multiplied, and summed over those that the result lacks.
fn einsum(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let equation: String = cx.text("equation", "").chars().filter(|c| !c.is_whitespace()).collect();
    if equation.contains("...") {
        return einsum_of(t, cx, &spelt_out(cx, &equation)?);
    }
    einsum_of(t, cx, &equation)
}

/// Dots replaced by capital letters, as many as the operands have dimensions left.
fn spelt_out(cx: &NodeCx<'_>, equation: &str) -> R<String> {
    let first = equation.split([',', '-']).next().unwrap_or("");
    let n = (cx.input(0)?.shape.len() + 3).saturating_sub(first.len());
    let letters: String = ('A'..='Z').take(n).collect();
    let spelt = equation.replace("...", &letters);
    Ok(if spelt.contains("->") {
        spelt
    } else {
        format!("{spelt}->{letters}")
    })
}

fn einsum_of(t: &mut Translator<'_>, cx: &NodeCx<'_>, equation: &str) -> Outputs {
    let (left, right) = equation
        .split_once("->")
        .map_or((equation, None), |(l, r)| (l, Some(r)));
    let terms: Vec<Vec<char>> = left.split(',').map(|term| term.chars().collect()).collect();
    let mut letters: Vec<char> = terms.concat();
    letters.sort_unstable();
    let once = |c: &char| letters.iter().filter(|l| *l == c).count() == 1;
    let result: Vec<char> = match right {
        Some(right) => right.chars().collect(),
        None => letters.iter().copied().filter(once).collect(),
    };
    letters.dedup();
    let order: Vec<char> = result
        .iter()
        .copied()
        .chain(letters.into_iter().filter(|l| !result.contains(l)))
        .collect();
    let mut product: Option<Vid> = None;
    for (i, term) in terms.iter().enumerate() {
        let mut x = t.float(cx, cx.input(i)?)?;
        let mut term = term.clone();
        while let Some((a, b)) = repeated(&term) {
            x = diagonal(t, x, a, b)?;
            term.remove(b);
        }
        let held: Vec<usize> = order.iter().filter_map(|l| term.iter().position(|c| c == l)).collect();
        x = t.permute(x, &held)?;
        let dims = t.shape(x)?;
        let mut dims = dims.into_iter();
        let size = |l: &char| if term.contains(l) { dims.next().unwrap_or(1) } else { 1 };
        let shape: Vec<usize> = order.iter().map(size).collect();
        let x = t.reshape(x, &shape)?;
        product = Some(match product {
            Some(y) => t.mul(y, x)?,
            None => x,
        });
    }
    let Some(mut y) = product else {
        return form("Einsum without operands");
    };
    for axis in (result.len()..order.len()).rev() {
        y = t.op(Op::Sum { axis, keep: false }, &[y])?;
    }
    let y = t.view(y)?;
    like_first(cx, y)
}

fn repeated(term: &[char]) -> Option<(usize, usize)> {
    (0..term.len()).find_map(|a| (a + 1..term.len()).find(|&b| term[b] == term[a]).map(|b| (a, b)))
}

/// Elements whose indices on `a` and `b` are equal; `b` is dropped.
fn diagonal(t: &mut Translator<'_>, x: Vid, a: usize, b: usize) -> R<Vid> {
    let shape = t.shape(x)?;
    let n = shape[a];
    let others: Vec<usize> = (0..shape.len()).filter(|&i| i != a && i != b).collect();
    let perm: Vec<usize> = [a, b].into_iter().chain(others.iter().copied()).collect();
    let x = t.permute(x, &perm)?;
    let rest: Vec<usize> = others.iter().map(|&i| shape[i]).collect();
    let x = t.reshape(x, &[&[n * n], rest.as_slice()].concat())?;
    let at = t.indices(&(0..n).map(|i| i * (n + 1)).collect::<Vec<_>>())?;
    let x = t.gather(x, 0, at)?;
    // Back to the order of the dimensions without `b`.
    let mut back: Vec<usize> = (1..=others.len()).collect();
    back.insert(others.iter().filter(|&&i| i < a).count(), 0);
    t.permute(x, &back)
}

/// Integers less their zero point: exact in F32, as are sums of their products here.
fn shifted(t: &mut Translator<'_>, cx: &NodeCx<'_>, x: usize, zero: usize, rows: bool) -> R<Vid> {
    let vid = t.f32(cx.input(x)?)?;
    let Some(z) = cx.optional(zero) else { return Ok(vid) };
    let zero = t.f32(z)?;
    let zero = match z.shape[..] {
        [] | [1] => t.reshape(zero, &[1])?,
        [n] if rows => t.reshape(zero, &[n, 1])?,
        _ => zero,
    };
    t.sub(vid, zero)
}

fn matmul_integer(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let (a, b) = (shifted(t, cx, 0, 2, true)?, shifted(t, cx, 1, 3, false)?);
    let y = product(t, a, b)?;
    let y = t.cast(y, glia_core::DType::I32)?;
    Ok(vec![(y, Elem::I32)])
}

fn qlinear_matmul(t: &mut Translator<'_>, cx: &NodeCx<'_>) -> Outputs {
    let (a, b) = (shifted(t, cx, 0, 2, true)?, shifted(t, cx, 3, 5, false)?);
    let y = product(t, a, b)?;
    let mut factor = t.f32(cx.input(1)?)?;
    for i in [4, 6] {
        let scale = t.f32(cx.input(i)?)?;
        factor = if i == 4 {
            t.mul(factor, scale)?
        } else {
            t.div(factor, scale)?
        };
    }
    let y = t.mul(y, factor)?;
    let y = t.round_even(y)?;
    let zero = t.f32(cx.input(7)?)?;
    let y = t.add(y, zero)?;
    let to = cx.input(7)?.elem;
    let Some(dtype) = to.dtype() else {
        return form("an output type without a dtype");
    };
    let y = t.cast(y, dtype)?;
    Ok(vec![(y, to)])
}
