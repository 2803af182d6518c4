//! Golden ops as ops of the vocabulary, alone or composed.

use glia_core::{Binary, DType, Gate, Op, Tensor, Unary};

use super::{Case, Checked, Named, attention, fail};
use crate::proof::Outcome;

/// The outputs that the vocabulary can give.
pub(super) fn compute(case: &Case<'_>) -> Checked<Named> {
    let out = match case.op() {
        "rope" => return attention::rope(case),
        "topk" | "argsort" => return topk(case),
        "reduce" => return reduce(case),
        "moe_route" => return moe_route(case),
        "sdpa" => attention::sdpa(case)?,
        "rms_norm" => {
            let (eps, plus_one) = (case.number("eps")? as f32, case.flag("weight_plus_one"));
            case.run(Op::RmsNorm { eps, plus_one }, &refs(&case.inputs(&["w"])?))?
        }
        "layer_norm" => {
            let eps = case.number("eps")? as f32;
            case.run(Op::LayerNorm { eps }, &refs(&case.inputs(&["w", "b"])?))?
        }
        "group_norm" => group_norm(case)?,
        "l2_normalize" => l2_normalize(case)?,
        "softmax" => {
            let x = case.input("x")?;
            let axis = case.axis(&x)?;
            case.run(Op::Softmax { axis }, &[&x])?
        }
        "silu" => case.run(Op::Unary(Unary::Silu), &[&case.input("x")?])?,
        "gelu" | "gelu_erf" => case.run(Op::Unary(Unary::Gelu), &[&case.input("x")?])?,
        "gelu_tanh" | "gelu_new" => case.run(Op::Unary(Unary::GeluTanh), &[&case.input("x")?])?,
        "relu" => case.run(Op::Unary(Unary::Relu), &[&case.input("x")?])?,
        "sigmoid" => case.run(Op::Unary(Unary::Sigmoid), &[&case.input("x")?])?,
        "tanh" => case.run(Op::Unary(Unary::Tanh), &[&case.input("x")?])?,
        "exp" => case.run(Op::Unary(Unary::Exp), &[&case.input("x")?])?,
        "quick_gelu" => swish(case, &case.input("x")?, 1.702)?,
        "hardswish" => hardswish(case)?,
        "leaky_relu" => leaky_relu(case)?,
        "exp_neg_abs" => exp_neg_abs(case)?,
        "softcap" => {
            let cap = case.number("cap")? as f32;
            let shrunk = scale(case, &case.input("x")?, 1.0 / cap)?;
            scale(case, &case.run(Op::Unary(Unary::Tanh), &[&shrunk])?, cap)?
        }
        "swiglu" => gated(case, Gate::Silu)?,
        "geglu_tanh" => gated(case, Gate::GeluTanh)?,
        "geglu_erf" | "geglu" => gated(case, Gate::Gelu)?,
        "swiglu_oai" => swiglu_oai(case)?,
        "linear" => {
            let (mut inputs, bias) = (vec![case.input("x")?, case.input("w")?], case.tensor("in", "b")?);
            inputs.extend(bias);
            case.run(Op::MatMul, &refs(&inputs))?
        }
        "matmul" => {
            let (a, b) = (case.input("a")?, case.input("b")?);
            let rank = b.shape().rank();
            let turned = case.run(
                Op::Transpose {
                    a: rank - 1,
                    b: rank.saturating_sub(2),
                },
                &[&b],
            )?;
            case.run(Op::MatMul, &[&a, &turned])?
        }
        "embedding" => {
            let rows = case.run(Op::TokenEmbed, &[&case.input("ids")?, &case.input("table")?])?;
            match case.param("scale").as_f64() {
                Some(factor) => scale(case, &rows, factor as f32)?,
                None => rows,
            }
        }
        "argmax" => {
            let x = case.input("x")?;
            let axis = case.axis(&x)?;
            case.run(Op::Argmax { axis }, &[&x])?
        }
        "layer_scale" => binary(case, Binary::Mul, &case.input("x")?, &case.input("gamma")?)?,
        "mean_pool" => mean_pool(case)?,
        "pixel_shuffle" => pixel_shuffle(case)?,
        "patchify" => patchify(case)?,
        other => return Err(Outcome::Unsupported(format!("no op for `{other}`"))),
    };
    Ok(vec![("out", out)])
}

pub(super) fn refs(tensors: &[Tensor]) -> Vec<&Tensor> {
    tensors.iter().collect()
}

fn binary(case: &Case<'_>, op: Binary, a: &Tensor, b: &Tensor) -> Checked<Tensor> {
    case.run(Op::Binary(op), &[a, b])
}

fn scale(case: &Case<'_>, x: &Tensor, factor: f32) -> Checked<Tensor> {
    case.run(Op::Scale { factor }, &[x])
}

fn clamp(case: &Case<'_>, x: &Tensor, min: f32, max: f32) -> Checked<Tensor> {
    case.run(Op::Clamp { min, max }, &[x])
}

