//! Mistakes of normalisations, softmax and reductions.

use super::{Fault, like, list, one, right};
use crate::{Op, Tensor};

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        says: "plus_one is ignored: the gain is g instead of 1 + g, or the other way round",
        wrong: |op, inputs| match op {
            Op::RmsNorm { eps, plus_one } => right(
                &Op::RmsNorm {
                    eps: *eps,
                    plus_one: !plus_one,
                },
                inputs,
            ),
            _ => None,
        },
    },
    Fault {
        says: "epsilon outside the root: x / (sqrt(mean) + eps) instead of x / sqrt(mean + eps)",
        wrong: |op, inputs| norm(op, inputs, |m, eps| m.sqrt() + eps),
    },
    Fault {
        says: "epsilon is ignored",
        wrong: |op, inputs| norm(op, inputs, |m, _| m.sqrt()),
    },
    Fault {
        says: "the gain is ignored",
        wrong: |op, inputs| match op {
            Op::RmsNorm { .. } if inputs.len() == 2 => right(op, &inputs[..1]),
            Op::LayerNorm { .. } if inputs.len() > 1 => {
                let mut all = inputs.to_vec();
                all[1] = like(&inputs[1], &vec![1.0; inputs[1].n_elems()]);
                right(op, &all)
            }
            _ => None,
        },
    },
    Fault {
        says: "a missing bias of the normalisation",
        wrong: |op, inputs| match op {
            Op::LayerNorm { .. } if inputs.len() == 3 => right(op, &inputs[..2]),
            _ => None,
        },
    },
    Fault {
        says: "the variance is divided by n - 1 instead of n",
        wrong: |op, inputs| {
            let Op::LayerNorm { eps } = op else { return None };
            let d = inputs.first()?.shape().last_dim() as f64;
            let eps = f64::from(*eps);
            scaled(op, inputs, &|var| {
                (var + eps).sqrt() / (var * d / (d - 1.0) + eps).sqrt()
            })
        },
    },
    Fault {
        says: "the sum of squares is not divided by the number of columns",
        wrong: |op, inputs| {
            let Op::RmsNorm { eps, .. } = op else { return None };
            let (d, eps) = (inputs.first()?.shape().last_dim() as f64, f64::from(*eps));
            scaled(op, inputs, &|m| (m + eps).sqrt() / (m * d + eps).sqrt())
        },
    },
    Fault {
        says: "the wrong axis: the last one",
        wrong: |op, inputs| axis(op, inputs, |rank| rank.saturating_sub(1)),
    },
    Fault {
        says: "the wrong axis: the first one",
        wrong: |op, inputs| axis(op, inputs, |_| 0),
    },
    Fault {
        says: "the sum is not divided by the number of elements, or the mean is taken instead of the sum",
        wrong: |op, inputs| match *op {
            Op::Sum { axis, keep } => right(&Op::Mean { axis, keep }, inputs),
            Op::Mean { axis, keep } => right(&Op::Sum { axis, keep }, inputs),
            _ => None,
        },
    },
    Fault {
        says: "the order of ties: the highest index wins instead of the lowest",
        wrong: |op, inputs| chosen(op, inputs, |a, b, i, j| b.total_cmp(&a).then(j.cmp(&i))),
    },
    Fault {
        says: "the smallest elements are taken instead of the largest",
        wrong: |op, inputs| chosen(op, inputs, |a, b, i, j| a.total_cmp(&b).then(i.cmp(&j))),
    },
    Fault {
        says: "largest by magnitude: the sign is ignored",
        wrong: |op, inputs| chosen(op, inputs, |a, b, i, j| b.abs().total_cmp(&a.abs()).then(i.cmp(&j))),
    },
];

/// Rows of x, times a factor of their mean square (RMSNorm) or variance (LayerNorm), before the gain.
fn scaled(op: &Op, inputs: &[Tensor], factor: &dyn Fn(f64) -> f64) -> Option<Vec<Tensor>> {
    let x = inputs.first()?;
    let d = x.shape().last_dim().max(1);
    let gain = |i: usize| match (op, inputs.get(1).and_then(list)) {
        (Op::RmsNorm { plus_one: true, .. }, Some(g)) => 1.0 + g[i],
        (_, Some(g)) => g[i],
        _ => 1.0,
    };
    let bias = inputs.get(2).and_then(list);
    let layer = matches!(op, Op::LayerNorm { .. });
    let (Op::RmsNorm { eps, .. } | Op::LayerNorm { eps }) = *op else {
        return None;
    };
    let gains: Vec<f64> = (0..x.shape().last_dim()).map(gain).collect();
    let mut all = list(x)?;
    for row in all.chunks_mut(d) {
        let mean = if layer { row.iter().sum::<f64>() / d as f64 } else { 0.0 };
        let m = row.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / d as f64;
        let by = factor(m) / (m + f64::from(eps)).sqrt();
        for (i, v) in row.iter_mut().enumerate() {
            *v = (*v - mean) * by * gains[i] + bias.as_ref().map_or(0.0, |b| b[i]);
        }
    }
    Some(vec![like(x, &all)])
}

fn norm(op: &Op, inputs: &[Tensor], root: fn(f64, f64) -> f64) -> Option<Vec<Tensor>> {
    let (Op::RmsNorm { eps, .. } | Op::LayerNorm { eps }) = *op else {
        return None;
    };
    let eps = f64::from(eps);
    scaled(op, inputs, &|m| (m + eps).sqrt() / root(m, eps))
}

fn axis(op: &Op, inputs: &[Tensor], pick: fn(usize) -> usize) -> Option<Vec<Tensor>> {
    let axis = pick(inputs.first()?.shape().rank());
    let other = match *op {
        Op::Softmax { .. } => Op::Softmax { axis },
        Op::Argmax { .. } => Op::Argmax { axis },
        Op::Sum { keep, .. } => Op::Sum { axis, keep },
        Op::Mean { keep, .. } => Op::Mean { axis, keep },
        Op::Gather { .. } => Op::Gather { axis },
        Op::Concat { .. } => Op::Concat { axis },
        Op::Repeat { n, .. } => Op::Repeat { axis, n },
        _ => return None,
    };
    right(&other, inputs)
}

type Order = fn(f64, f64, usize, usize) -> std::cmp::Ordering;

/// Argmax and top-k by another order.
fn chosen(op: &Op, inputs: &[Tensor], order: Order) -> Option<Vec<Tensor>> {
    let x = inputs.first()?;
    let rank = x.shape().rank();
    let (along, k) = match *op {
        Op::Argmax { axis } => (axis, 1),
        Op::TopK { k } => (rank.checked_sub(1)?, k),
        _ => return None,
    };
    let turned = one(Op::Transpose { a: along, b: rank - 1 }, std::slice::from_ref(x))?;
    let (mut values, mut indices) = (Vec::new(), Vec::new());
    for row in list(&turned)?.chunks(turned.shape().last_dim().max(1)) {
        let mut places: Vec<usize> = (0..row.len()).collect();
        places.sort_by(|&i, &j| order(row[i], row[j], i, j));
        for &i in places.iter().take(k) {
            values.push(row[i]);
            indices.push(i as f64);
        }
    }
    let want = right(op, inputs)?;
    if want.len() == 2 {
        return (values.len() == want[0].n_elems()).then(|| vec![like(&want[0], &values), like(&want[1], &indices)]);
    }
    // The order of the others is kept only along the last axis.
    (along + 1 == rank && indices.len() == want[0].n_elems()).then(|| vec![like(&want[0], &indices)])
}
