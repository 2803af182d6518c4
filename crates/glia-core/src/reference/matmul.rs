//! Matrix products.

use super::array::Array;

/// `y = x Wᵀ (+ bias)`; weights of rank above 2 are batched. `n` is the last dimension of the output.
pub(super) fn matmul(x: &Array, weights_and_bias: &[Array], n: usize) -> Vec<f64> {
    let (w, bias) = (&weights_and_bias[0], weights_and_bias.get(1));
    let k = x.shape.last_dim();
    let n_batches: usize = w.shape[..w.shape.rank() - 2].iter().product();
    let n_rows: usize = x.shape[..x.shape.rank() - 1].iter().product();
    let mut out = Vec::with_capacity(n_rows * n);
    for row in 0..n_rows {
        // Rows are batch by batch; without batches, all rows meet the same weights.
        let batch = row * n_batches / n_rows.max(1);
        let x = &x.data[row * k..(row + 1) * k];
        for j in 0..n {
            let at = (batch * n + j) * k;
            let dot: f64 = x.iter().zip(&w.data[at..at + k]).map(|(x, w)| x * w).sum();
            out.push(dot + bias.map_or(0.0, |b| b.data[j]));
        }
    }
    out
}
