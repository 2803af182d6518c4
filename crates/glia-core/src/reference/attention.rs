//! Rotary embedding and attention.

use super::array::Array;
use crate::{Rope, RopePairing, Sdpa};

/// x `[T, H, D]`; `rest`: positions `[T]`, frequencies `[rot/2]`, long frequencies when `long_from` is set.
pub(super) fn rope(rope: &Rope, mut x: Array, rest: &[Array]) -> Vec<f64> {
    let (n_heads, d) = (x.shape[1], x.shape[2]);
    let positions = &rest[0].data;
    let n_so_far = positions.iter().fold(0.0, |n, &p| f64::max(n, p + 1.0));
    let long = rope.long_from.is_some_and(|from| n_so_far > from as f64);
    let freqs = &rest[if long { 2 } else { 1 }].data;
    let scale = f64::from(rope.scale);
    for (t, position) in positions.iter().enumerate() {
        for h in 0..n_heads {
            let head = &mut x.data[(t * n_heads + h) * d..][..d];
            for (i, freq) in freqs.iter().enumerate() {
                let (a, b) = match rope.pairing {
                    RopePairing::NeoX => (i, i + freqs.len()),
                    RopePairing::Interleaved => (2 * i, 2 * i + 1),
                };
                let (sin, cos) = (position * freq).sin_cos();
                let (u, v) = (head[a], head[b]);
                head[a] = (u * cos - v * sin) * scale;
                head[b] = (v * cos + u * sin) * scale;
            }
        }
    }
    x.data
}

/// q `[Tq, H, D]`; `rest`: k `[Tk, Hkv, D]`, v `[Tk, Hkv, Dv]`, mask, sinks. A query that sees no key gives zeros.
pub(super) fn sdpa(sdpa: &Sdpa, q: &Array, rest: &[Array]) -> Vec<f64> {
    let (k, v) = (&rest[0], &rest[1]);
    let mask = sdpa.mask.then(|| &rest[2]);
    let sinks = if sdpa.sinks { rest.last() } else { None };
    let (n_queries, n_heads, d) = (q.shape[0], q.shape[1], q.shape[2]);
    let (n_keys, n_groups, dv) = (k.shape[0], k.shape[1], v.shape[2]);
    let mut out = vec![0.0; n_queries * n_heads * dv];
    for i in 0..n_queries {
        for h in 0..n_heads {
            let group = h / (n_heads / n_groups);
            let query = &q.data[(i * n_heads + h) * d..][..d];
            let score = |j: usize| {
                let ahead = (j + n_queries) as i128 - (i + n_keys) as i128;
                let too_old = sdpa.window.is_some_and(|w| -ahead >= w as i128);
                if (sdpa.causal && ahead > 0) || too_old {
                    return f64::NEG_INFINITY;
                }
                let key = &k.data[(j * n_groups + group) * d..][..d];
                let mut score = f64::from(sdpa.scale) * query.iter().zip(key).map(|(a, b)| a * b).sum::<f64>();
                if let Some(cap) = sdpa.softcap {
                    score = f64::from(cap) * (score / f64::from(cap)).tanh();
                }
                let plane = if mask.is_some_and(|m| m.shape.rank() == 3) {
                    h
                } else {
                    0
                };
                score + mask.map_or(0.0, |m| m.data[(plane * n_queries + i) * n_keys + j])
            };
            let scores: Vec<f64> = (0..n_keys).map(score).collect();
            let sink = sinks.map_or(f64::NEG_INFINITY, |s| s.data[h]);
            let max = scores.iter().fold(sink, |m, &s| m.max(s));
            if max == f64::NEG_INFINITY {
                continue;
            }
            let sum = scores.iter().map(|s| (s - max).exp()).sum::<f64>() + (sink - max).exp();
            for (e, o) in out[(i * n_heads + h) * dv..][..dv].iter_mut().enumerate() {
                let value = |j: usize| v.data[(j * n_groups + group) * dv + e];
                // Keys out of sight do not count, whatever their values.
                let seen = scores.iter().enumerate().filter(|(_, s)| **s != f64::NEG_INFINITY);
                *o = seen.map(|(j, s)| (s - max).exp() / sum * value(j)).sum();
            }
        }
    }
    out
}
