//! Single ops at level 0 against plain formulas.

use glia_backend_cpu::{CpuBackend, CpuOptions};
use glia_core::{Backend, Binary, DType, Gate, Op, Rope, RopePairing, Sdpa, Tensor, Unary};

fn cpu() -> CpuBackend {
    CpuBackend::with_options(CpuOptions {
        threads: 2,
        ..CpuOptions::default()
    })
    .unwrap()
}

fn f32s(shape: &[usize], values: &[f32]) -> Tensor {
    Tensor::from_f32(shape, values).unwrap()
}

fn noise(n: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
    (0..n)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / 8_388_608.0 - 1.0
        })
        .collect()
}

fn check(op: Op, inputs: &[&Tensor], shape: &[usize], expected: &[f32]) {
    let outputs = cpu().execute(&op, inputs).unwrap();
    assert_eq!(&outputs[0].shape()[..], shape, "{op}");
    for (i, (a, b)) in outputs[0].as_f32().unwrap().iter().zip(expected).enumerate() {
        assert!(
            (a - b).abs() <= 2e-6 * b.abs().max(1.0),
            "{op}: element {i} is {a}, not {b}"
        );
    }
}

#[test]
fn arithmetic_broadcasts() {
    let a = f32s(&[2, 3], &[1., 2., 3., 4., 5., 6.]);
    let b = f32s(&[3], &[10., 20., 30.]);
    check(
        Op::Binary(Binary::Add),
        &[&a, &b],
        &[2, 3],
        &[11., 22., 33., 14., 25., 36.],
    );
    let c = f32s(&[2, 1], &[2., 4.]);
    check(
        Op::Binary(Binary::Div),
        &[&a, &c],
        &[2, 3],
        &[0.5, 1., 1.5, 1., 1.25, 1.5],
    );
    check(
        Op::Binary(Binary::Mul),
        &[&c, &b],
        &[2, 3],
        &[20., 40., 60., 40., 80., 120.],
    );
    let zero = f32s(&[1], &[0.]);
    let y = cpu().execute(&Op::Binary(Binary::Div), &[&zero, &zero]).unwrap();
    assert!(y[0].as_f32().unwrap()[0].is_nan());
}

#[test]
fn functions() {
    let x = f32s(&[3], &[-1., 0., 2.]);
    check(Op::Unary(Unary::Relu), &[&x], &[3], &[0., 0., 2.]);
    check(Op::Unary(Unary::Silu), &[&x], &[3], &[-0.268_941_4, 0., 1.761_594_2]);
    check(Op::Unary(Unary::Gelu), &[&x], &[3], &[-0.158_655_25, 0., 1.954_499_7]);
    check(Op::Scale { factor: 3.0 }, &[&x], &[3], &[-3., 0., 6.]);
    check(Op::Clamp { min: -0.5, max: 1.0 }, &[&x], &[3], &[-0.5, 0., 1.]);
    check(Op::Gated(Gate::Silu), &[&x, &x], &[3], &[0.268_941_4, 0., 3.523_188_4]);
}

