//! What GGUF files do to the values of weights, in both directions.

use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::{fmt, io};

use glia_core::{ByteSource, DType, Tensor, TensorError};

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

/// A view with each head's rows in another order: `from(head_dim / 2, row)` is where a row of a head comes from. Rows stay
/// whole, so quantised tensors keep their blocks.
fn reorder(tensor: &Tensor, n_heads: usize, from: fn(usize, usize) -> usize) -> Result<Tensor, TensorError> {
    let (dtype, shape) = (tensor.dtype(), *tensor.shape());
    let n_rows = shape.first().copied().unwrap_or(0);
    let group = n_heads.saturating_mul(2);
    if n_rows == 0 || n_heads == 0 || !n_rows.is_multiple_of(group) {
        return Err(TensorError::WrongLength {
            dtype,
            shape,
            needed: group,
            got: n_rows,
        });
    }
    tensor.check_on_host()?;
    let len = tensor.size_bytes();
    let rows = ReorderedRows {
        stored: tensor.clone(),
        row_bytes: len / n_rows,
        half: n_rows / group,
        from,
        whole: OnceLock::new(),
    };
    Tensor::shared(dtype, shape, Arc::new(rows), 0..len)
}

/// The bytes of a tensor whose rows are put into order as they are read: a model's file holds hundreds of them, and the
/// backend reads each once.
struct ReorderedRows {
    stored: Tensor,
    row_bytes: usize,
    /// Half the rows of a head.
    half: usize,
    from: fn(usize, usize) -> usize,
    /// All of them, for readers that want them in place.
    whole: OnceLock<Tensor>,
}

impl ReorderedRows {
    /// Puts the rows from `first` on into order; `heads` holds the stored rows of whole heads, its first is that of the
    /// head of `first`.
    fn gather(&self, heads: &[u8], first: usize, out: &mut [u8]) {
        if self.row_bytes == 0 {
            return;
        }
        let head_rows = 2 * self.half;
        let base = first / head_rows * head_rows;
        for (i, row) in out.chunks_exact_mut(self.row_bytes).enumerate() {
            let to = first + i;
            let from = to / head_rows * head_rows + (self.from)(self.half, to % head_rows) - base;
            row.copy_from_slice(&heads[from * self.row_bytes..][..self.row_bytes]);
        }
    }
}

impl fmt::Debug for ReorderedRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReorderedRows({:?})", self.stored)
    }
}

impl ByteSource for ReorderedRows {
    fn bytes(&self) -> &[u8] {
        let whole = self.whole.get_or_init(|| {
            let mut out =
                Tensor::zeros(self.stored.dtype(), *self.stored.shape()).expect("a tensor of this size exists");
            let stored = self.stored.bytes().expect("checked when it was made");
            self.gather(stored, 0, out.bytes_mut().expect("fresh host memory"));
            out
        });
        whole.bytes().expect("host memory")
    }

    fn n_bytes(&self) -> usize {
        self.stored.size_bytes()
    }

    fn fetch<'a>(&'a self, range: Range<usize>, buffer: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
        let (row, whole_rows) = (self.row_bytes.max(1), |at: usize| {
            at.is_multiple_of(self.row_bytes.max(1))
        });
        if range.start > range.end || range.end > self.n_bytes() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if self.whole.get().is_some() || !whole_rows(range.start) || !whole_rows(range.end) {
            return Ok(&self.bytes()[range]);
        }
        let head = 2 * self.half * row;
        let heads = range.start / head * head..range.end.next_multiple_of(head).min(self.n_bytes());
        let mut stored = Vec::new();
        let stored = self.stored.fetch(heads, &mut stored).map_err(io::Error::other)?;
        buffer.resize(buffer.len().max(range.len()), 0);
        let out = &mut buffer[..range.len()];
        self.gather(stored, range.start / row, out);
        Ok(out)
    }

    fn release(&self, _: Range<usize>) {
        self.stored.release();
    }
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
        // Rows that are read in pieces come out the same.
        let stored = Tensor::from_f32([12, 1], &[0., 4., 1., 5., 2., 6., 3., 7., 8., 12., 9., 13.]);
        let stored = Tensor::from_f32([24, 1], &[stored.unwrap().as_f32().unwrap(), &[7.0; 12]].concat()).unwrap();
        let all = undo(stored.clone(), Transform::UnpermuteRows { n_heads: 3 }).unwrap();
        let pieces = undo(stored, Transform::UnpermuteRows { n_heads: 3 }).unwrap();
        let mut buffer = Vec::new();
        for range in [0..8, 4..20, 28..96, 40..40, 92..96] {
            let piece = pieces.fetch(range.clone(), &mut buffer).unwrap().to_vec();
            assert_eq!(piece, all.bytes().unwrap()[range.clone()], "{range:?}");
        }
        assert!(pieces.fetch(0..97, &mut buffer).is_err());
        let odd = Tensor::from_f32([6, 1], &[0.0; 6]).unwrap();
        assert!(undo(odd, Transform::UnpermuteRows { n_heads: 2 }).is_err());
    }
}