fn add_number(case: &Case<'_>, x: &Tensor, number: f32) -> Checked<Tensor> {
    binary(case, Binary::Add, x, &Tensor::from_f32([1], &[number]).map_err(fail)?)
}

pub(super) fn reshape(case: &Case<'_>, x: &Tensor, dims: &[usize]) -> Checked<Tensor> {
    let dims = dims.iter().map(|&d| d as i64).collect();
    case.run(Op::Reshape { dims }, &[x])
}

fn permute(case: &Case<'_>, x: &Tensor, perm: &[usize]) -> Checked<Tensor> {
    case.run(Op::Permute { perm: perm.to_vec() }, &[x])
}

fn gated(case: &Case<'_>, gate: Gate) -> Checked<Tensor> {
    case.run(Op::Gated(gate), &[&case.input("gate")?, &case.input("up")?])
}

/// `x sigmoid(alpha x)`.
fn swish(case: &Case<'_>, x: &Tensor, alpha: f32) -> Checked<Tensor> {
    let gate = case.run(Op::Unary(Unary::Sigmoid), &[&scale(case, x, alpha)?])?;
    binary(case, Binary::Mul, x, &gate)
}

fn hardswish(case: &Case<'_>) -> Checked<Tensor> {
    let x = case.input("x")?;
    let gate = clamp(case, &add_number(case, &x, 3.0)?, 0.0, 6.0)?;
    scale(case, &binary(case, Binary::Mul, &x, &gate)?, 1.0 / 6.0)
}

fn leaky_relu(case: &Case<'_>) -> Checked<Tensor> {
    let x = case.input("x")?;
    let slope = case.param("slope").as_f64().unwrap_or(0.01) as f32;
    let negative = scale(case, &clamp(case, &x, f32::NEG_INFINITY, 0.0)?, slope)?;
    binary(case, Binary::Add, &case.run(Op::Unary(Unary::Relu), &[&x])?, &negative)
}

/// `|x| = relu(x) + relu(-x)`.
fn exp_neg_abs(case: &Case<'_>) -> Checked<Tensor> {
    let x = case.input("x")?;
    let positive = case.run(Op::Unary(Unary::Relu), &[&x])?;
    let negative = case.run(Op::Unary(Unary::Relu), &[&scale(case, &x, -1.0)?])?;
    let size = binary(case, Binary::Add, &positive, &negative)?;
    case.run(Op::Unary(Unary::Exp), &[&scale(case, &size, -1.0)?])
}

/// gpt-oss: gate and up interleaved, clamped, `(up + 1) gate sigmoid(alpha gate)`.
fn swiglu_oai(case: &Case<'_>) -> Checked<Tensor> {
    let (x, limit) = (case.input("x")?, case.number("limit")? as f32);
    let mut dims = x.shape().to_vec();
    let Some(last) = dims.last_mut() else {
        return Err(fail("a scalar"));
    };
    *last /= 2;
    let (axis, sizes) = (dims.len(), vec![1, 1]);
    let pairs = reshape(case, &x, &[&dims[..], &[2]].concat())?;
    let halves = case.run_all(&Op::Split { axis, sizes }, &[&pairs])?;
    let [gate, up] = &halves[..] else {
        return Err(fail("split gave no two halves"));
    };
    let gate = clamp(case, &reshape(case, gate, &dims)?, f32::NEG_INFINITY, limit)?;
    let up = clamp(case, &reshape(case, up, &dims)?, -limit, limit)?;
    let act = swish(case, &gate, case.number("alpha")? as f32)?;
    binary(case, Binary::Mul, &add_number(case, &up, 1.0)?, &act)
}

/// LayerNorm over groups of channels, then gain and bias per channel.
fn group_norm(case: &Case<'_>) -> Checked<Tensor> {
    let (x, eps) = (case.input("x")?, case.number("eps")? as f32);
    let dims = x.shape().to_vec();
    let n_groups = dims[0] * case.number("groups")? as usize;
    let rows = reshape(case, &x, &[n_groups, x.n_elems() / n_groups.max(1)])?;
    let norm = reshape(case, &case.run(Op::LayerNorm { eps }, &[&rows])?, &dims)?;
    let per_channel = |key: &str| {
        let mut shape = vec![1; dims.len() - 1];
        shape[0] = dims[1];
        reshape(case, &case.input(key)?, &shape)
    };
    let scaled = binary(case, Binary::Mul, &norm, &per_channel("w")?)?;
    binary(case, Binary::Add, &scaled, &per_channel("b")?)
}

/// `x / max(|x|, eps)` as an RMS norm over `sqrt(d)`; the same where `|x|` is well above `eps`.
fn l2_normalize(case: &Case<'_>) -> Checked<Tensor> {
    let x = case.input("x")?;
    if case.axis(&x)? + 1 != x.shape().rank() {
        return Err(Outcome::Unsupported("norm along an inner dimension".to_owned()));
    }
    let d = x.shape().last_dim() as f64;
    let eps = (case.number("eps")?.powi(2) / d) as f32;
    let norm = case.run(Op::RmsNorm { eps, plus_one: false }, &[&x])?;
    scale(case, &norm, d.sqrt().recip() as f32)
}

