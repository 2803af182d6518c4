//! Matrix products: every dtype of weights, sizes around vector widths, batches, biases.

use super::{FLOATS, Input, size_name, values, w, x};
use crate::conformance::case::List;
use crate::{DType, Op};

pub(super) fn add(list: &mut List) {
    float_sizes(list);
    weight_dtypes(list);
    f16_denormals(list);
    forms(list);
    extremes(list);
}

fn float_sizes(list: &mut List) {
    // (rows, columns, inner): odd ones, powers of two and their neighbours, nothing at all.
    for [m, n, k] in [
        [1, 1, 1],
        [1, 5, 3],
        [2, 8, 7],
        [3, 7, 8],
        [4, 16, 16],
        [5, 17, 31],
        [7, 32, 33],
        [8, 64, 64],
        [16, 15, 65],
        [17, 33, 127],
        [33, 40, 257],
        [65, 65, 128],
        [1, 300, 512],
        [64, 96, 320],
        [128, 130, 100],
        [0, 5, 8],
        [3, 0, 8],
        [3, 5, 0],
    ] {
        let name = format!("f32_{}", size_name(&[m, n, k]));
        list.op(name, Op::MatMul, vec![x(DType::F32, &[m, k]), w(DType::F32, &[n, k])]);
    }
    for dtype in [DType::F16, DType::BF16] {
        for [m, n, k] in [[3, 5, 32], [2, 33, 70]] {
            let name = format!("{dtype}_rows_{}", size_name(&[m, n, k]));
            list.op(name, Op::MatMul, vec![x(dtype, &[m, k]), w(dtype, &[n, k])]);
        }
    }
}

/// Numbers that F16 keeps as denormals, multiples of 2^-24, are normal ones in F32: they are not to be lost.
fn f16_denormals(list: &mut List) {
    let f32 = DType::F32;
    let inputs = vec![x(f32, &[3, 64]), w(DType::F16, &[5, 64]).sized(5e-5)];
    list.op_for("f16_denormal_weights", Op::MatMul, inputs, DType::F16);
    let inputs = vec![x(DType::F16, &[3, 64]).sized(5e-5), w(DType::F16, &[5, 64])];
    list.op("f16_denormal_rows", Op::MatMul, inputs);
    let smallest = Input {
        is_weight: true,
        ..values(
            DType::F16,
            &[2, 32],
            &[2f64.powi(-24), -(2f64.powi(-24)), 3.0 * 2f64.powi(-24)],
        )
    };
    list.op_for(
        "f16_smallest_weights",
        Op::MatMul,
        vec![x(f32, &[2, 32]), smallest],
        DType::F16,
    );
    for dtype in [
        DType::Q4_0,
        DType::Q4_1,
        DType::Q5_0,
        DType::Q5_1,
        DType::Q8_0,
        DType::IQ4_NL,
        DType::Q6_K,
    ] {
        let k = 2 * dtype.block_elems();
        let inputs = vec![x(f32, &[3, k]), w(dtype, &[5, k]).sized(5e-4)];
        list.op_for(format!("{dtype}_denormal_scales"), Op::MatMul, inputs, dtype);
    }
}

fn weight_dtypes(list: &mut List) {
    for &dtype in DType::ALL.iter().filter(|d| d.is_float() || d.is_quantized()) {
        let block = dtype.block_elems().max(32);
        // One row, a few, many; one block, several; a column count that no tile divides.
        for (m, n, blocks) in [(1, 1, 1), (1, 37, 2), (3, 16, 3), (6, 33, 2), (19, 70, 1)] {
            let k = blocks * block;
            let name = format!("{dtype}_{}", size_name(&[m, n, k]));
            // The plain sizes of F32 are above.
            let name = if dtype == DType::F32 {
                format!("{name}_block")
            } else {
                name
            };
            list.op_for(name, Op::MatMul, vec![x(DType::F32, &[m, k]), w(dtype, &[n, k])], dtype);
        }
        let (n, k) = (11, 2 * block);
        let bias = vec![
            x(DType::F32, &[2, k]),
            w(dtype, &[n, k]),
            w(DType::F32, &[n]).sized(20.0),
        ];
        list.op_for(format!("{dtype}_bias"), Op::MatMul, bias, dtype);
        // Square: a transposed weight has the same shape.
        let square = vec![x(DType::F32, &[2, block]), w(dtype, &[block, block])];
        list.op_for(format!("{dtype}_square"), Op::MatMul, square, dtype);
    }
    for dtype in [DType::Q4_0, DType::Q8_0, DType::Q4_K, DType::Q6_K, DType::F16] {
        let wide = vec![x(DType::F32, &[2, 1024]), w(dtype, &[260, 1024])];
        list.op_for(format!("{dtype}_wide"), Op::MatMul, wide, dtype);
        let empty = vec![x(DType::F32, &[0, 256]), w(dtype, &[4, 256])];
        list.op_for(format!("{dtype}_no_rows"), Op::MatMul, empty, dtype);
    }
}

