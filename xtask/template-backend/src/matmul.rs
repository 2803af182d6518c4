//! Matrix products: `y = x Wᵀ (+ bias)`, x `[.., k]`, W `[n, k]`, bias `[n]`. W of a higher rank is batched.

use glia_core::{BackendError, Shape, Tensor};

/// The product, of this shape.
pub fn matmul(
    x: &Tensor,
    w: &Tensor,
    bias: Option<&Tensor>,
    shape: Shape,
) -> Result<Tensor, BackendError> {
    let (k, n) = (x.shape().last_dim(), shape.last_dim());
    let n_rows: usize = shape[..shape.rank() - 1].iter().product();
    let n_batches: usize = w.shape()[..w.shape().rank() - 2].iter().product();
    let (xs, ws) = (x.as_f32()?, w.as_f32()?);
    let bias = bias.map(|b| b.as_f32()).transpose()?;
    let mut out = Vec::with_capacity(n_rows * n);
    for row in 0..n_rows {
        // Rows lie batch by batch; without batches, all rows meet the same weights.
        let batch = row * n_batches / n_rows;
        for column in 0..n {
            let row_of_w = batch * n + column;
            // With k = 0 both slices are empty and the product is 0.
            let (xs, ws) = (&xs[row * k..][..k], &ws[row_of_w * k..][..k]);
            let dot: f32 = xs.iter().zip(ws).map(|(x, w)| x * w).sum();
            out.push(dot + bias.map_or(0.0, |b| b[column]));
        }
    }
    Ok(Tensor::from_f32(shape, &out)?)
}
