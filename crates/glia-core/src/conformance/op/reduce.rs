//! Sums, means, largest elements: every axis, ties, infinities.

use super::{size_name, values, x};
use crate::conformance::case::List;
use crate::{DType, Op};

pub(super) fn add(list: &mut List) {
    sums(list);
    largest(list);
}

fn sums(list: &mut List) {
    let both = |axis, keep| [Op::Sum { axis, keep }, Op::Mean { axis, keep }];
    for shape in [
        &[1][..],
        &[17],
        &[3, 19],
        &[3, 19, 6],
        &[2, 3, 4, 5],
        &[4, 1000],
        &[300, 3],
    ] {
        for axis in 0..shape.len() {
            for op in both(axis, false) {
                list.op(
                    format!("f32_{}_axis{axis}", size_name(shape)),
                    op,
                    vec![x(DType::F32, shape)],
                );
            }
        }
    }
    for axis in 0..2 {
        for op in both(axis, true) {
            list.op(format!("f32_5x7_axis{axis}_kept"), op, vec![x(DType::F32, &[5, 7])]);
        }
    }
    for dtype in [DType::F16, DType::BF16, DType::F64] {
        for op in both(1, false) {
            list.op(format!("{dtype}_4x20"), op, vec![x(dtype, &[4, 20])]);
        }
    }
    for op in both(1, false) {
        list.op("f32_no_rows", op.clone(), vec![x(DType::F32, &[0, 4])]);
        let special = [1.0, f64::INFINITY, 2.0, f64::NAN, 1.0, 2.0, 1e38, 1e38, 1.0];
        list.op("f32_special", op, vec![values(DType::F32, &[3, 3], &special)]);
    }
    list.op(
        "f32_nothing",
        Op::Sum { axis: 1, keep: false },
        vec![x(DType::F32, &[3, 0])],
    );
}

fn largest(list: &mut List) {
    let f32 = DType::F32;
    for shape in [&[1][..], &[50], &[3, 19], &[3, 19, 6], &[2, 3000], &[0, 4]] {
        for axis in 0..shape.len() {
            if shape[axis] > 0 {
                list.op(
                    format!("f32_{}_axis{axis}", size_name(shape)),
                    Op::Argmax { axis },
                    vec![x(f32, shape)],
                );
            }
        }
    }
    for (shape, k) in [
        (&[50][..], 1),
        (&[3, 50], 4),
        (&[3, 50], 50),
        (&[2, 2, 9], 3),
        (&[3, 5], 0),
        (&[2, 1500], 40),
        (&[0, 4], 2),
    ] {
        list.op(
            format!("f32_{}_k{k}", size_name(shape)),
            Op::TopK { k },
            vec![x(f32, shape)],
        );
    }
    for dtype in [DType::F16, DType::BF16, DType::F64] {
        list.op(
            format!("{dtype}_4x20"),
            Op::Argmax { axis: 1 },
            vec![x(dtype, &[4, 20])],
        );
        list.op(format!("{dtype}_4x20"), Op::TopK { k: 3 }, vec![x(dtype, &[4, 20])]);
    }
    // The lowest index wins, also far apart and between zeros of either sign.
    let ties = [1.0, 3.0, 2.0, 3.0, 3.0, 0.0, -1.0, 3.0];
    list.op("f32_ties", Op::Argmax { axis: 1 }, vec![values(f32, &[3, 8], &ties)]);
    list.op("f32_ties", Op::TopK { k: 5 }, vec![values(f32, &[3, 8], &ties)]);
    list.op(
        "f32_all_equal",
        Op::Argmax { axis: 1 },
        vec![values(f32, &[2, 300], &[0.25])],
    );
    list.op(
        "f32_all_equal",
        Op::TopK { k: 7 },
        vec![values(f32, &[2, 300], &[0.25])],
    );
    let ends = [f64::NEG_INFINITY, f64::NEG_INFINITY, -3e38, f64::INFINITY, 3e38, 1e-30];
    list.op(
        "f32_infinite",
        Op::Argmax { axis: 1 },
        vec![values(f32, &[2, 6], &ends)],
    );
    list.op("f32_infinite", Op::TopK { k: 6 }, vec![values(f32, &[2, 6], &ends)]);
    list.op(
        "f32_negative",
        Op::Argmax { axis: 0 },
        vec![values(f32, &[4], &[-5.0, -2.0, -9.0, -2.5])],
    );
}