fn topk(case: &Case<'_>) -> Checked<Named> {
    let x = case.input("x")?;
    let smallest = case.param("largest").as_bool() == Some(false) || case.param("descending").as_bool() == Some(false);
    if smallest || case.axis(&x)? + 1 != x.shape().rank() {
        return Err(Outcome::Unsupported(
            "only the largest of the last dimension".to_owned(),
        ));
    }
    let k = case.param("k").as_u64().map_or(x.shape().last_dim(), |k| k as usize);
    let [values, indices] = top(case, &x, k)?;
    Ok(match case.op() {
        "topk" => vec![("values", values), ("indices", indices)],
        _ => vec![("out", indices)],
    })
}

fn top(case: &Case<'_>, x: &Tensor, k: usize) -> Checked<[Tensor; 2]> {
    let outputs = case.run_all(&Op::TopK { k }, &[x])?;
    outputs.try_into().map_err(|_| fail("topk gave no two outputs"))
}

fn reduce(case: &Case<'_>) -> Checked<Named> {
    let x = case.input("x")?;
    let axis = case.axis(&x)?;
    let last = x.shape().rank() - 1;
    let largest = |x: &Tensor| {
        let turned = case.run(Op::Transpose { a: axis, b: last }, &[x])?;
        let [values, _] = top(case, &turned, 1)?;
        let back = case.run(Op::Transpose { a: axis, b: last }, &[&values])?;
        case.run(Op::Sum { axis, keep: false }, &[&back])
    };
    let smallest = scale(case, &largest(&scale(case, &x, -1.0)?)?, -1.0)?;
    Ok(vec![
        ("sum", case.run(Op::Sum { axis, keep: false }, &[&x])?),
        ("mean", case.run(Op::Mean { axis, keep: false }, &[&x])?),
        ("max", largest(&x)?),
        ("min", smallest),
        ("var", variance(case, &x, axis)?),
    ])
}

/// Biased, as normalisations use it.
fn variance(case: &Case<'_>, x: &Tensor, axis: usize) -> Checked<Tensor> {
    let mean = case.run(Op::Mean { axis, keep: true }, &[x])?;
    let centred = binary(case, Binary::Sub, x, &mean)?;
    let squares = binary(case, Binary::Mul, &centred, &centred)?;
    case.run(Op::Mean { axis, keep: false }, &[&squares])
}

/// `sum(x mask) / sum(mask)` over dimension 1.
fn mean_pool(case: &Case<'_>) -> Checked<Tensor> {
    let (x, mask) = (case.input("x")?, case.input("mask")?);
    let mask = case.run(Op::Cast { to: DType::F32 }, &[&mask])?;
    let mask = reshape(case, &mask, &[&mask.shape()[..], &[1]].concat())?;
    let kept = binary(case, Binary::Mul, &x, &mask)?;
    let sum = |x: &Tensor| case.run(Op::Sum { axis: 1, keep: false }, &[x]);
    binary(case, Binary::Div, &sum(&kept)?, &sum(&mask)?)
}

fn moe_route(case: &Case<'_>) -> Checked<Named> {
    if case.param("score").as_str() != Some("softmax over all") {
        return Err(Outcome::Unsupported(
            "routing other than softmax over all experts".to_owned(),
        ));
    }
    let x = case.input("x")?;
    let axis = x.shape().rank() - 1;
    let scores = case.run(Op::Softmax { axis }, &[&x])?;
    let [mut weights, indices] = top(case, &scores, case.number("k")? as usize)?;
    if case.flag("renormalise") {
        let sum = case.run(Op::Sum { axis, keep: true }, &[&weights])?;
        weights = binary(case, Binary::Div, &weights, &sum)?;
    }
    Ok(vec![("weights", weights), ("indices", indices)])
}

/// `[n, c r r, h, w]` to `[n, c, h r, w r]`.
fn pixel_shuffle(case: &Case<'_>) -> Checked<Tensor> {
    let (x, r) = (case.input("x")?, case.number("r")? as usize);
    let &[n, c, h, w] = x.shape().dims() else {
        return Err(fail("rank 4 expected"));
    };
    let c = c / (r * r).max(1);
    let split = reshape(case, &x, &[n, c, r, r, h, w])?;
    reshape(
        case,
        &permute(case, &split, &[0, 1, 4, 2, 5, 3])?,
        &[n, c, h * r, w * r],
    )
}

/// `[c, h, w]` to a row per patch, in the order of a convolution's weights.
fn patchify(case: &Case<'_>) -> Checked<Tensor> {
    let (x, p) = (case.input("x")?, case.number("patch")? as usize);
    let &[c, h, w] = x.shape().dims() else {
        return Err(fail("rank 3 expected"));
    };
    let (h, w) = (h / p.max(1), w / p.max(1));
    let split = reshape(case, &x, &[c, h, p, w, p])?;
    reshape(case, &permute(case, &split, &[1, 3, 0, 2, 4])?, &[h * w, c * p * p])
}
