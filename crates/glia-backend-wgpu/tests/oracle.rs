//! Every op on random inputs of odd sizes against the f64 oracle, with all features and masked to the baseline.

use glia_backend_wgpu::{WgpuBackend, WgpuOptions};
use glia_core::{Backend, Binary, DType, Gate, Op, Rope, RopePairing, Sdpa, Tensor, Unary, reference};

fn noise(n: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 4_194_304.0 - 2.0
    };
    (0..n).map(|_| next()).collect()
}

fn x(shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    Tensor::from_f32(shape, &noise(n, n as u32)).unwrap()
}

fn y(shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    Tensor::from_f32(shape, &noise(n, n as u32 + 99)).unwrap()
}

fn ids(values: &[i32]) -> Tensor {
    Tensor::from_i32([values.len()], values).unwrap()
}

fn cases() -> Vec<(Op, Vec<Tensor>)> {
    let mut all = Vec::new();
    for op in [Binary::Add, Binary::Sub, Binary::Mul, Binary::Div] {
        for (a, b) in [
            (&[3, 1, 5][..], &[4, 5][..]),
            (&[2, 33], &[2, 33]),
            (&[7], &[1]),
            (&[0, 3], &[3]),
        ] {
            all.push((Op::Binary(op), vec![x(a), y(b)]));
        }
    }
    use Unary::{Exp, Gelu, GeluTanh, Relu, Sigmoid, Silu, Tanh};
    for f in [Silu, Gelu, GeluTanh, Relu, Sigmoid, Tanh, Exp] {
        all.push((Op::Unary(f), vec![x(&[3, 1001])]));
    }
    for gate in [Gate::Silu, Gate::Gelu, Gate::GeluTanh] {
        all.push((Op::Gated(gate), vec![x(&[5, 77]), y(&[5, 77])]));
    }
    all.push((Op::Scale { factor: -0.3 }, vec![x(&[17])]));
    all.push((
        Op::Clamp {
            min: f32::NEG_INFINITY,
            max: 0.5,
        },
        vec![x(&[17])],
    ));
    for width in [1, 15, 64, 577] {
        all.push((
            Op::RmsNorm {
                eps: 1e-6,
                plus_one: false,
            },
            vec![x(&[3, width]), y(&[width])],
        ));
        all.push((
            Op::RmsNorm {
                eps: 1e-6,
                plus_one: true,
            },
            vec![x(&[2, 2, width]), y(&[width])],
        ));
        all.push((
            Op::RmsNorm {
                eps: 1e-3,
                plus_one: false,
            },
            vec![x(&[3, width])],
        ));
        all.push((
            Op::LayerNorm { eps: 1e-3 },
            vec![x(&[3, width]), y(&[width]), x(&[width])],
        ));
    }
    for axis in 0..3 {
        let t = || vec![x(&[3, 19, 6])];
        all.push((Op::Softmax { axis }, t()));
        all.push((Op::Argmax { axis }, t()));
        all.push((Op::Sum { axis, keep: axis == 1 }, t()));
        all.push((Op::Mean { axis, keep: axis == 0 }, t()));
        all.push((
            Op::Slice {
                axis,
                start: 1,
                end: Some(3),
            },
            t(),
        ));
        all.push((Op::Concat { axis }, vec![x(&[2, 4, 6]), y(&[2, 4, 6]), x(&[2, 4, 6])]));
        all.push((Op::Gather { axis }, vec![x(&[3, 4, 6]), ids(&[2, 0, 2, 1])]));
        all.push((Op::Repeat { axis, n: 3 }, vec![x(&[2, 3, 4])]));
        all.push((
            Op::Split {
                axis,
                sizes: vec![1, 0, 2],
            },
            vec![x(&[3, 3, 3])],
        ));
        all.push((Op::Transpose { a: axis, b: 2 }, t()));
    }
    all.push((Op::Permute { perm: vec![2, 0, 1] }, vec![x(&[3, 5, 7])]));
    all.push((Op::Reshape { dims: vec![5, -1] }, vec![x(&[3, 5, 7])]));
    all.push((Op::TopK { k: 4 }, vec![x(&[3, 50])]));
    all.push((Op::TokenEmbed, vec![ids(&[3, 0, 4]), x(&[5, 9])]));
    for to in [DType::F32, DType::I32] {
        all.push((Op::Cast { to }, vec![x(&[2, 33])]));
        all.push((Op::Cast { to }, vec![ids(&[-3, 300, i32::MAX])]));
    }
    for pairing in [RopePairing::NeoX, RopePairing::Interleaved] {
        let rope = Op::Rope(Rope {
            pairing,
            scale: 1.25,
            long_from: None,
        });
        all.push((rope, vec![x(&[3, 2, 22]), ids(&[0, 7, 900]), y(&[9])]));
        let long = Op::Rope(Rope {
            pairing,
            scale: 1.0,
            long_from: Some(8),
        });
        all.push((long, vec![x(&[2, 2, 16]), ids(&[7, 8]), y(&[8]), x(&[8])]));
    }
    for (m, n, k) in [(1, 1, 1), (3, 17, 31), (33, 40, 257)] {
        all.push((Op::MatMul, vec![x(&[m, k]), y(&[n, k]), x(&[n])]));
        all.push((Op::MatMul, vec![x(&[2, m, k]), y(&[2, n, k])]));
    }
    for (causal, window, softcap, extra) in [
        (true, None, None, false),
        (false, None, Some(2.0), true),
        (true, Some(65), None, false),
        (true, Some(3), Some(1.0), true),
    ] {
        let op = Op::Sdpa(Sdpa {
            scale: 0.3,
            causal,
            window,
            softcap,
            mask: extra,
            sinks: extra,
        });
        for (tq, tk, d) in [(1, 1, 8), (9, 70, 20), (3, 600, 65)] {
            let mut inputs = vec![x(&[tq, 6, d]), y(&[tk, 2, d]), x(&[tk, 2, d + 3])];
            if extra {
                inputs.extend([x(&[tq, tk]), y(&[6])]);
            }
            all.push((op.clone(), inputs));
        }
    }
    all
}

