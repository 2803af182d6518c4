//! Mistakes inside attention and softmax, between the scores and the sum: computed here, since no other op gives them.

use super::{Fault, like, list, one, right, shaped, with_input};
use crate::{Op, Sdpa, Shape, Tensor};

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        says: "the scores are scaled twice",
        wrong: |op, inputs| {
            let Op::Sdpa(sdpa) = op else { return None };
            let scale = sdpa.scale * sdpa.scale;
            let changed = Op::Sdpa(Sdpa { scale, ..sdpa.clone() });
            (scale != sdpa.scale).then(|| right(&changed, inputs))?
        },
    },
    Fault {
        says: "the soft-cap comes after the mask: a key that must not be seen has the score -cap instead of -inf",
        wrong: |op, inputs| {
            let Op::Sdpa(sdpa) = op else { return None };
            let cap = f64::from(sdpa.softcap?);
            attend(op, inputs, &|seen, score, mask| {
                let all = if seen { score + mask } else { f64::NEG_INFINITY };
                cap * (all / cap).tanh()
            })
        },
    },
    Fault {
        says: "a query that sees no key gives the mean of all values instead of 0",
        wrong: |op, inputs| blind_rows(op, inputs, false),
    },
    Fault {
        says: "a query that sees no key gives NaN instead of 0: the sum of its weights is 0",
        wrong: |op, inputs| blind_rows(op, inputs, true),
    },
    Fault {
        says: "values are read with the row length of keys",
        wrong: |op, inputs| {
            let (Op::Sdpa(_), [_, k, v, ..]) = (op, inputs) else {
                return None;
            };
            let (d, dv) = (k.shape().last_dim(), v.shape().last_dim());
            let all = list(v).filter(|_| d != dv && dv > 0)?;
            let at = |i: usize| all.get(i / dv * d + i % dv).copied().unwrap_or(0.0);
            let moved: Vec<f64> = (0..all.len()).map(at).collect();
            with_input(op, inputs, 2, like(v, &moved))
        },
    },
    Fault {
        says: "the sink has a value, that of the first key: it takes part in the sum of weights only",
        wrong: |op, inputs| {
            // With one key, this is what attention without sinks gives.
            let (Op::Sdpa(sdpa), [q, k, v, ..]) = (op, inputs) else {
                return None;
            };
            (sdpa.sinks && k.shape()[0] > 1).then_some(())?;
            let with = list(&right(op, inputs)?.into_iter().next()?)?;
            // A value of ones tells how much weight the keys have; the sink has the rest.
            let ones = like(v, &vec![1.0; v.n_elems()]);
            let weight = list(&with_input(op, inputs, 2, ones)?.into_iter().next()?)?;
            let (h, hkv, dv, values) = (q.shape()[1], v.shape()[1], v.shape()[2], list(v)?);
            let first = |i: usize| values[i / dv % h / (h / hkv) * dv + i % dv];
            let all: Vec<f64> = (0..with.len())
                .map(|i| with[i] + (1.0 - weight[i]) * first(i))
                .collect();
            let shape = Shape::new(&[q.shape()[0], h, dv]);
            Some(vec![shaped(q.dtype(), &shape, &all)])
        },
    },
    Fault {
        says: "the largest number of the row is not subtracted before exp: large ones overflow, small ones vanish",
        wrong: |op, inputs| {
            let Op::Softmax { axis } = *op else { return None };
            let last = inputs.first()?.shape().rank().checked_sub(1)?;
            let turn = Op::Transpose { a: axis, b: last };
            let x = one(turn.clone(), inputs)?;
            let exps: Vec<f32> = list(&x)?.iter().map(|&v| (v as f32).exp()).collect();
            let rows = exps.chunks(x.shape().last_dim().max(1));
            let all: Vec<f64> = rows
                .flat_map(|row| {
                    let sum: f32 = row.iter().sum();
                    row.iter().map(move |e| f64::from(e / sum))
                })
                .collect();
            Some(vec![one(turn, &[like(&x, &all)])?])
        },
    },
];

