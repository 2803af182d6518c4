//! Every composite op against its definition, over the forms that it has.

mod common;

use common::eval::{Array, run};
use glia_core::{DType, Gate, Op, Operand, Sdpa, Unary, ValueType};

/// Deterministic values in -2..2.
fn array(shape: &[usize], seed: u64) -> Array {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let n: usize = shape.iter().product();
    let data = (0..n).map(|_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / f64::from(1 << 24) * 4.0 - 2.0
    });
    Array::new(shape, data.collect())
}

fn check(op: &Op, shapes: &[&[usize]]) {
    let inputs: Vec<Array> = (0..).zip(shapes).map(|(i, shape)| array(shape, i + 1)).collect();
    let types: Vec<ValueType> = shapes.iter().map(|s| ValueType::fixed(DType::F32, s)).collect();
    let definition = op.decompose(&types).unwrap_or_else(|| panic!("{op} has no definition"));
    let mut parts: Vec<Vec<Array>> = Vec::new();
    for part in &definition.parts {
        let find = |o: &Operand| match *o {
            Operand::Input(i) => inputs[i].clone(),
            Operand::Part { part, output } => parts[part][output].clone(),
            Operand::Const(i) => {
                let tensor = &definition.consts[i];
                let data = tensor.as_f32().unwrap().iter().map(|&x| f64::from(x)).collect();
                Array::new(tensor.shape().dims(), data)
            }
        };
        let operands: Vec<Array> = part.inputs.iter().map(find).collect();
        parts.push(run(&part.op, &operands));
    }
    let expected = run(op, &inputs);
    assert_eq!(expected.len(), definition.outputs.len());
    for (expected, output) in expected.iter().zip(&definition.outputs) {
        let Operand::Part { part, output } = *output else {
            panic!("{op}: a definition of nothing")
        };
        let got = &parts[part][output];
        assert_eq!(got.shape, expected.shape, "{op}");
        for (i, (g, e)) in got.data.iter().zip(&expected.data).enumerate() {
            assert!(
                (g - e).abs() < 2e-6,
                "{op} {shapes:?}: element {i} is {g} instead of {e}"
            );
        }
    }
}

#[test]
fn activations() {
    for f in [Unary::Silu, Unary::GeluTanh, Unary::Relu] {
        check(&Op::Unary(f), &[&[3, 5]]);
    }
    for gate in [Gate::Silu, Gate::Gelu, Gate::GeluTanh] {
        check(&Op::Gated(gate), &[&[3, 5], &[3, 5]]);
    }
}

#[test]
fn norms() {
    for plus_one in [false, true] {
        let op = Op::RmsNorm { eps: 1e-3, plus_one };
        check(&op, &[&[2, 3, 5]]);
        check(&op, &[&[2, 5], &[5]]);
    }
    let op = Op::LayerNorm { eps: 1e-3 };
    check(&op, &[&[3, 5]]);
    check(&op, &[&[3, 5], &[5]]);
    check(&op, &[&[3, 5], &[5], &[5]]);
}

#[test]
fn reductions_and_layout() {
    for axis in 0..3 {
        check(&Op::Softmax { axis }, &[&[2, 3, 4]]);
        check(&Op::Mean { axis, keep: false }, &[&[2, 3, 4]]);
        check(&Op::Mean { axis, keep: true }, &[&[2, 3, 4]]);
        let sizes = vec![1, [2, 3, 4][axis] - 1];
        check(&Op::Split { axis, sizes }, &[&[2, 3, 4]]);
        check(&Op::Transpose { a: axis, b: 1 }, &[&[2, 3, 4]]);
    }
}

#[test]
fn attention_in_all_its_forms() {
    let plain = Sdpa {
        scale: 0.5,
        causal: false,
        window: None,
        softcap: None,
        mask: false,
        sinks: false,
    };
    let (q, k, v): (&[usize], &[usize], &[usize]) = (&[3, 4, 6], &[5, 2, 6], &[5, 2, 7]);
    for causal in [false, true] {
        for window in [None, Some(1), Some(2), Some(9)] {
            for softcap in [None, Some(1.5)] {
                let sdpa = Sdpa {
                    causal,
                    window,
                    softcap,
                    ..plain.clone()
                };
                check(&Op::Sdpa(sdpa.clone()), &[q, k, v]);
                let masked = Sdpa {
                    mask: true,
                    ..sdpa.clone()
                };
                check(&Op::Sdpa(masked.clone()), &[q, k, v, &[3, 5]]);
                check(&Op::Sdpa(masked.clone()), &[q, k, v, &[4, 3, 5]]);
                check(&Op::Sdpa(Sdpa { sinks: true, ..sdpa }), &[q, k, v, &[4]]);
                check(&Op::Sdpa(Sdpa { sinks: true, ..masked }), &[q, k, v, &[3, 5], &[4]]);
            }
        }
    }
}

#[test]
fn what_has_no_definition() {
    let types =
        |shapes: &[&[usize]]| -> Vec<ValueType> { shapes.iter().map(|s| ValueType::fixed(DType::F32, s)).collect() };
    assert!(Op::MatMul.decompose(&types(&[&[2, 3], &[4, 3]])).is_none());
    // Operands that the op refuses, and a mask that would be too large to hold.
    assert!(Op::Gated(Gate::Silu).decompose(&types(&[&[2], &[3]])).is_none());
    let huge = Op::Sdpa(Sdpa {
        scale: 1.0,
        causal: true,
        window: None,
        softcap: None,
        mask: false,
        sinks: false,
    });
    let n = 1 << 40;
    assert!(huge.decompose(&types(&[&[n, 1, 1], &[n, 1, 1], &[n, 1, 1]])).is_none());
}