#[test]
fn every_op_agrees_with_the_oracle() {
    for baseline in [false, true] {
        let gpu = WgpuBackend::new(WgpuOptions::default().with_baseline(baseline)).unwrap();
        let mut bad = Vec::new();
        for (op, inputs) in cases() {
            let inputs: Vec<&Tensor> = inputs.iter().collect();
            let shapes: Vec<String> = inputs.iter().map(|t| t.shape().to_string()).collect();
            let name = format!("{op} on {} (baseline {baseline})", shapes.join(" "));
            let expected = reference::execute(&op, &inputs).unwrap_or_else(|e| panic!("oracle, {name}: {e}"));
            let got = match gpu.execute(&op, &inputs) {
                Ok(got) => got,
                Err(e) => {
                    bad.push(format!("{name}: {e}"));
                    continue;
                }
            };
            for (got, expected) in got.iter().zip(&expected) {
                assert_eq!(
                    (got.dtype(), got.shape()),
                    (expected.dtype(), expected.shape()),
                    "{name}"
                );
                if got.dtype() != DType::F32 {
                    if got.bytes().unwrap() != expected.bytes().unwrap() {
                        bad.push(format!("{name}: {:?} not {:?}", got.bytes(), expected.bytes()));
                    }
                    continue;
                }
                for (i, (a, b)) in got.as_f32().unwrap().iter().zip(expected.as_f32().unwrap()).enumerate() {
                    let bound = if matches!(op, Op::Rope(_)) { 5e-4 } else { 4e-6 };
                    let scale = if matches!(op, Op::MatMul) {
                        30.0
                    } else {
                        b.abs().max(1.0)
                    };
                    if !((a - b).abs() <= bound * scale) {
                        bad.push(format!("{name}: element {i} is {a}, not {b}"));
                        break;
                    }
                }
            }
        }
        assert!(bad.is_empty(), "{}", bad.join("\n"));
    }
}
