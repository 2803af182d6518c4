//! Random small graphs for property tests, and the sizes that they are run at.

#![allow(dead_code)] // Each test program uses a part.

pub mod eval;

use glia_core::{Binary, DType, Dim, Gate, Op, Rope, RopePairing, Sdpa, Unary, ValueType};
use glia_ir::{Graph, GraphBuilder, Vid};
use proptest::prelude::*;

/// A step of the recipe for a graph: which op, and which of the values so far.
#[derive(Clone, Copy, Debug)]
pub struct Pick {
    op: u8,
    operands: [u8; 3],
}

/// Recipes of up to `n` nodes.
pub fn recipes(n: usize) -> impl Strategy<Value = Vec<Pick>> {
    let pick = (0u8..40, any::<[u8; 3]>()).prop_map(|(op, operands)| Pick { op, operands });
    prop::collection::vec(pick, 1..n)
}

/// The graph of a recipe. Picks whose operands do not fit are left out, so most values have several readers, and
/// declared outputs are the last value and a few others.
pub fn build(recipe: &[Pick]) -> Graph {
    let mut b = GraphBuilder::new("random");
    let rows = |d| ValueType::new(DType::F32, [Dim::T, Dim::fixed(d)]);
    let fixed = |shape: &[usize]| ValueType::fixed(DType::F32, shape);
    let mut pool: Vec<Vid> = vec![
        b.input("x", rows(4)).unwrap(),
        b.input("y", rows(4)).unwrap(),
        b.weight("w", fixed(&[4, 4])).unwrap(),
        b.weight("gain", fixed(&[4])).unwrap(),
        b.weight("twice", fixed(&[8, 4])).unwrap(),
    ];
    let ids = b.input("ids", ValueType::new(DType::I32, [Dim::T])).unwrap();
    let positions = b.positions();
    let freqs = b.weight("freqs", fixed(&[1])).unwrap();
    // The ids fit into this table, which is no operand of others.
    let table = b.weight("table", fixed(&[8, 4])).unwrap();
    let mut made = Vec::new();
    for (i, pick) in recipe.iter().enumerate() {
        let [a, c, d] = pick.operands.map(|k| pool[usize::from(k) % pool.len()]);
        let (op, inputs) = choose(pick.op, [a, c, d], [ids, positions, freqs, table]);
        if let Ok(outputs) = b.node(&format!("n{i}"), op, &inputs) {
            pool.extend(&outputs);
            made.extend(outputs);
        }
    }
    let last = made.last().copied().unwrap_or(pool[0]);
    b.output("last", last).unwrap();
    for (i, value) in made.iter().enumerate().filter(|(i, _)| i % 5 == 2) {
        b.output(&format!("o{i}"), *value).unwrap();
    }
    b.finish().unwrap()
}

fn choose(op: u8, [a, c, d]: [Vid; 3], [ids, positions, freqs, table]: [Vid; 4]) -> (Op, Vec<Vid>) {
    let sdpa = |causal| {
        Op::Sdpa(Sdpa {
            scale: 0.5,
            causal,
            window: None,
            softcap: None,
            mask: false,
            sinks: false,
        })
    };
    let slice = |axis, start, end| Op::Slice { axis, start, end };
    let reshape = |dims: &[i64]| Op::Reshape { dims: dims.to_vec() };
    let permute = |perm: &[usize]| Op::Permute { perm: perm.to_vec() };
    match op {
        0 => (Op::Binary(Binary::Add), vec![a, c]),
        1 => (Op::Binary(Binary::Sub), vec![a, c]),
        2 | 3 => (Op::Binary(Binary::Mul), vec![a, c]),
        4 => (Op::Unary(Unary::Silu), vec![a]),
        5 => (Op::Unary(Unary::Gelu), vec![a]),
        6 => (Op::Unary(Unary::GeluTanh), vec![a]),
        7 => (Op::Unary(Unary::Sigmoid), vec![a]),
        8 => (Op::Scale { factor: 1.0 }, vec![a]),
        9 => (Op::Scale { factor: 0.5 }, vec![a]),
        10 => (Op::Cast { to: DType::F32 }, vec![a]),
        11 => (reshape(&[-1, 4]), vec![a]),
        12 => (reshape(&[-1, 2, 2]), vec![a]),
        13 => (reshape(&[2, 2, 4]), vec![a]),
        14 => (Op::Transpose { a: 0, b: 1 }, vec![a]),
        15 => (permute(&[1, 0, 2]), vec![a]),
        16 => (permute(&[1, 2, 0]), vec![a]),
        17 => (permute(&[0, 2, 1]), vec![a]),
        18 => (slice(1, 1, Some(3)), vec![a]),
        19 => (slice(1, 1, None), vec![a]),
        20 => (slice(0, 0, Some(2)), vec![a]),
        21 => (Op::Concat { axis: 1 }, vec![a, c]),
        22 => (
            Op::Split {
                axis: 1,
                sizes: vec![1, 3],
            },
            vec![a],
        ),
        23 => (
            Op::Split {
                axis: 0,
                sizes: vec![4, 4],
            },
            vec![a],
        ),
        24 | 25 => (Op::MatMul, vec![a, c]),
        26 => (Op::Softmax { axis: 1 }, vec![a]),
        27 => (Op::Softmax { axis: 0 }, vec![a]),
        28 => (
            Op::RmsNorm {
                eps: 1e-5,
                plus_one: true,
            },
            vec![a, c],
        ),
        29 => (Op::LayerNorm { eps: 1e-5 }, vec![a, c, d]),
        30 => (Op::Gated(Gate::Silu), vec![a, c]),
        31 => (Op::TokenEmbed, vec![ids, table]),
        32 => (
            Op::Rope(Rope {
                pairing: RopePairing::NeoX,
                scale: 1.0,
                long_from: None,
            }),
            vec![a, positions, freqs],
        ),
        33 => (Op::KvCache, vec![a, c]),
        34 => (sdpa(true), vec![a, c, d]),
        35 => (sdpa(false), vec![a, c, d]),
        36 => (Op::Repeat { axis: 1, n: 2 }, vec![a]),
        37 => (Op::Sum { axis: 0, keep: true }, vec![a]),
        38 => (Op::Mean { axis: 1, keep: true }, vec![a]),
        _ => (Op::Unary(Unary::Tanh), vec![a]),
    }
}