fn forms(list: &mut List) {
    let f32 = DType::F32;
    for bias in FLOATS {
        let inputs = vec![x(f32, &[3, 20]), w(f32, &[9, 20]), w(bias, &[9]).sized(10.0)];
        list.op(format!("f32_bias_{bias}"), Op::MatMul, inputs);
    }
    // A sum over nothing is the bias.
    let inputs = vec![x(f32, &[3, 0]), w(f32, &[5, 0]), w(f32, &[5]).sized(10.0)];
    list.op("f32_3x5x0_bias", Op::MatMul, inputs);
    list.op("f32_vector", Op::MatMul, vec![x(f32, &[40]), w(f32, &[6, 40])]);
    list.op(
        "f32_rank3_rows",
        Op::MatMul,
        vec![x(f32, &[2, 3, 16]), w(f32, &[5, 16])],
    );
    list.op(
        "f32_rank4_rows",
        Op::MatMul,
        vec![x(f32, &[2, 1, 3, 24]), w(f32, &[5, 24])],
    );
    list.op(
        "f32_two_activations",
        Op::MatMul,
        vec![x(f32, &[5, 19]), x(f32, &[7, 19])],
    );
    for [b, m, n, k] in [
        [1, 3, 4, 5],
        [2, 3, 17, 31],
        [3, 1, 8, 64],
        [4, 9, 9, 9],
        [2, 0, 3, 4],
        [0, 2, 3, 4],
    ] {
        let name = format!("f32_batch_{}", size_name(&[b, m, n, k]));
        list.op(name, Op::MatMul, vec![x(f32, &[b, m, k]), x(f32, &[b, n, k])]);
    }
    let nested = vec![x(f32, &[2, 3, 4, 10]), x(f32, &[2, 3, 5, 10])];
    list.op("f32_batch_of_batches", Op::MatMul, nested);
    let weights = vec![x(f32, &[3, 2, 32]), w(f32, &[3, 7, 32])];
    list.op("f32_batch_of_weights", Op::MatMul, weights);
}

fn extremes(list: &mut List) {
    let f32 = DType::F32;
    // Products of 1e30 and 1e-30 are ordinary: nothing may overflow on the way.
    let big = values(f32, &[2, 8], &[1e30, -2e30, 3e30, 1e29]);
    let small = values(f32, &[3, 8], &[1e-30, 2e-30, -1e-30, 4e-30, 5e-30]);
    list.op("f32_far_apart", Op::MatMul, vec![big, small]);
    let inf = f64::INFINITY;
    let special = values(
        f32,
        &[4, 4],
        &[
            1.0,
            2.0,
            3.0,
            4.0,
            inf,
            1.0,
            1.0,
            1.0,
            1.0,
            f64::NAN,
            1.0,
            1.0,
            -inf,
            inf,
            0.0,
            0.0,
        ],
    );
    // NaN and infinity stay in their row.
    let plain = values(f32, &[3, 4], &[1.0, 2.0, 0.5, 3.0, 1.5]);
    list.op("f32_special_rows", Op::MatMul, vec![special, plain]);
    // All zeros: no scale of a block of activations may be a division by zero.
    for dtype in [DType::F32, DType::Q8_0, DType::Q4_0, DType::Q4_K] {
        let zeros = values(f32, &[2, 256], &[0.0]);
        list.op_for(
            format!("{dtype}_zero_rows"),
            Op::MatMul,
            vec![zeros, w(dtype, &[5, 256])],
            dtype,
        );
    }
    // One large activation per block hides the others when they are rounded to 8 bits; the exact mode keeps them.
    let outlier = values(f32, &[1, 64], &[1.0, 0.5, -0.25, 30.0, 0.125, -1.0, 2.0, 0.75]);
    list.op_for(
        "q8_0_outliers",
        Op::MatMul,
        vec![outlier, w(DType::Q8_0, &[9, 64])],
        DType::Q8_0,
    );
}
