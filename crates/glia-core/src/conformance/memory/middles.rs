//! Short pieces of every op that fits rows of 16, for cases about what lies around them in memory.

use crate::conformance::data::{Random, noise};
use crate::conformance::segment::SegmentBuilder;
use crate::{Binary, DType, Gate, Op, Rope, RopePairing, Sdpa, Tensor, Unary, ValueId};

/// A name, and nodes from x `[T, 16]`, the last of which is returned.
pub(super) type Middle = (&'static str, fn(&mut SegmentBuilder, ValueId) -> ValueId);

/// What stands between guards, and what is given values to use up.
pub(super) const MIDDLES: &[Middle] = &[
    ("matmul_f32", |b, x| product(b, x, DType::F32, 16)),
    ("matmul_odd", |b, x| product(b, x, DType::F32, 13)),
    ("matmul_q8_0", |b, x| {
        let wide = b.one("wide", Op::Repeat { axis: 1, n: 2 }, &[x]);
        let w = b.weight("w", noise(DType::Q8_0, &[16, 32], 1.0, &mut Random::of("q8")));
        b.one("y", Op::MatMul, &[wide, w])
    }),
    ("add", |b, x| b.one("y", Op::Binary(Binary::Add), &[x, x])),
    ("sub", |b, x| b.one("y", Op::Binary(Binary::Sub), &[x, x])),
    ("mul", |b, x| b.one("y", Op::Binary(Binary::Mul), &[x, x])),
    ("div", |b, x| b.one("y", Op::Binary(Binary::Div), &[x, x])),
    ("scale", |b, x| b.one("y", Op::Scale { factor: 3.0 }, &[x])),
    ("clamp", |b, x| b.one("y", Op::Clamp { min: -0.5, max: 0.5 }, &[x])),
    ("gelu", |b, x| b.one("y", Op::Unary(Unary::Gelu), &[x])),
    ("silu", |b, x| b.one("y", Op::Unary(Unary::Silu), &[x])),
    ("geglu", |b, x| b.one("y", Op::Gated(Gate::Gelu), &[x, x])),
    ("swiglu", |b, x| b.one("y", Op::Gated(Gate::Silu), &[x, x])),
    ("rms_norm", |b, x| {
        let op = Op::RmsNorm {
            eps: 1e-5,
            plus_one: false,
        };
        b.one("y", op, &[x])
    }),
    ("layer_norm", |b, x| b.one("y", Op::LayerNorm { eps: 1e-5 }, &[x])),
    ("softmax", |b, x| b.one("y", Op::Softmax { axis: 1 }, &[x])),
    ("transpose", |b, x| b.one("y", Op::Transpose { a: 0, b: 1 }, &[x])),
    ("slice", |b, x| {
        let op = Op::Slice {
            axis: 1,
            start: 3,
            end: Some(16),
        };
        b.one("y", op, &[x])
    }),
    ("permute", |b, x| {
        let cut = b.one("cut", Op::Reshape { dims: vec![-1, 4, 4] }, &[x]);
        b.one("y", Op::Permute { perm: vec![1, 2, 0] }, &[cut])
    }),
    ("gather", |b, x| {
        let ids = Tensor::from_i32([5], &[3, 15, 0, 7, 7]);
        let ids = b.weight("ids", ids.expect("five integers are five"));
        b.one("y", Op::Gather { axis: 1 }, &[x, ids])
    }),
    ("concat", |b, x| b.one("y", Op::Concat { axis: 1 }, &[x, x])),
    ("split", |b, x| {
        b.node(
            "y",
            Op::Split {
                axis: 1,
                sizes: vec![5, 11],
            },
            &[x],
        )[1]
    }),
    ("repeat", |b, x| b.one("y", Op::Repeat { axis: 1, n: 3 }, &[x])),
    ("sum", |b, x| b.one("y", Op::Sum { axis: 1, keep: false }, &[x])),
    ("mean", |b, x| b.one("y", Op::Mean { axis: 1, keep: true }, &[x])),
    ("argmax", |b, x| b.one("y", Op::Argmax { axis: 1 }, &[x])),
    ("cast", |b, x| {
        let half = b.one("half", Op::Cast { to: DType::F16 }, &[x]);
        b.one("y", Op::Cast { to: DType::F32 }, &[half])
    }),
    ("topk", |b, x| b.node("y", Op::TopK { k: 3 }, &[x])[0]),
    ("rope", |b, x| {
        let positions = b.positions();
        let freqs = b.weight("freqs", noise(DType::F32, &[4], 1.0, &mut Random::of("freqs")));
        let heads = b.one("heads", Op::Reshape { dims: vec![-1, 2, 8] }, &[x]);
        let rope = Rope {
            pairing: RopePairing::NeoX,
            scale: 1.0,
            long_from: None,
        };
        b.one("y", Op::Rope(rope), &[heads, positions, freqs])
    }),
    ("sdpa", |b, x| {
        let heads = b.one("heads", Op::Reshape { dims: vec![-1, 2, 8] }, &[x]);
        let cache = b.node("cache", Op::KvCache, &[heads, heads]);
        let sdpa = Sdpa {
            scale: 0.4,
            causal: true,
            window: None,
            softcap: None,
            mask: false,
            sinks: false,
        };
        b.one("y", Op::Sdpa(sdpa), &[heads, cache[0], cache[1]])
    }),
];

fn product(b: &mut SegmentBuilder, x: ValueId, dtype: DType, n: usize) -> ValueId {
    let w = b.weight("w", noise(dtype, &[n, 16], 1.0, &mut Random::of("product")));
    b.one("y", Op::MatMul, &[x, w])
}
