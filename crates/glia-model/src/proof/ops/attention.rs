//! Golden attention and rotation: layouts are turned, masks widened, frequency tables made from the parameters.

use glia_core::{DType, Op, Rope, RopePairing, Sdpa, Tensor};

use super::compose::{refs, reshape};
use super::{Case, Checked, Named, fail};
use crate::family::rope::{RopeScaling, table};

/// `[batch, heads, tokens, dim]`, one sequence after the other.
pub(super) fn sdpa(case: &Case<'_>) -> Checked<Tensor> {
    let (q, k, v) = (case.input("q")?, case.input("k")?, case.input("v")?);
    let (mask, sinks) = (case.tensor("in", "mask")?, case.tensor("in", "sinks")?);
    let d = q.shape().last_dim() as f64;
    let op = Op::Sdpa(Sdpa {
        scale: case.param("scale").as_f64().unwrap_or(d.sqrt().recip()) as f32,
        causal: case.flag("causal"),
        window: case.param("window").as_u64().map(|w| w as usize),
        softcap: case.param("softcap").as_f64().map(|c| c as f32),
        mask: mask.is_some(),
        sinks: sinks.is_some(),
    });
    let &[n, heads, n_queries, _] = q.shape().dims() else {
        return Err(fail("q must have rank 4"));
    };
    let n_keys = k.shape().get(2).copied().unwrap_or(0);
    let mut outputs = Vec::with_capacity(n);
    for i in 0..n {
        let tokens_first = |x: &Tensor| {
            let one = x.slice_rows(i..i + 1).map_err(fail)?;
            let one = one.reshaped(&x.shape()[1..]).map_err(fail)?;
            case.run(Op::Permute { perm: vec![1, 0, 2] }, &[&one])
        };
        let mut inputs = vec![tokens_first(&q)?, tokens_first(&k)?, tokens_first(&v)?];
        if let Some(mask) = &mask {
            inputs.push(widen(mask, i, [heads, n_queries, n_keys])?);
        }
        inputs.extend(sinks.clone());
        let out = case.run(op.clone(), &refs(&inputs))?;
        let out = case.run(Op::Permute { perm: vec![1, 0, 2] }, &[&out])?;
        outputs.push(reshape(case, &out, &[&[1], out.shape().dims()].concat())?);
    }
    case.run(Op::Concat { axis: 0 }, &refs(&outputs))
}

/// Entry `batch` of a mask `[B or 1, H or 1, Tq or 1, Tk or 1]` as additive `[H, Tq, Tk]`. Integers say which keys are
/// seen.
fn widen(mask: &Tensor, batch: usize, [heads, queries, keys]: [usize; 3]) -> Checked<Tensor> {
    let &[nb, nh, nq, nk] = mask.shape().dims() else {
        return Err(fail("the mask must have rank 4"));
    };
    let data: Vec<f32> = match mask.dtype() {
        DType::I32 => {
            let seen = |&v: &i32| if v != 0 { 0.0 } else { f32::NEG_INFINITY };
            mask.as_i32().map_err(fail)?.iter().map(seen).collect()
        }
        _ => mask.as_f32().map_err(fail)?.to_vec(),
    };
    let mut wide = Vec::with_capacity(heads * queries * keys);
    for h in 0..heads {
        for i in 0..queries {
            for j in 0..keys {
                let index = ((batch.min(nb - 1) * nh + h.min(nh - 1)) * nq + i.min(nq - 1)) * nk + j.min(nk - 1);
                wide.push(data[index]);
            }
        }
    }
    Tensor::from_f32([heads, queries, keys], &wide).map_err(fail)
}

/// The rotation with a table of ours, which must be the reference's. For scalings that are not known yet the
/// reference's table is taken, and the case counts as unsupported even when the rotation agrees.
pub(super) fn rope(case: &Case<'_>) -> Checked<Named> {
    let (x, positions) = (case.input("x")?, case.input("pos")?);
    let known = scaling(case)?;
    let given = case
        .tensor("out", "inv_freq")?
        .ok_or_else(|| fail("`inv_freq` is missing"))?;
    let (freqs, factor) = match &known {
        Some(scaling) => {
            let table = table(case.number("theta")?, case.number("rotary_dim")? as usize, scaling).map_err(fail)?;
            check_table(&table.inv_freq, given.as_f32().map_err(fail)?)?;
            (
                Tensor::from_f32([table.inv_freq.len()], &table.inv_freq).map_err(fail)?,
                table.scale,
            )
        }
        None => {
            let factor = case.tensor("out", "attention_factor")?;
            let factor = factor.and_then(|f| f.as_f32().ok()?.first().copied()).unwrap_or(1.0);
            (given, factor)
        }
    };
    let pairing = if case.flag("interleaved") {
        RopePairing::Interleaved
    } else {
        RopePairing::NeoX
    };
    let op = Op::Rope(Rope {
        pairing,
        scale: factor,
        long_from: None,
    });
    let out = case.run(op, &[&x, &positions, &freqs])?;
    let mut outputs = vec![("out", out)];
    if known.is_some() {
        outputs.push(("inv_freq", freqs));
        outputs.push(("attention_factor", Tensor::from_f32([1], &[factor]).map_err(fail)?));
    }
    Ok(outputs)
}

/// Each frequency on its own: they span many powers of ten.
fn check_table(got: &[f32], want: &[f32]) -> Checked<()> {
    let differs = |(a, b): (&f32, &f32)| (a - b).abs() > 2e-6 * b.abs();
    match got.iter().zip(want).position(differs) {
        Some(i) => Err(fail(format!("inv_freq[{i}] is {:e}, not {:e}", got[i], want[i]))),
        None => Ok(()),
    }
}

fn scaling(case: &Case<'_>) -> Checked<Option<RopeScaling>> {
    let or = |name: &str, default: f64| case.param(name).as_f64().unwrap_or(default);
    let original_max = || case.number("original_max_position_embeddings");
    Ok(Some(match case.param("rope_type").as_str().unwrap_or("default") {
        "default" => RopeScaling::Default,
        "linear" => RopeScaling::Linear {
            factor: case.number("factor")?,
        },
        "llama3" => RopeScaling::Llama3 {
            factor: case.number("factor")?,
            low_freq_factor: case.number("low_freq_factor")?,
            high_freq_factor: case.number("high_freq_factor")?,
            original_max: original_max()?,
        },
        "yarn" => RopeScaling::Yarn {
            factor: case.number("factor")?,
            attention_factor: case.param("attention_factor").as_f64(),
            beta_fast: or("beta_fast", 32.0),
            beta_slow: or("beta_slow", 1.0),
            mscale: case.param("mscale").as_f64().zip(case.param("mscale_all_dim").as_f64()),
            original_max: original_max()?,
            truncate: case.param("truncate").as_bool().unwrap_or(true),
        },
        _ => return Ok(None),
    }))
}
