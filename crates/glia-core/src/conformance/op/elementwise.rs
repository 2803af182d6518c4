//! Elementwise ops: broadcasting, dtypes, and the ends of the number line.

use super::{FLOATS, size_name, values, x};
use crate::conformance::case::List;
use crate::{Binary, DType, Gate, Op, Unary};

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;
const TINY: f64 = 1e-40;
/// Zeros, ordinary numbers, large ones, infinities, NaN.
const SPECIAL: [f64; 12] = [0.0, -0.0, 1e-30, 1.0, -1.0, 0.1, 1e10, -1e10, 3e38, -INF, INF, NAN];
/// A device may take denormals for zeros, as operands and as results: what depends on them is not asked for.
const DENORMAL: [f64; 6] = [TINY, -TINY, 1e-38, -3e-39, 0.0, 1.0];

pub(super) fn add(list: &mut List) {
    binary(list);
    unary(list);
    scalars(list);
    gated(list);
}

fn binary(list: &mut List) {
    let shapes: [(&[usize], &[usize]); 18] = [
        (&[7], &[7]),
        (&[2, 33], &[2, 33]),
        (&[3, 1, 5], &[4, 5]),
        (&[4, 5], &[3, 1, 5]),
        (&[6, 5], &[5]),
        (&[5], &[6, 5]),
        (&[6, 5], &[6, 1]),
        (&[6, 1], &[1, 5]),
        (&[7], &[1]),
        (&[1], &[7]),
        (&[], &[4]),
        (&[2, 3, 4, 5], &[3, 1, 5]),
        (&[2, 1, 4, 1], &[1, 3, 1, 5]),
        (&[4, 4], &[4]),
        (&[4, 4], &[4, 1]),
        (&[0, 3], &[3]),
        (&[3, 0], &[1]),
        (&[65, 130], &[130]),
    ];
    for op in [Binary::Add, Binary::Sub, Binary::Mul, Binary::Div] {
        for (a, b) in shapes {
            let name = format!("f32_{}_with_{}", size_name(a), size_name(b));
            list.op(name, Op::Binary(op), vec![x(DType::F32, a), x(DType::F32, b)]);
        }
        for dtype in [DType::F16, DType::BF16, DType::F64] {
            let name = format!("{dtype}_6x5_with_5");
            list.op(name, Op::Binary(op), vec![x(dtype, &[6, 5]), x(dtype, &[5])]);
        }
        let large = vec![x(DType::F32, &[300, 257]), x(DType::F32, &[300, 257])];
        list.op("f32_large", Op::Binary(op), large);
        // Every special number with every other.
        let (rows, columns) = (
            values(DType::F32, &[12, 1], &SPECIAL),
            values(DType::F32, &[12], &SPECIAL),
        );
        list.op("f32_special", Op::Binary(op), vec![rows, columns]);
        // Quotients and products of denormals stay denormal.
        let others = match op {
            Binary::Div => [1.0, -2.0, 4.0],
            _ => [1.0, -0.5, 0.25],
        };
        let denormal = vec![
            values(DType::F32, &[6, 1], &DENORMAL),
            values(DType::F32, &[3], &others),
        ];
        list.op("f32_denormals", Op::Binary(op), denormal);
    }
}

fn unary(list: &mut List) {
    for f in [
        Unary::Silu,
        Unary::Gelu,
        Unary::GeluTanh,
        Unary::Relu,
        Unary::Sigmoid,
        Unary::Tanh,
        Unary::Exp,
    ] {
        let op = || Op::Unary(f);
        for shape in [&[1][..], &[3, 17], &[3, 1001], &[2, 3, 4, 5], &[], &[0], &[4, 0]] {
            list.op(format!("f32_{}", size_name(shape)), op(), vec![x(DType::F32, shape)]);
        }
        for dtype in [DType::F16, DType::BF16, DType::F64] {
            list.op(format!("{dtype}_5x33"), op(), vec![x(dtype, &[5, 33])]);
        }
        // The whole range in which the functions bend, in steps of 1/16.
        let sweep: Vec<f64> = (-320..320).map(|i| f64::from(i) / 16.0).collect();
        list.op("f32_sweep", op(), vec![values(DType::F32, &[640], &sweep)]);
        let limits = [
            0.0, -0.0, TINY, 1e-20, -1e-20, 80.0, -80.0, -200.0, -1e10, -3e38, -INF, NAN,
        ];
        list.op("f32_limits", op(), vec![values(DType::F32, &[12], &limits)]);
        if f != Unary::Exp {
            let large = [88.0, 200.0, 1e4, 1e10, 1e30];
            list.op("f32_large_numbers", op(), vec![values(DType::F32, &[5], &large)]);
        }
    }
    let overflow = values(DType::F32, &[3], &[88.7, 89.0, INF]);
    list.op("f32_overflow", Op::Unary(Unary::Exp), vec![overflow]);
}

fn scalars(list: &mut List) {
    for factor in [-0.3f32, 0.0, 1.0, 1e30] {
        let at = format!("{factor:e}").replace(['-', '.'], "_");
        let op = Op::Scale { factor };
        list.op(format!("f32_by{at}"), op, vec![x(DType::F32, &[3, 17])]);
    }
    let clamps = [
        ("both", -0.5, 0.75),
        ("above", f32::NEG_INFINITY, 0.5),
        ("below", 0.25, f32::INFINITY),
        ("point", 1.0, 1.0),
        ("nothing", f32::NEG_INFINITY, f32::INFINITY),
    ];
    for (name, min, max) in clamps {
        list.op(
            format!("f32_{name}"),
            Op::Clamp { min, max },
            vec![x(DType::F32, &[3, 17])],
        );
    }
    let ops = [Op::Scale { factor: 1.5 }, Op::Clamp { min: -1.0, max: 0.5 }];
    for op in ops {
        for dtype in [DType::F16, DType::BF16, DType::F64] {
            list.op(format!("{dtype}_4x9"), op.clone(), vec![x(dtype, &[4, 9])]);
        }
        for shape in [&[][..], &[0, 5], &[257, 300]] {
            list.op(
                format!("f32_{}", size_name(shape)),
                op.clone(),
                vec![x(DType::F32, shape)],
            );
        }
    }
    list.op(
        "f32_special",
        Op::Scale { factor: 2.0 },
        vec![values(DType::F32, &[12], &SPECIAL)],
    );
    let infinite = values(DType::F32, &[4], &[INF, -INF, 3e38, -1e-40]);
    list.op("f32_infinite", Op::Clamp { min: -2.0, max: 3.0 }, vec![infinite]);
}

fn gated(list: &mut List) {
    for gate in [Gate::Silu, Gate::Gelu, Gate::GeluTanh] {
        for dtype in FLOATS {
            let name = format!("{dtype}_5x77");
            list.op(name, Op::Gated(gate), vec![x(dtype, &[5, 77]), x(dtype, &[5, 77])]);
        }
        for shape in [&[1][..], &[2, 3, 4], &[0, 8], &[33, 1000]] {
            let inputs = vec![x(DType::F32, shape), x(DType::F32, shape)];
            list.op(format!("f32_{}", size_name(shape)), Op::Gated(gate), inputs);
        }
        // The gate is shut or wide open; `up` may be anything finite.
        let shut = values(DType::F32, &[6], &[-1e10, -INF, -90.0, 0.0, 90.0, 1e10]);
        let up = values(DType::F32, &[6], &[1e10, 2.0, -3.0, 1e30, 2.0, -3.0]);
        list.op("f32_limits", Op::Gated(gate), vec![shut, up]);
    }
}
