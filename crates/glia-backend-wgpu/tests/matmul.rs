//! Products with weights in every form of the kernels: those of GPUs run on the software adapter too, with all features
//! and masked to the baseline; matrices that no binding holds are cut in parts.

mod parts;

use glia_backend_wgpu::{ByteDots, Kernels, WgpuBackend, WgpuOptions};
use glia_core::{Backend, Binary, DType, Dim, Gate, Op, Precision, SeqRows, Tensor, ValueType, quant, reference};
use parts::{Act, Build, compare, compare_in, devices, noise, run_once};

fn weight(dtype: DType, n: usize, k: usize) -> Tensor {
    let values = noise(n * k, (n * 31 + k) as u32);
    let mut bytes = vec![0; dtype.size_bytes(n * k).unwrap()];
    quant::quantize(dtype, &values, &mut bytes).unwrap();
    Tensor::from_bytes(dtype, [n, k], &bytes).unwrap()
}

/// Fails where an element is farther from the oracle than rounding takes it.
fn check(gpu: &WgpuBackend, name: &str, inputs: &[&Tensor]) {
    let expected = reference::execute(&Op::MatMul, inputs).unwrap();
    let got = gpu
        .execute(&Op::MatMul, inputs)
        .unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(got[0].shape(), expected[0].shape(), "{name}");
    // Sums of k products below four in magnitude, in F32, in whatever order.
    let bound = 4e-7 * (inputs[0].shape().last_dim() as f32).max(8.0);
    let (got, expected) = (got[0].as_f32().unwrap(), expected[0].as_f32().unwrap());
    for (i, (a, b)) in got.iter().zip(expected).enumerate() {
        assert!((a - b).abs() <= bound, "{name}: element {i} is {a}, not {b}");
    }
}

#[test]
fn every_form_agrees_with_the_oracle_at_awkward_sizes() {
    for (name, gpu) in devices() {
        for (dtype, n, k) in [(DType::F32, 65, 31), (DType::Q8_0, 130, 96), (DType::Q4_1, 5, 64)] {
            let w = weight(dtype, n, k);
            let bias = Tensor::from_f32([n], &noise(n, 5)).unwrap();
            for m in [1, 2, 3, 4, 5, 8, 9, 17, 63, 64, 65, 130] {
                let x = Tensor::from_f32([m, k], &noise(m * k, m as u32)).unwrap();
                check(&gpu, &format!("{dtype} {m}x{n}x{k} ({name})"), &[&x, &w, &bias]);
            }
        }
    }
}

/// Where results need not be exact, many rows may be multiplied in F16: each is scaled, so that neither large nor small
/// ones are lost, and matrices with weights beyond F16 are not.
#[test]
fn fast_products_are_as_near_as_eleven_bits_take_them() {
    let mut seen = false;
    for (name, gpu) in devices() {
        seen |= gpu.adapter().cooperative_matrices;
        let sizes = [
            (DType::F32, 65, 31),
            (DType::BF16, 3, 7),
            (DType::Q8_0, 130, 96),
            (DType::Q4_1, 70, 64),
        ];
        for (dtype, n, k) in sizes {
            for top in [1.0, 1e30, 1e-30, 300_000.0] {
                let values: Vec<f32> = noise(n * k, (n * 31 + k) as u32);
                // Weights beyond F16, where the form can hold them.
                let grown = if top == 300_000.0 { top } else { 1.0 };
                if grown > 1.0 && !matches!(dtype, DType::F32 | DType::BF16) {
                    continue;
                }
                let values: Vec<f32> = values.iter().map(|v| v * grown).collect();
                let mut bytes = vec![0; dtype.size_bytes(n * k).unwrap()];
                quant::quantize(dtype, &values, &mut bytes).unwrap();
                let w = Tensor::from_bytes(dtype, [n, k], &bytes).unwrap();
                let bias = Tensor::from_f32([n], &noise(n, 5)).unwrap();
                let mut build = Build::default();
                let x = build.input("x", ValueType::new(DType::F32, [Dim::T, Dim::fixed(k)]));
                let r = build.input("r", ValueType::new(DType::F32, [Dim::T, Dim::fixed(n)]));
                let (wid, bid) = (build.weight("w", w.clone()), build.weight("bias", bias.clone()));
                let y = build.op(Op::MatMul, &[x, wid, bid])[0];
                build.segment.outputs = build.op(Op::Binary(Binary::Add), &[y, r]);
                for m in [1, 15, 16, 17, 32, 33, 64, 65, 130] {
                    let scale = if grown > 1.0 { 1.0 } else { top };
                    // Every row has a size of its own.
                    let rows: Vec<f32> = noise(m * k, m as u32)
                        .iter()
                        .enumerate()
                        .map(|(i, v)| v * scale * (1.0 + (i / k) as f32))
                        .collect();
                    let xt = Tensor::from_f32([m, k], &rows).unwrap();
                    let rt = Tensor::from_f32([m, n], &noise(m * n, 9)).unwrap();
                    let product = reference::execute(&Op::MatMul, &[&xt, &w, &bias]).unwrap();
                    let expected = reference::execute(&Op::Binary(Binary::Add), &[&product[0], &rt]).unwrap();
                    let got = run_once(&gpu, &build, Precision::Fast, &[xt, rt]);
                    let pairs = got[0].as_f32().unwrap().iter().zip(expected[0].as_f32().unwrap());
                    for (i, (a, b)) in pairs.enumerate() {
                        // Elements of both are below two in size before they are scaled; both are rounded to eleven
                        // bits, and sums of k in F32.
                        let size = 4.0 * grown * scale * (1.0 + (i / n) as f32) * k as f32;
                        let bound = size * (2f32.powi(-10) + 4e-7 * k as f32) + 1e-5;
                        assert!(
                            (a - b).abs() <= bound,
                            "{dtype} {m}x{n}x{k} times {top} ({name}): {i} is {a}, not {b}"
                        );
                    }
                }
            }
        }
    }
    if !seen {
        println!("skipped: no cooperative matrices on this adapter; products in F32 were tested");
    }
}

