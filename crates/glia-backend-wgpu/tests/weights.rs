//! Weights of every dtype as the device decodes them: exactly as the core does.

mod parts;

use glia_backend_wgpu::{WgpuBackend, WgpuOptions};
use glia_core::{Backend, CompileOptions, DType, Dim, Op, Precision, Tensor, ValueType, quant};
use parts::{Build, difference, random, run_once};

/// Random bytes whose blocks stand for numbers of a usual size: a device may take the smallest F32 for zero.
fn blocks(dtype: DType, n_elems: usize) -> (Vec<u8>, Vec<f32>) {
    let (block_elems, block_bytes) = dtype.block();
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    let (mut bytes, mut values) = (Vec::new(), Vec::new());
    let mut block = vec![0; block_bytes];
    let mut decoded = vec![0f32; block_elems];
    while values.len() < n_elems {
        block.iter_mut().for_each(|b| *b = next());
        quant::dequantize(dtype, &block, &mut decoded).unwrap();
        let usual = |v: &f32| *v == 0.0 || (1e-20..1e20).contains(&v.abs());
        if decoded.iter().all(usual) {
            bytes.extend_from_slice(&block);
            values.extend_from_slice(&decoded);
        }
    }
    (bytes, values)
}

/// A minimum is subtracted from a product, which a device may do with one rounding or two.
fn has_minimum(dtype: DType) -> bool {
    use DType::{Q2_K, Q4_1, Q4_K, Q5_1, Q5_K};
    matches!(dtype, Q4_1 | Q5_1 | Q2_K | Q4_K | Q5_K)
}

#[test]
fn every_dtype_is_decoded_as_the_core_does() {
    let ids: Vec<i32> = (0..7).rev().collect();
    let ids = Tensor::from_i32([7], &ids).unwrap();
    let kinds = [false, true].map(|baseline| WgpuBackend::new(WgpuOptions::default().with_baseline(baseline)).unwrap());
    let dtypes = DType::ALL
        .iter()
        .filter(|d| d.is_quantized() || matches!(d, DType::F32 | DType::F16 | DType::BF16));
    for &dtype in dtypes {
        // Widths of one block, of three, and for floats what no chunk divides.
        let block = dtype.block_elems();
        let widths = if block == 1 {
            [1, 31, 77]
        } else {
            [block, 3 * block, 2 * block]
        };
        for k in widths {
            let (bytes, values) = blocks(dtype, 7 * k);
            let table = Tensor::from_bytes(dtype, [7, k], &bytes).unwrap();
            for gpu in &kinds {
                let rows = gpu.execute(&Op::TokenEmbed, &[&ids, &table]).unwrap();
                let got = rows[0].as_f32().unwrap();
                for (row, got) in got.chunks(k).rev().enumerate() {
                    let expected = &values[row * k..(row + 1) * k];
                    let top = expected.iter().fold(0f32, |top, v| top.max(v.abs()));
                    let bound = if has_minimum(dtype) { top * 3e-7 } else { 0.0 };
                    for (i, (a, b)) in got.iter().zip(expected).enumerate() {
                        assert!(
                            (a - b).abs() <= bound,
                            "{dtype}, width {k}: row {row}, element {i} is {a}, not {b}"
                        );
                    }
                }
            }
        }
    }
}

/// Without F16 arithmetic, weights of F16 and Q4_0 run in F32 kernels, and the program says that it has no others.
#[test]
fn what_runs_without_f16_arithmetic_is_told() {
    const REMARK: &str = "no shader-f16: all kernels compute in F32";
    let (n, k) = (40, 64);
    let x = random(&[20, k], 1);
    for dtype in [DType::F16, DType::Q4_0] {
        let mut bytes = vec![0; dtype.size_bytes(n * k).unwrap()];
        quant::quantize(dtype, random(&[n, k], 2).as_f32().unwrap(), &mut bytes).unwrap();
        let weight = Tensor::from_bytes(dtype, [n, k], &bytes).unwrap();
        let mut build = Build::default();
        let rows = build.input("x", ValueType::new(DType::F32, [Dim::T, k.into()]));
        let w = build.weight("w", weight.clone());
        build.segment.outputs = build.op(Op::MatMul, &[rows, w]);
        let expected = glia_core::reference::execute(&Op::MatMul, &[&x, &weight]).unwrap();
        for baseline in [false, true] {
            let gpu = WgpuBackend::new(WgpuOptions::default().with_baseline(baseline)).unwrap();
            let options = CompileOptions::new(&build, Precision::Exact);
            let said = gpu.compile(&build.segment, &options).unwrap().unwrap().describe();
            let has_f16 = gpu.adapter().shader_f16 && !baseline;
            assert_eq!(said.contains(REMARK), !has_f16, "{said}");
            assert!(!said.contains('\n'), "{said}");
            assert_eq!(gpu.adapter().remark().is_none(), gpu.adapter().shader_f16);
            let got = run_once(&gpu, &build, Precision::Exact, std::slice::from_ref(&x));
            assert_eq!(difference(&got[0], &expected[0], 1e-4), None, "{dtype}");
        }
    }
}
