//! Normalisations and softmax: widths around vector sizes, gains and biases, where epsilon matters.

use super::{FLOATS, size_name, values, w, x};
use crate::conformance::case::List;
use crate::{DType, Op};

pub(super) fn add(list: &mut List) {
    let f32 = DType::F32;
    for width in [1, 2, 3, 15, 16, 17, 64, 100, 577, 1024] {
        for plus_one in [false, true] {
            let one = if plus_one { "_plus_one" } else { "" };
            let op = Op::RmsNorm { eps: 1e-6, plus_one };
            list.op(
                format!("f32_3x{width}{one}"),
                op,
                vec![x(f32, &[3, width]), w(f32, &[width])],
            );
        }
        let op = Op::LayerNorm { eps: 1e-3 };
        let inputs = vec![x(f32, &[3, width]), w(f32, &[width]), w(f32, &[width]).sized(3.0)];
        list.op(format!("f32_3x{width}"), op, inputs);
    }
    let rms = |eps| Op::RmsNorm { eps, plus_one: false };
    let layer = |eps| Op::LayerNorm { eps };
    for op in [rms(1e-5), layer(1e-5)] {
        list.op("f32_no_gain", op.clone(), vec![x(f32, &[4, 33])]);
        for shape in [&[20][..], &[2, 3, 24], &[2, 1, 3, 8], &[0, 16], &[260, 96]] {
            let width = shape[shape.len() - 1];
            let name = format!("f32_{}_gain", size_name(shape));
            list.op(name, op.clone(), vec![x(f32, shape), w(f32, &[width])]);
        }
        for gain in [DType::F16, DType::BF16] {
            list.op(
                format!("f32_gain_{gain}"),
                op.clone(),
                vec![x(f32, &[3, 40]), w(gain, &[40])],
            );
            let halves = vec![x(gain, &[3, 40]), w(gain, &[40])];
            list.op(format!("{gain}_3x40"), op.clone(), halves);
        }
        // Rows of very different size do not meet; a large row does not overflow its sum of squares.
        let steps: Vec<f64> = [1e-6, 1.0, 1e6, 1e17]
            .iter()
            .flat_map(|s| [0.5 * s, -s, 2.0 * s, 0.25 * s])
            .collect();
        list.op("f32_row_sizes", op.clone(), vec![values(f32, &[4, 4], &steps)]);
        list.op("f32_zeros", op, vec![values(f32, &[2, 8], &[0.0]), w(f32, &[8])]);
    }
    // Small rows under a large epsilon: inside the root or outside makes all the difference.
    list.op(
        "f32_epsilon",
        rms(0.25),
        vec![x(f32, &[3, 24]).sized(0.5), w(f32, &[24])],
    );
    list.op(
        "f32_epsilon",
        layer(0.25),
        vec![x(f32, &[3, 24]).sized(0.5), w(f32, &[24])],
    );
    // A mean far from zero: the variance must not be a difference of large squares.
    let shifted: Vec<f64> = (0..32).map(|i| 1000.0 + f64::from(i * 7 % 32) / 16.0).collect();
    list.op("f32_shifted", layer(1e-5), vec![values(f32, &[2, 32], &shifted)]);
    // Few columns: dividing by n or by n - 1 shows.
    list.op("f32_two_columns", layer(0.0), vec![x(f32, &[5, 2]), w(f32, &[2])]);
    softmax(list);
}

fn softmax(list: &mut List) {
    let f32 = DType::F32;
    for (shape, axes) in [
        (&[1][..], 1),
        (&[1000], 1),
        (&[3, 19], 2),
        (&[3, 19, 6], 3),
        (&[2, 3, 4, 5], 4),
        (&[0, 4], 2),
        (&[3, 513], 2),
    ] {
        for axis in 0..axes {
            let name = format!("f32_{}_axis{axis}", size_name(shape));
            list.op(name, Op::Softmax { axis }, vec![x(f32, shape)]);
        }
    }
    for dtype in FLOATS {
        list.op(
            format!("{dtype}_4x20"),
            Op::Softmax { axis: 1 },
            vec![x(dtype, &[4, 20])],
        );
    }
    let op = || Op::Softmax { axis: 1 };
    list.op(
        "f32_large_numbers",
        op(),
        vec![values(
            f32,
            &[2, 4],
            &[1e4, 1e4 - 1.0, -1e4, 9e3, -1e30, -2e30, -1e30, -3e30],
        )],
    );
    let inf = f64::NEG_INFINITY;
    list.op(
        "f32_masked",
        op(),
        vec![values(f32, &[2, 5], &[inf, 1.0, inf, 2.0, 0.5])],
    );
    let nan = values(f32, &[2, 3], &[1.0, f64::NAN, 2.0, 1.0, 2.0, 3.0]);
    list.op("f32_nan_row", op(), vec![nan]);
    list.op("f32_equal", op(), vec![values(f32, &[2, 7], &[3.5])]);
}
