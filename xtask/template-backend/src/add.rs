//! Elementwise addition with NumPy broadcasting: dimensions are aligned at the end, size 1 repeats.

use glia_core::{BackendError, Shape, Tensor};

/// `a + b`, of this shape.
pub fn add(a: &Tensor, b: &Tensor, shape: Shape) -> Result<Tensor, BackendError> {
    let (xs, ys) = (a.as_f32()?, b.as_f32()?);
    // No element is visited where a dimension is 0.
    let sums: Vec<f32> = (0..shape.n_elems())
        .map(|i| xs[source(i, &shape, a.shape())] + ys[source(i, &shape, b.shape())])
        .collect();
    Ok(Tensor::from_f32(shape, &sums)?)
}

/// Where element `index` of the result comes from in an operand of shape `of`.
fn source(mut index: usize, result: &Shape, of: &Shape) -> usize {
    let (mut offset, mut stride) = (0, 1);
    for axis in (result.rank() - of.rank()..result.rank()).rev() {
        let size = of[axis - (result.rank() - of.rank())];
        if size > 1 {
            offset += index % result[axis] * stride;
        }
        index /= result[axis];
        stride *= size;
    }
    offset
}
