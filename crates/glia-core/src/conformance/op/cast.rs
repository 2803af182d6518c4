//! Conversions: every pair of plain dtypes, quantised to float, ties and what does not fit.

use super::{values, w, x};
use crate::conformance::case::List;
use crate::{DType, Op};

const PLAIN: [DType; 10] = [
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::F64,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::Bool,
];

pub(super) fn add(list: &mut List) {
    for from in PLAIN {
        for to in PLAIN {
            list.op(
                format!("{from}_to_{to}"),
                Op::Cast { to },
                vec![x(from, &[3, 33]).sized(100.0)],
            );
        }
    }
    for &from in DType::ALL.iter().filter(|d| d.is_quantized()) {
        let inputs = vec![w(from, &[3, 2 * from.block_elems()])];
        list.op(format!("{from}_to_f32"), Op::Cast { to: DType::F32 }, inputs);
    }
    // Denormals of F16 are normal numbers of F32.
    let small = x(DType::F16, &[2, 33]).sized(5e-5);
    list.op("f16_denormals_to_f32", Op::Cast { to: DType::F32 }, vec![small]);
    let halves = [0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.49999997, 126.5, 127.5, -128.5];
    // Beside the middle between two 16-bit numbers, and on it.
    let middles = [
        1.0 + 1.0 / 2048.0,
        1.0 + 3.0 / 2048.0,
        1.0 + 1.0 / 256.0,
        1.0 + 3.0 / 256.0,
        2049.0,
        257.0,
    ];
    let beyond = [
        1e20,
        -1e20,
        300.0,
        -300.0,
        70000.0,
        6e-8,
        f64::INFINITY,
        f64::NEG_INFINITY,
        2147483648.0,
    ];
    let all: Vec<f64> = halves
        .into_iter()
        .chain(middles)
        .chain(beyond)
        .chain([f64::NAN, -0.0])
        .collect();
    for to in PLAIN {
        let input = values(DType::F32, &[all.len()], &all);
        list.op(format!("f32_edges_to_{to}"), Op::Cast { to }, vec![input]);
    }
    let wide = [
        i64::MAX as f64,
        i64::MIN as f64,
        4294967296.0,
        -4294967297.0,
        16777217.0,
        255.0,
    ];
    for to in [DType::I32, DType::I8, DType::U8, DType::F32, DType::I16] {
        let input = values(DType::I64, &[wide.len()], &wide);
        list.op(format!("i64_edges_to_{to}"), Op::Cast { to }, vec![input]);
    }
    for shape in [&[][..], &[0], &[2, 0, 3], &[65, 129]] {
        let name = format!("f32_to_f16_{}", super::size_name(shape));
        list.op(name, Op::Cast { to: DType::F16 }, vec![x(DType::F32, shape)]);
    }
}
