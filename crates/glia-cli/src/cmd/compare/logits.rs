//! Divergence of two sides' logits, row by row.

use glia_core::Tensor;

/// Kullback-Leibler divergence of the other side's next-token probabilities from the reference's.
#[derive(Clone, Copy, Debug, Default)]
pub struct Divergence {
    /// Rows of logits compared.
    pub n_rows: usize,
    /// Sum over the rows, in nats.
    kl: f64,
    /// The largest of one row.
    pub max_kl: f64,
    n_same_top: usize,
}

impl Divergence {
    /// Adds `[rows, vocab]` logits of both sides.
    pub fn add(&mut self, reference: &Tensor, other: &Tensor) {
        let vocab = reference.shape().last_dim();
        let (Ok(a), Ok(b)) = (reference.as_f32(), other.as_f32()) else {
            return;
        };
        if vocab == 0 {
            return;
        }
        for (a, b) in a.chunks(vocab).zip(b.chunks(vocab)) {
            let kl = row(a, b);
            self.n_rows += 1;
            self.kl += kl;
            // Not `max`, which passes over NaN.
            if kl.is_nan() || kl > self.max_kl {
                self.max_kl = kl;
            }
            self.n_same_top += usize::from(top(a) == top(b));
        }
    }

    /// Mean over the rows, in nats.
    pub fn mean_kl(&self) -> f64 {
        self.kl / self.n_rows.max(1) as f64
    }

    /// Share of rows whose likeliest token is the same.
    pub fn top1_agreement(&self) -> f64 {
        self.n_same_top as f64 / self.n_rows.max(1) as f64
    }
}

fn row(a: &[f32], b: &[f32]) -> f64 {
    let (log_a, log_b) = (log_sum(a), log_sum(b));
    let terms = a.iter().zip(b).map(|(&a, &b)| {
        let (p, q) = (f64::from(a) - log_a, f64::from(b) - log_b);
        // A token without probability adds nothing, whatever the other side says.
        if p == f64::NEG_INFINITY { 0.0 } else { p.exp() * (p - q) }
    });
    // Rounding may leave a hair below zero.
    let sum: f64 = terms.sum();
    if sum < 0.0 { 0.0 } else { sum }
}

fn log_sum(row: &[f32]) -> f64 {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    f64::from(max) + row.iter().map(|&x| f64::from(x - max).exp()).sum::<f64>().ln()
}

fn top(row: &[f32]) -> Option<usize> {
    let better = |best: usize, i: usize| if row[i] > row[best] { i } else { best };
    (0..row.len()).reduce(better)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divergence_is_that_of_the_probabilities() {
        let tensor = |v: &[f32]| Tensor::from_f32([v.len() / 2, 2], v).unwrap();
        let mut d = Divergence::default();
        // One quarter and three quarters, against halves; then equal rows, one of them moved by a constant.
        let third = 3f32.ln();
        d.add(&tensor(&[0.0, third, 1.0, 2.0]), &tensor(&[0.0, 0.0, 11.0, 12.0]));
        let expected = 0.25 * 0.5f64.ln() + 0.75 * 1.5f64.ln();
        assert!((d.max_kl - expected).abs() < 1e-6 && (d.mean_kl() - expected / 2.0).abs() < 1e-6);
        assert_eq!((d.n_rows, d.top1_agreement()), (2, 0.5));
        d.add(&tensor(&[0.0, f32::NAN]), &tensor(&[0.0, 0.0]));
        assert!(d.max_kl.is_nan() && d.mean_kl().is_nan());
    }
}
