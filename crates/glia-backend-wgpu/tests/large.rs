//! More workgroups than one dimension of a dispatch takes: they are folded, and the last element is right.

use glia_backend_wgpu::{WgpuBackend, WgpuOptions};
use glia_core::{Backend, Binary, Op, Tensor, Unary, reference};

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