#[test]
fn structure_moves_any_dtype() {
    let x = f32s(&[2, 3], &[1., 2., 3., 4., 5., 6.]);
    check(Op::Transpose { a: 0, b: 1 }, &[&x], &[3, 2], &[1., 4., 2., 5., 3., 6.]);
    check(
        Op::Permute { perm: vec![1, 0] },
        &[&x],
        &[3, 2],
        &[1., 4., 2., 5., 3., 6.],
    );
    check(
        Op::Slice {
            axis: 1,
            start: 1,
            end: None,
        },
        &[&x],
        &[2, 2],
        &[2., 3., 5., 6.],
    );
    check(
        Op::Concat { axis: 1 },
        &[&x, &x],
        &[2, 6],
        &[1., 2., 3., 1., 2., 3., 4., 5., 6., 4., 5., 6.],
    );
    check(
        Op::Repeat { axis: 0, n: 2 },
        &[&x],
        &[4, 3],
        &[1., 2., 3., 1., 2., 3., 4., 5., 6., 4., 5., 6.],
    );
    check(
        Op::Reshape { dims: vec![-1, 2] },
        &[&x],
        &[3, 2],
        &[1., 2., 3., 4., 5., 6.],
    );
    let ids = Tensor::from_i32([2], &[1, 1]).unwrap();
    check(Op::Gather { axis: 0 }, &[&x, &ids], &[2, 3], &[4., 5., 6., 4., 5., 6.]);
    let parts = cpu()
        .execute(
            &Op::Split {
                axis: 1,
                sizes: vec![1, 2],
            },
            &[&x],
        )
        .unwrap();
    assert_eq!(parts[1].as_f32().unwrap(), [2., 3., 5., 6.]);
    let ints = cpu()
        .execute(&Op::Cast { to: DType::I32 }, &[&f32s(&[3], &[2.5, -1e20, f32::NAN])])
        .unwrap();
    assert_eq!(ints[0].as_i32().unwrap(), [2, i32::MIN, 0]);
    let flipped = cpu()
        .execute(
            &Op::Transpose { a: 0, b: 1 },
            &[&Tensor::from_i32([1, 2], &[7, 8]).unwrap()],
        )
        .unwrap();
    assert_eq!(flipped[0].as_i32().unwrap(), [7, 8]);
}

#[test]
fn reductions() {
    let x = f32s(&[2, 3], &[1., 5., 3., 4., 5., 5.]);
    check(Op::Sum { axis: 0, keep: false }, &[&x], &[3], &[5., 10., 8.]);
    check(Op::Mean { axis: 1, keep: true }, &[&x], &[2, 1], &[3., 14. / 3.]);
    let best = cpu().execute(&Op::Argmax { axis: 1 }, &[&x]).unwrap();
    assert_eq!(best[0].as_i32().unwrap(), [1, 1]);
    let top = cpu().execute(&Op::TopK { k: 2 }, &[&x]).unwrap();
    assert_eq!(
        (top[0].as_f32().unwrap(), top[1].as_i32().unwrap()),
        (&[5., 3., 5., 5.][..], &[1, 2, 1, 2][..])
    );
    check(
        Op::Softmax { axis: 1 },
        &[&f32s(&[1, 2], &[0., 3f32.ln()])],
        &[1, 2],
        &[0.25, 0.75],
    );
}

#[test]
fn products_of_weights_of_any_dtype() {
    let (m, n, k) = (3, 5, 64);
    let x = f32s(&[m, k], &noise(m * k, 1));
    let w = noise(n * k, 2);
    let bias = f32s(&[n], &noise(n, 3));
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::Q8_0, DType::Q4_1] {
        let mut bytes = vec![0u8; dtype.size_bytes(n * k).unwrap()];
        glia_core::quant::quantize(dtype, &w, &mut bytes).unwrap();
        let mut decoded = vec![0f32; n * k];
        glia_core::quant::dequantize(dtype, &bytes, &mut decoded).unwrap();
        let weights = Tensor::from_bytes(dtype, [n, k], &bytes).unwrap();
        let xs = x.as_f32().unwrap();
        let expected: Vec<f32> = (0..m * n)
            .map(|i| {
                let (row, col) = (&xs[i / n * k..][..k], &decoded[i % n * k..][..k]);
                let dot: f64 = row.iter().zip(col).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                (dot + f64::from(bias.as_f32().unwrap()[i % n])) as f32
            })
            .collect();
        check(Op::MatMul, &[&x, &weights, &bias], &[m, n], &expected);
    }
    let (a, b) = (f32s(&[2, 1, 2], &[1., 2., 3., 4.]), f32s(&[2, 1, 2], &[5., 6., 7., 8.]));
    check(Op::MatMul, &[&a, &b], &[2, 1, 1], &[17., 53.]);
}

