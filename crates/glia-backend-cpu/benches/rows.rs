//! Ops that go over rows once, on 512 rows: norms, rotation, activations, residuals.

mod common;

use std::collections::HashMap;

use common::{Lab, Work};
use criterion::Criterion;
use glia_core::{Binary, DType, Dim, Gate, Op, Rope, RopePairing, Sizes, Tensor, Unary, ValueType};

const N_ROWS: usize = common::MAX_ROWS;
const WIDTH: usize = 2048;
const HEAD: usize = 64;

struct Case {
    name: &'static str,
    op: Op,
    /// Inputs with a row per token, of this shape without the rows.
    rows: Vec<Vec<usize>>,
    /// F32 weights.
    weights: Vec<Vec<usize>>,
}

fn cases() -> Vec<Case> {
    let case = |name, op, n_rows: usize, weights: &[&[usize]]| Case {
        name,
        op,
        rows: vec![vec![WIDTH]; n_rows],
        weights: weights.iter().map(|w| w.to_vec()).collect(),
    };
    let gain: &[usize] = &[WIDTH];
    let rms = Op::RmsNorm {
        eps: 1e-5,
        plus_one: false,
    };
    vec![
        case("rms_norm", rms, 1, &[gain]),
        case("layer_norm", Op::LayerNorm { eps: 1e-5 }, 1, &[gain, gain]),
        case("softmax", Op::Softmax { axis: 1 }, 1, &[]),
        case("swiglu", Op::Gated(Gate::Silu), 2, &[]),
        case("geglu_tanh", Op::Gated(Gate::GeluTanh), 2, &[]),
        case("silu", Op::Unary(Unary::Silu), 1, &[]),
        case("add", Op::Binary(Binary::Add), 2, &[]),
    ]
}

fn rope() -> Case {
    let rope = Rope {
        pairing: RopePairing::NeoX,
        scale: 1.0,
        long_from: None,
    };
    Case {
        name: "rope",
        op: Op::Rope(rope),
        rows: vec![vec![WIDTH / HEAD, HEAD]],
        weights: vec![vec![HEAD / 2]],
    }
}

fn ops(c: &mut Criterion, lab: &Lab) {
    let mut group = c.benchmark_group(format!("rows-{N_ROWS}x{WIDTH}"));
    for case in cases().into_iter().chain([rope()]) {
        let names: Vec<String> = (0..case.rows.len()).map(|i| format!("x{i}")).collect();
        let weights: HashMap<String, Tensor> = case
            .weights
            .iter()
            .enumerate()
            .map(|(i, shape)| (format!("w{i}"), common::tensor(shape)))
            .collect();
        let mut executor = lab.executor(DType::F16, weights, |b| {
            let mut operands = Vec::new();
            for (name, dims) in names.iter().zip(&case.rows) {
                let dims: Vec<Dim> = [Dim::T].into_iter().chain(dims.iter().map(|&d| d.into())).collect();
                operands.push(b.input(name, ValueType::new(DType::F32, dims))?);
            }
            if matches!(case.op, Op::Rope(_)) {
                operands.push(b.positions());
            }
            for (i, shape) in case.weights.iter().enumerate() {
                operands.push(b.weight(&format!("w{i}"), ValueType::fixed(DType::F32, shape))?);
            }
            b.node1(case.name, case.op.clone(), &operands)
        });
        let sizes = Sizes {
            t: N_ROWS,
            r: N_ROWS,
            n: 1,
            ..Sizes::default()
        };
        let region = &executor.plan().regions[0].segment;
        let kv = executor.config().kv_dtypes;
        let cost = region
            .cost(&region.instrs[0], &sizes, &[sizes], kv)
            .expect("a small step");
        let work = Work {
            bytes: cost.bytes(),
            ops: cost.ops,
            int8: false,
        };
        let inputs: Vec<(&str, Tensor)> = names
            .iter()
            .zip(&case.rows)
            .map(|(name, dims)| (name.as_str(), common::tensor(&[&[N_ROWS], &dims[..]].concat())))
            .collect();
        lab.measure(&mut group, case.name, work, || {
            executor.run(&inputs).expect("a step");
            executor.reset();
        });
    }
    group.finish();
}

fn main() {
    let mut criterion = Lab::criterion();
    ops(&mut criterion, &Lab::new(0));
    criterion.final_summary();
}
