//! More workgroups than one dimension of a dispatch takes: they are folded, and the last element is right. And a matrix
//! of more bytes than a binding holds, in the size of a real one.

use glia_backend_wgpu::{Kernels, WgpuBackend, WgpuOptions};
use glia_core::{Backend, Binary, DType, Op, Sdpa, Tensor, Unary, reference};

/// Workgroups that WebGPU guarantees in one dimension, of 64 threads each.
const MOST: usize = 65_535 * 64;

fn ramp(shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    let values: Vec<f32> = (0..n).map(|i| (i % 1013) as f32 / 512.0 - 1.0).collect();
    Tensor::from_f32(shape, &values).unwrap()
}

fn check(op: &Op, inputs: &[&Tensor]) {
    for baseline in [false, true] {
        let gpu = WgpuBackend::new(WgpuOptions::default().with_baseline(baseline)).unwrap();
        let got = gpu.execute(op, inputs).unwrap();
        let expected = reference::execute(op, inputs).unwrap();
        let (got, expected) = (got[0].as_f32().unwrap(), expected[0].as_f32().unwrap());
        assert_eq!(got.len(), expected.len(), "{op}");
        let wrong = |(i, (a, b)): (usize, (&f32, &f32))| ((a - b).abs() > 1e-6).then(|| format!("{i}: {a} not {b}"));
        let wrong = got.iter().zip(expected).enumerate().find_map(wrong);
        assert_eq!(wrong, None, "{op}, baseline {baseline}");
    }
}

#[test]
fn elementwise_ops_reach_the_last_element() {
    let x = ramp(&[MOST + 1]);
    check(&Op::Unary(Unary::Relu), &[&x]);
    check(&Op::Binary(Binary::Add), &[&x, &x]);
}

#[test]
fn reductions_reach_the_last_row() {
    let x = ramp(&[70_000, 3]);
    check(&Op::Softmax { axis: 1 }, &[&x]);
    let norm = Op::RmsNorm {
        eps: 1e-6,
        plus_one: false,
    };
    check(&norm, &[&x]);
    // A workgroup for a row, whatever the adapter: more steps than a thread may make alone.
    let (rows, width) = (65_537, 1);
    check(&Op::Sum { axis: 0, keep: false }, &[&ramp(&[rows, width])]);
}

#[test]
fn products_reach_the_last_column_and_row() {
    let (x, w) = (ramp(&[4100, 1]), ramp(&[1025, 1]));
    check(&Op::MatMul, &[&x, &w]);
}

/// More than 65,535 tiles of queries: each sees itself alone, so that its answer is its own value.
#[test]
fn attention_reaches_the_last_head_of_the_last_row() {
    let (rows, heads, d) = (7300, 9, 8);
    assert!(rows * heads > 65_535);
    let (q, kv) = (ramp(&[rows, heads, d]), ramp(&[rows, 1, d]));
    let alone = Op::Sdpa(Sdpa {
        scale: 0.3,
        causal: true,
        window: Some(1),
        softcap: None,
        mask: false,
        sinks: false,
    });
    for kernels in [Kernels::Auto, Kernels::Together] {
        let gpu = WgpuBackend::new(WgpuOptions::default().with_kernels(kernels)).unwrap();
        let got = gpu.execute(&alone, &[&q, &kv, &kv]).unwrap();
        let (got, own) = (got[0].as_f32().unwrap(), kv.as_f32().unwrap());
        assert_eq!(got.len(), rows * heads * d);
        let wrong = got.iter().enumerate().find_map(|(i, a)| {
            let expected = own[i / (heads * d) * d + i % d];
            ((a - expected).abs() > 1e-6).then(|| format!("{i}: {a} not {expected}"))
        });
        assert_eq!(wrong, None, "{kernels:?}");
    }
}

/// The head of a model with 152,064 tokens and 896 columns in F16: 272 MB, where 128 MiB are guaranteed.
#[test]
fn a_vocabulary_larger_than_the_guaranteed_binding_is_multiplied_in_parts() {
    let (n, k) = (152_064, 896);
    let element = |row: usize, column: usize| ((row * 31 + column * 7) % 17) as f32 / 8.0 - 1.0;
    let mut bytes = Vec::with_capacity(2 * n * k);
    for row in 0..n {
        let values = (0..k).map(|column| half::f16::from_f32(element(row, column)));
        bytes.extend(values.flat_map(half::f16::to_le_bytes));
    }
    let w = Tensor::from_bytes(DType::F16, [n, k], &bytes).unwrap();
    drop(bytes);
    let x = ramp(&[2, k]);
    let gpu = WgpuBackend::new(WgpuOptions::default().with_baseline(true)).unwrap();
    let got = gpu.execute(&Op::MatMul, &[&x, &w]).unwrap();
    assert_eq!(got[0].shape().dims(), [2, n]);
    let (got, x) = (got[0].as_f32().unwrap(), x.as_f32().unwrap());
    for row in 0..2 {
        // Parts have some 74,900 rows.
        for column in (0..n).step_by(101).chain(74_800..75_000).chain(n - 5..n) {
            let terms = (0..k).map(|i| f64::from(x[row * k + i]) * f64::from(element(column, i)));
            let (a, b) = (f64::from(got[row * n + column]), terms.sum::<f64>());
            assert!((a - b).abs() < 1e-3, "row {row}, column {column}: {a} not {b}");
        }
    }
}
