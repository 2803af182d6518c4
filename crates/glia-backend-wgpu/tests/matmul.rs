//! Products with weights in every form of the kernels: those of GPUs run on the software adapter too, with all features
//! and masked to the baseline; matrices that no binding holds are cut in parts.

mod parts;

use glia_backend_wgpu::{Kernels, WgpuBackend, WgpuOptions};
use glia_core::{Backend, DType, Op, Tensor, quant, reference};
use parts::{devices, noise};

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