/// A gate and what it gates, in either order, with biases or without; and with a gate that is also returned, which must
/// then be there.
#[test]
fn gated_products_agree_with_the_oracle() {
    let kernels = [Kernels::Auto, Kernels::Together, Kernels::Auto, Kernels::Together];
    for ((name, gpu), kernels) in devices().into_iter().zip(kernels) {
        let options = WgpuOptions::default().with_kernels(kernels);
        let bytes = WgpuBackend::new(options.with_byte_dots(ByteDots::Always)).unwrap();
        for (dtype, n, k) in [(DType::F32, 37, 31), (DType::Q4_0, 70, 64)] {
            for (bias, swapped, returned) in [(false, false, false), (true, true, false), (false, true, true)] {
                let mut build = Build::default();
                let x = build.input("x", ValueType::new(DType::F32, [Dim::T, Dim::fixed(k)]));
                let mut side = |seed: usize| {
                    let w = build.weight(&format!("w{seed}"), weight(dtype, n, k));
                    let mut inputs = vec![x, w];
                    if bias {
                        let b = Tensor::from_f32([n], &noise(n, seed as u32)).unwrap();
                        inputs.push(build.weight(&format!("b{seed}"), b));
                    }
                    build.op(Op::MatMul, &inputs)[0]
                };
                let (a, b) = (side(1), side(2));
                let (gate, up) = if swapped { (b, a) } else { (a, b) };
                build.segment.outputs = build.op(Op::Gated(Gate::Silu), &[gate, up]);
                if returned {
                    build.segment.outputs.push(gate);
                }
                let given = |_: usize, rows: &[SeqRows]| {
                    let m: usize = rows.iter().map(|r| r.n_rows).sum();
                    vec![Tensor::from_f32([m, k], &noise(m * k, m as u32)).unwrap()]
                };
                let mut acts = vec![Act::Create(0)];
                let mut past = 0;
                for m in [1, 3, 9, 17, 33, 70] {
                    acts.push(Act::Run(vec![(0, m, past)]));
                    past += m;
                }
                let fault = compare(&gpu, &build, DType::F32, &acts, &given, 4e-5);
                assert_eq!(
                    fault, None,
                    "{dtype}, {name}, bias {bias}, swapped {swapped}, returned {returned}"
                );
                // In bytes and in F16 results are near, and far from any other pairing of columns.
                let fault = compare_in(Precision::Fast, &bytes, &build, DType::F32, &acts, &given, 1.0);
                assert_eq!(fault, None, "fast: {dtype}, {name}, bias {bias}, swapped {swapped}");
            }
        }
    }
}

