//! What GGUF files do to the values of weights, in both directions.

use glia_core::{DType, Tensor, TensorError};

use crate::family::gguf::Transform;

/// Undoes what the writer of the file did to a tensor's values.
///
/// # Errors
/// [`TensorError`] when the tensor does not have the rows that the transform needs.
pub fn undo(tensor: Tensor, transform: Transform) -> Result<Tensor, TensorError> {
    match transform {
        Transform::None => Ok(tensor),
        Transform::MinusOne => add(tensor, -1.0),
        // Row `2i + j` of a head becomes row `j * head_dim / 2 + i`.
        Transform::UnpermuteRows { n_heads } => reorder(&tensor, n_heads, |half, to| {
            let (j, i) = (to / half, to % half);
            2 * i + j
        }),
    }
}

/// Does to a tensor's values what the writer of a GGUF file does: the other direction of [`undo`].
///
/// # Errors
/// As [`undo`].
pub fn apply(tensor: Tensor, transform: Transform) -> Result<Tensor, TensorError> {
    match transform {
        Transform::None => Ok(tensor),
        Transform::MinusOne => add(tensor, 1.0),
        Transform::UnpermuteRows { n_heads } => reorder(&tensor, n_heads, |half, to| {
            let (i, j) = (to / 2, to % 2);
            j * half + i
        }),
    }
}

fn add(tensor: Tensor, number: f32) -> Result<Tensor, TensorError> {
    let mut plain = to_f32(tensor)?;
    for x in plain.as_f32_mut()? {
        *x += number;
    }
    Ok(plain)
}

/// A copy with each head's rows in another order: `from(head_dim / 2, row)` is where a row of a head comes from. Rows stay
/// whole, so quantised tensors keep their blocks.
fn reorder(tensor: &Tensor, n_heads: usize, from: impl Fn(usize, usize) -> usize) -> Result<Tensor, TensorError> {
    let n_rows = tensor.shape().first().copied().unwrap_or(0);
    let group = n_heads.saturating_mul(2);
    if n_rows == 0 || n_heads == 0 || !n_rows.is_multiple_of(group) {
        let (dtype, shape) = (tensor.dtype(), *tensor.shape());
        return Err(TensorError::WrongLength {
            dtype,
            shape,
            needed: group,
            got: n_rows,
        });
    }
    let (row_bytes, half) = (tensor.size_bytes() / n_rows, n_rows / group);
    let mut out = Tensor::zeros(tensor.dtype(), *tensor.shape())?;
    if row_bytes == 0 {
        return Ok(out);
    }
    let (source, target) = (tensor.bytes()?, out.bytes_mut()?);
    for (to, row) in target.chunks_exact_mut(row_bytes).enumerate() {
        let (head, within) = (to / (2 * half), to % (2 * half));
        let at = (head * 2 * half + from(half, within)) * row_bytes;
        row.copy_from_slice(&source[at..at + row_bytes]);
    }
    Ok(out)
}

/// The same values as F32, for the small vectors (gains, biases) that every backend wants so.
///
/// # Errors
/// [`TensorError`].
pub fn to_f32(tensor: Tensor) -> Result<Tensor, TensorError> {
    if tensor.dtype() == DType::F32 {
        return tensor.to_owned_aligned();
    }
    let mut out = Tensor::zeros(DType::F32, *tensor.shape())?;
    glia_core::quant::dequantize(tensor.dtype(), tensor.bytes()?, out.as_f32_mut()?).map_err(|_| {
        TensorError::WrongDType {
            expected: DType::F32,
            got: tensor.dtype(),
        }
    })?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_head_come_apart_into_halves() {
        // One head of 4 rows, then another: stored 0 2 1 3.
        let stored = Tensor::from_f32([8, 1], &[0., 2., 1., 3., 4., 6., 5., 7.]).unwrap();
        let halves = Transform::UnpermuteRows { n_heads: 2 };
        let undone = undo(stored.clone(), halves).unwrap();
        assert_eq!(undone.as_f32().unwrap(), [0., 1., 2., 3., 4., 5., 6., 7.]);
        let again = apply(undone, halves).unwrap();
        assert_eq!(again.as_f32().unwrap(), stored.as_f32().unwrap());
        let odd = Tensor::from_f32([6, 1], &[0.0; 6]).unwrap();
        assert!(undo(odd, Transform::UnpermuteRows { n_heads: 2 }).is_err());
    }
}