/// Attention with scores of another making, from (causal mask and window let it be seen, scaled product, mask).
fn attend(op: &Op, inputs: &[Tensor], score: &dyn Fn(bool, f64, f64) -> f64) -> Option<Vec<Tensor>> {
    let (Op::Sdpa(sdpa), [q, k, v, ..]) = (op, inputs) else {
        return None;
    };
    let (tq, h, d) = (q.shape()[0], q.shape()[1], q.shape()[2]);
    let (tk, hkv, dv) = (k.shape()[0], k.shape()[1], v.shape()[2]);
    let past = tk.checked_sub(tq)?;
    let [qs, ks, vs] = [list(q)?, list(k)?, list(v)?];
    let mask = match sdpa.mask {
        true => Some((list(inputs.get(3)?)?, inputs.get(3)?.shape().rank() == 3)),
        false => None,
    };
    let sinks = if sdpa.sinks { Some(list(inputs.last()?)?) } else { None };
    let mut all = Vec::with_capacity(tq * h * dv);
    for (i, head) in (0..tq).flat_map(|i| (0..h).map(move |head| (i, head))) {
        let group = head / (h / hkv);
        let of = |j: usize| {
            let seen = !(sdpa.causal && j > i + past) && sdpa.window.is_none_or(|w| i + past < j + w);
            let pairs = qs[(i * h + head) * d..][..d]
                .iter()
                .zip(&ks[(j * hkv + group) * d..][..d]);
            let product = f64::from(sdpa.scale) * pairs.map(|(a, b)| a * b).sum::<f64>();
            let plane = |by_head: &bool| if *by_head { head * tq * tk } else { 0 };
            let mask = mask.as_ref().map_or(0.0, |(m, by_head)| m[plane(by_head) + i * tk + j]);
            score(seen, product, mask)
        };
        let scores: Vec<f64> = (0..tk).map(of).collect();
        let sink = sinks.as_ref().map_or(f64::NEG_INFINITY, |s| s[head]);
        let most = scores.iter().fold(sink, |m, &s| m.max(s));
        let weights: Vec<f64> = scores.iter().map(|s| (s - most).exp()).collect();
        let sum = weights.iter().sum::<f64>() + (sink - most).exp();
        for e in 0..dv {
            let weighed = weights
                .iter()
                .enumerate()
                .map(|(j, w)| w / sum * vs[(j * hkv + group) * dv + e]);
            all.push(weighed.sum());
        }
    }
    Some(vec![shaped(q.dtype(), &Shape::new(&[tq, h, dv]), &all)])
}

/// Rows that see no key are the mean of the values, or NaN.
fn blind_rows(op: &Op, inputs: &[Tensor], nan: bool) -> Option<Vec<Tensor>> {
    let (Op::Sdpa(sdpa), [q, k, v, ..]) = (op, inputs) else {
        return None;
    };
    (!sdpa.sinks && k.shape()[0] > 0).then_some(())?;
    let out = right(op, inputs)?.into_iter().next()?;
    // Weights add up to one, or to nothing where no key is seen.
    let ones = like(v, &vec![1.0; v.n_elems()]);
    let weight = list(&with_input(op, inputs, 2, ones)?.into_iter().next()?)?;
    let (h, hkv, dv) = (q.shape()[1], v.shape()[1], v.shape()[2]);
    let (values, mut all) = (list(v)?, list(&out)?);
    let mut any = false;
    for (i, y) in all.iter_mut().enumerate().filter(|(i, _)| weight[*i] == 0.0) {
        let group = i / dv % h / (h / hkv);
        let of_key = values.iter().skip(group * dv + i % dv).step_by(hkv * dv);
        any = true;
        *y = if nan {
            f64::NAN
        } else {
            of_key.sum::<f64>() / k.shape()[0] as f64
        };
    }
    any.then(|| vec![like(&out, &all)])
}
