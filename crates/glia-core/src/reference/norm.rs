//! Normalisations over the last dimension, and softmax.

use super::array::Array;

/// `x / sqrt(mean(x²) + eps) * g`, or `* (1 + g)`.
pub(super) fn rms_norm(mut x: Array, gain: &[Array], eps: f32, plus_one: bool) -> Vec<f64> {
    let d = x.shape.last_dim();
    for row in x.data.chunks_mut(d.max(1)) {
        let mean = row.iter().map(|v| v * v).sum::<f64>() / d as f64;
        let root = (mean + f64::from(eps)).sqrt();
        for (i, v) in row.iter_mut().enumerate() {
            *v = *v / root
                * gain
                    .first()
                    .map_or(1.0, |g| g.data[i] + if plus_one { 1.0 } else { 0.0 });
        }
    }
    x.data
}

/// `(x - mean) / sqrt(var + eps) * g + b` with the biased variance.
pub(super) fn layer_norm(mut x: Array, gain_and_bias: &[Array], eps: f32) -> Vec<f64> {
    let d = x.shape.last_dim();
    for row in x.data.chunks_mut(d.max(1)) {
        let mean = row.iter().sum::<f64>() / d as f64;
        let variance = row.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / d as f64;
        let root = (variance + f64::from(eps)).sqrt();
        for (i, v) in row.iter_mut().enumerate() {
            let gain = gain_and_bias.first().map_or(1.0, |g| g.data[i]);
            let bias = gain_and_bias.get(1).map_or(0.0, |b| b.data[i]);
            *v = (*v - mean) / root * gain + bias;
        }
    }
    x.data
}

pub(super) fn softmax(mut x: Array, axis: usize) -> Vec<f64> {
    let (n_outer, len, inner) = x.split_at(axis);
    for outer in 0..n_outer {
        for n in 0..inner {
            let at = |i: usize| (outer * len + i) * inner + n;
            let max = (0..len).map(|i| x.data[at(i)]).fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = (0..len).map(|i| (x.data[at(i)] - max).exp()).sum();
            for i in 0..len {
                x.data[at(i)] = (x.data[at(i)] - max).exp() / sum;
            }
        }
    }
    x.data
}