#[test]
fn rotation_and_norms() {
    let x = f32s(&[1, 1, 4], &[1., 2., 3., 4.]);
    let positions = Tensor::from_i32([1], &[1]).unwrap();
    let freqs = f32s(&[1], &[1.0]);
    let (s, c) = 1f32.sin_cos();
    let rope = |pairing| {
        Op::Rope(Rope {
            pairing,
            scale: 1.0,
            long_from: None,
        })
    };
    for pairing in [RopePairing::NeoX, RopePairing::Interleaved] {
        check(
            rope(pairing),
            &[&x, &positions, &freqs],
            &[1, 1, 4],
            &[c - 2. * s, 2. * c + s, 3., 4.],
        );
    }
    let v = f32s(&[1, 2], &[3., 4.]);
    let r = 12.5f32.sqrt();
    check(
        Op::RmsNorm {
            eps: 0.0,
            plus_one: true,
        },
        &[&v, &f32s(&[2], &[0., 1.])],
        &[1, 2],
        &[3. / r, 8. / r],
    );
    check(Op::LayerNorm { eps: 0.0 }, &[&v], &[1, 2], &[-1., 1.]);
}

#[test]
fn lookups_name_id_and_vocabulary() {
    let table = f32s(&[2, 2], &[1., 2., 3., 4.]);
    check(
        Op::TokenEmbed,
        &[&Tensor::from_i32([2], &[1, 0]).unwrap(), &table],
        &[2, 2],
        &[3., 4., 1., 2.],
    );
    let err = cpu()
        .execute(&Op::TokenEmbed, &[&Tensor::from_i32([2], &[1, 2]).unwrap(), &table])
        .unwrap_err();
    assert!(
        err.to_string().contains("element 1 is 2") && err.to_string().contains("vocabulary size is 2"),
        "{err}"
    );
}

#[test]
fn attention_follows_its_definition() {
    let (tq, tk, h, hkv, d) = (5, 150, 4, 2, 24);
    let (q, k, v) = (noise(tq * h * d, 1), noise(tk * hkv * d, 2), noise(tk * hkv * d, 3));
    let (mask, sinks) = (noise(tq * tk, 4), noise(h, 5));
    for (causal, window, softcap, extra) in [
        (true, None, None, false),
        (false, None, Some(2.0), true),
        (true, Some(70), None, false),
        (true, Some(3), Some(1.0), true),
    ] {
        let op = Sdpa {
            scale: 0.7,
            causal,
            window,
            softcap,
            mask: extra,
            sinks: extra,
        };
        let mut expected = Vec::new();
        for (i, head) in (0..tq * h).map(|n| (n / h, n % h)) {
            let pos = i + tk - tq;
            let kv = head / (h / hkv);
            let mut scores = Vec::new();
            for j in 0..tk {
                if (causal && j > pos) || window.is_some_and(|w| j + w <= pos) {
                    continue;
                }
                let dot: f64 = (0..d)
                    .map(|e| f64::from(q[(i * h + head) * d + e]) * f64::from(k[(j * hkv + kv) * d + e]))
                    .sum();
                let mut s = dot * 0.7f32 as f64;
                if let Some(cap) = softcap {
                    s = f64::from(cap) * (s / f64::from(cap)).tanh();
                }
                scores.push((j, s + if extra { f64::from(mask[i * tk + j]) } else { 0.0 }));
            }
            let sum: f64 = scores.iter().map(|(_, s)| s.exp()).sum::<f64>()
                + if extra { f64::from(sinks[head]).exp() } else { 0.0 };
            for e in 0..d {
                let o: f64 = scores
                    .iter()
                    .map(|(j, s)| s.exp() / sum * f64::from(v[(j * hkv + kv) * d + e]))
                    .sum();
                expected.push(o as f32);
            }
        }
        let (q, k, v) = (f32s(&[tq, h, d], &q), f32s(&[tk, hkv, d], &k), f32s(&[tk, hkv, d], &v));
        let (mask, sinks) = (f32s(&[tq, tk], &mask), f32s(&[h], &sinks));
        let mut inputs = vec![&q, &k, &v];
        if extra {
            inputs.extend([&mask, &sinks]);
        }
        check(Op::Sdpa(op), &inputs, &[tq, h, d], &expected);
    }
}
