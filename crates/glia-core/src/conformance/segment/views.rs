//! Views, pieces, and values that are read more than once.

use super::blocks::weight;
use super::{Built, SegmentBuilder, Slots};
use crate::{Binary, DType, Dim, Gate, Op, Unary, ValueId};

const WIDTH: usize = 256;

fn begin() -> (SegmentBuilder, ValueId) {
    let mut b = SegmentBuilder::default();
    let x = b.input("x", DType::F32, [Dim::T, WIDTH.into()]);
    (b, x)
}

fn reshape(dims: &[i64]) -> Op {
    Op::Reshape { dims: dims.to_vec() }
}

/// Views of an intermediate and of views, read beside their source, after it, and returned.
pub(super) fn views(dtype: DType) -> Built {
    let (mut b, x) = begin();
    let w = b.weight("w", weight("views", dtype, &[WIDTH, WIDTH]));
    let y = b.one("y", Op::MatMul, &[x, w]);
    let heads = b.one("heads", reshape(&[-1, 4, 64]), &[y]);
    let finer = b.one("finer", reshape(&[-1, 4, 8, 8]), &[heads]);
    let silu = b.one("silu", Op::Unary(Unary::Silu), &[finer]);
    let flat = b.one("flat", reshape(&[-1, WIDTH as i64]), &[silu]);
    // The source is read long after its views.
    let sum = b.one("sum", Op::Binary(Binary::Add), &[flat, y]);
    let turned = b.one("turned", Op::Transpose { a: 1, b: 2 }, &[heads]);
    let relu = b.one("relu", Op::Unary(Unary::Relu), &[turned]);
    let back = b.one("back", reshape(&[-1, WIDTH as i64]), &[relu]);
    let product = b.one("product", Op::Binary(Binary::Mul), &[back, sum]);
    let cut = b.one("cut", reshape(&[-1, 2, 128]), &[product]);
    // A view of an input, and a view that is itself returned.
    let of_input = b.one("of_input", reshape(&[-1, 2, 128]), &[x]);
    let last = b.one("last", Op::Binary(Binary::Sub), &[of_input, cut]);
    b.finish(&[cut, last, heads], Slots::Shared)
}

/// Pieces of rows and columns, joined again in another order.
pub(super) fn slices(dtype: DType) -> Built {
    let (mut b, x) = begin();
    let w = b.weight("w", weight("slices", dtype, &[384, WIDTH]));
    let fused = b.one("fused", Op::MatMul, &[x, w]);
    let parts = b.node(
        "parts",
        Op::Split {
            axis: 1,
            sizes: vec![128, 64, 192],
        },
        &[fused],
    );
    let left = b.one(
        "left",
        Op::Slice {
            axis: 1,
            start: 64,
            end: Some(128),
        },
        &[parts[2]],
    );
    let gated = b.one("gated", Op::Gated(Gate::Silu), &[parts[1], left]);
    let joined = b.one("joined", Op::Concat { axis: 1 }, &[gated, parts[0], gated]);
    let odd = b.one(
        "odd",
        Op::Slice {
            axis: 1,
            start: 3,
            end: Some(70),
        },
        &[joined],
    );
    let exp = b.one("exp", Op::Unary(Unary::Sigmoid), &[odd]);
    let repeated = b.one("repeated", Op::Repeat { axis: 1, n: 3 }, &[exp]);
    let turned = b.one("turned", Op::Transpose { a: 0, b: 1 }, &[repeated]);
    let again = b.one("again", Op::Transpose { a: 0, b: 1 }, &[turned]);
    b.finish(&[joined, again], Slots::Shared)
}

/// One value as both operands of an op.
pub(super) fn same_operand(dtype: DType) -> Built {
    let (mut b, x) = begin();
    let w = b.weight("w", weight("same", dtype, &[WIDTH, WIDTH]));
    let y = b.one("y", Op::MatMul, &[x, w]);
    let square = b.one("square", Op::Binary(Binary::Mul), &[y, y]);
    let none = b.one("none", Op::Binary(Binary::Sub), &[square, square]);
    let gated = b.one("gated", Op::Gated(Gate::Silu), &[y, y]);
    let joined = b.one("joined", Op::Concat { axis: 1 }, &[gated, gated]);
    let a = b.one("a", reshape(&[-1, 8, 64]), &[joined]);
    let scores = b.one("scores", Op::MatMul, &[a, a]);
    let soft = b.one("soft", Op::Softmax { axis: 2 }, &[scores]);
    let view = b.one("view", reshape(&[-1, 64]), &[soft]);
    let twice = b.one("twice", Op::Binary(Binary::Add), &[view, view]);
    b.finish(&[none, twice, square], Slots::Shared)
}

/// Weights read through views, by several nodes, and in several places of a node.
pub(super) fn weights_as_views(dtype: DType) -> Built {
    let (mut b, x) = begin();
    let w = b.weight("w", weight("shared", dtype, &[WIDTH, WIDTH]));
    let gains = b.weight("gains", weight("gains", DType::F32, &[2, 128]));
    let gain = b.one("gain", reshape(&[-1]), &[gains]);
    let norm = Op::RmsNorm {
        eps: 1e-5,
        plus_one: true,
    };
    let n = b.one("n", norm, &[x, gain]);
    let y = b.one("y", Op::MatMul, &[n, w, gain]);
    let z = b.one("z", Op::MatMul, &[y, w]);
    let scaled = b.one("scaled", Op::Binary(Binary::Mul), &[z, gain]);
    let best = b.one("best", Op::Argmax { axis: 1 }, &[scaled]);
    let top = b.node("top", Op::TopK { k: 5 }, &[scaled]);
    // Near ties may fall either way with rounding: the values are compared, and that the indices agree.
    let _ = (best, top[1]);
    b.finish(&[scaled, top[0]], Slots::Shared)
}

/// Outputs of every age: the first value, one in the middle that is read on, the last.
pub(super) fn many_outputs(dtype: DType) -> Built {
    let (mut b, x) = begin();
    let w = b.weight("w", weight("many", dtype, &[WIDTH, WIDTH]));
    let mut outputs = Vec::new();
    let mut y = b.one("y", Op::MatMul, &[x, w]);
    for i in 0..6 {
        outputs.push(y);
        let s = b.one(&format!("sigmoid{i}"), Op::Unary(Unary::Sigmoid), &[y]);
        y = b.one(&format!("product{i}"), Op::Binary(Binary::Mul), &[s, x]);
    }
    outputs.push(y);
    let sum = b.one("sum", Op::Sum { axis: 1, keep: false }, &[y]);
    outputs.push(sum);
    b.finish(&outputs, Slots::Shared)
}