/// Rows as products in bytes take them: 32 to a scale, the largest 127.
fn in_bytes(rows: &[f32], k: usize) -> Vec<f32> {
    let block = |x: &[f32]| -> Vec<f32> {
        let top = x.iter().fold(0f32, |top, v| top.max(v.abs()));
        let inverse = if top > 1e-36 { 127.0 / top } else { 0.0 };
        x.iter()
            .map(|v| (v * inverse).round_ties_even() * (top / 127.0))
            .collect()
    };
    rows.chunks(k).flat_map(|row| row.chunks(32).flat_map(block)).collect()
}

#[test]
fn products_in_bytes_are_those_of_rounded_rows() {
    for kernels in [Kernels::Auto, Kernels::Together] {
        for baseline in [false, true] {
            let options = WgpuOptions::default().with_kernels(kernels).with_baseline(baseline);
            let gpu = WgpuBackend::new(options.with_byte_dots(ByteDots::Always)).unwrap();
            let sizes = [
                (DType::Q8_0, 130, 96),
                (DType::Q4_0, 33, 64),
                (DType::Q4_1, 5, 2048),
                (DType::Q8_0, 3, 32),
            ];
            for (dtype, n, k) in sizes {
                let w = weight(dtype, n, k);
                let mut build = Build::default();
                let x = build.input("x", ValueType::new(DType::F32, [Dim::T, Dim::fixed(k)]));
                let wid = build.weight("w", w.clone());
                build.segment.outputs = build.op(Op::MatMul, &[x, wid]);
                for (m, scale) in [(1, 1.0), (2, 1e20), (5, 1e-20), (9, 1.0)] {
                    let mut rows: Vec<f32> = noise(m * k, m as u32).iter().map(|v| v * scale).collect();
                    rows[..32].fill(0.0);
                    let rounded = Tensor::from_f32([m, k], &in_bytes(&rows, k)).unwrap();
                    let expected = reference::execute(&Op::MatMul, &[&rounded, &w]).unwrap();
                    let xt = Tensor::from_f32([m, k], &rows).unwrap();
                    let got = run_once(&gpu, &build, Precision::Fast, &[xt]);
                    // One element in some blocks may be rounded to the other side.
                    let bound = scale * (4e-7 * k as f32 + 2.0 * 2.0 / 127.0 * 2.0 * (k as f32 / 512.0).max(1.0));
                    let pairs = got[0].as_f32().unwrap().iter().zip(expected[0].as_f32().unwrap());
                    for (i, (a, b)) in pairs.enumerate() {
                        let what = format!("{dtype} {m}x{n}x{k} ({kernels:?}, baseline {baseline})");
                        assert!((a - b).abs() <= bound, "{what}: {i} is {a}, not {b}");
                    }
                }
                // What is not finite stays so.
                let mut rows = noise(k, 3);
                rows[k - 1] = f32::INFINITY;
                let got = run_once(
                    &gpu,
                    &build,
                    Precision::Fast,
                    &[Tensor::from_f32([1, k], &rows).unwrap()],
                );
                assert!(got[0].as_f32().unwrap().iter().all(|v| !v.is_finite()), "{dtype}");
            }
        }
    }
}

/// Vocabularies of more than 128 MiB are cut where the binding of the device is smaller: here small ones, under a
/// small limit.
#[test]
fn a_matrix_larger_than_a_binding_is_cut_and_gives_the_same() {
    let (n, k) = (1000, 64);
    for dtype in [DType::F32, DType::F16, DType::Q8_0, DType::Q4_1] {
        let w = weight(dtype, n, k);
        let ids: Vec<i32> = (0..n as i32).rev().collect();
        let ids = Tensor::from_i32([n], &ids).unwrap();
        let x = Tensor::from_f32([3, k], &noise(3 * k, 7)).unwrap();
        let whole = WgpuBackend::new(WgpuOptions::default()).unwrap();
        for kernels in [Kernels::Auto, Kernels::Together] {
            let options = WgpuOptions::default().with_kernels(kernels);
            let parts = WgpuBackend::new(options.with_max_binding_bytes(13_000)).unwrap();
            check(&parts, &format!("{dtype} in parts"), &[&x, &w]);
            // Results have bindings too: ids of one part or several, a few at a time.
            for some in [0..40, 100..140, 960..1000] {
                let some = Op::Slice {
                    axis: 0,
                    start: some.start,
                    end: Some(some.end),
                };
                let ids = &reference::execute(&some, &[&ids]).unwrap()[0];
                let all = [&whole, &parts].map(|gpu| gpu.execute(&Op::TokenEmbed, &[ids, &w]).unwrap());
                assert_eq!(all[0][0].bytes().unwrap(), all[1][0].bytes().unwrap(), "{dtype}");
            }
        }
    }
}
