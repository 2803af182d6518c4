//! Sums, means, largest elements.

use super::array::Array;
use crate::BackendError;
use std::cmp::Ordering;

pub(super) fn sum(x: &Array, axis: usize) -> Vec<f64> {
    along(x, axis, |values| values.iter().sum())
}

pub(super) fn mean(x: &Array, axis: usize) -> Vec<f64> {
    along(x, axis, |values| values.iter().sum::<f64>() / values.len() as f64)
}

/// `f` of the elements along `axis`, for every place in the other dimensions.
fn along<R>(x: &Array, axis: usize, f: impl Fn(&[f64]) -> R) -> Vec<R> {
    let (n_outer, len, inner) = x.split_at(axis);
    let mut out = Vec::with_capacity(n_outer * inner);
    for outer in 0..n_outer {
        for n in 0..inner {
            let values: Vec<f64> = (0..len).map(|i| x.data[(outer * len + i) * inner + n]).collect();
            out.push(f(&values));
        }
    }
    out
}

/// Indices from the largest element to the smallest; the lowest index first on ties, NaN last.
fn falling(values: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| {
        let (a, b) = (values[a], values[b]);
        b.partial_cmp(&a).unwrap_or_else(|| match (a.is_nan(), b.is_nan()) {
            (false, true) => Ordering::Less,
            (true, false) => Ordering::Greater,
            _ => Ordering::Equal,
        })
    });
    order
}

fn index(op: &str, i: usize) -> Result<i32, BackendError> {
    i32::try_from(i).map_err(|_| BackendError::shape(op, format!("index {i} does not fit in i32")))
}

pub(super) fn argmax(x: &Array, axis: usize) -> Result<Vec<i32>, BackendError> {
    let largest = along(x, axis, |values| falling(values).first().copied().unwrap_or(0));
    largest.into_iter().map(|i| index("argmax", i)).collect()
}

/// Values and indices of the `k` largest of each row.
pub(super) fn topk(x: &Array, k: usize) -> Result<(Vec<f64>, Vec<i32>), BackendError> {
    let (mut values, mut indices) = (Vec::new(), Vec::new());
    for row in x.data.chunks(x.shape.last_dim().max(1)) {
        for i in falling(row).into_iter().take(k) {
            values.push(row[i]);
            indices.push(index("topk", i)?);
        }
    }
    Ok((values, indices))
}
