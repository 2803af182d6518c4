//! What a run returns, by name; and joining, cutting and checking of row tensors.

use glia_core::{DType, Tensor};

use super::ExecError;

/// The declared outputs of a run, by name, on the host.
#[derive(Clone, Debug, Default)]
pub struct Outputs {
    pub(super) named: Vec<(String, Tensor)>,
}

impl Outputs {
    /// The output of this name.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.named.iter().find(|(n, _)| n == name).map(|(_, t)| t)
    }

    /// The output of this name, taken out.
    pub fn take(&mut self, name: &str) -> Option<Tensor> {
        let at = self.named.iter().position(|(n, _)| n == name)?;
        Some(self.named.swap_remove(at).1)
    }

    /// All outputs in the order of their declaration.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.named.iter().map(|(n, t)| (n.as_str(), t))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.named.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.named.is_empty()
    }
}

/// Rows of several tensors below each other; a single one is not copied.
pub(super) fn join_rows(mut pieces: Vec<Tensor>) -> Result<Tensor, ExecError> {
    if pieces.len() == 1 {
        return Ok(pieces.swap_remove(0));
    }
    let Some(first) = pieces.first() else {
        return Err(ExecError::NoTokens);
    };
    let n_rows = pieces.iter().map(|t| t.shape().first().copied().unwrap_or(0)).sum();
    let mut joined = Tensor::zeros(first.dtype(), first.shape().with_dim(0, n_rows))?;
    let mut rest = joined.bytes_mut()?;
    for piece in &pieces {
        let bytes = piece.bytes()?;
        let (head, tail) = rest.split_at_mut(bytes.len().min(rest.len()));
        head.copy_from_slice(bytes);
        rest = tail;
    }
    Ok(joined)
}

/// `n` rows from `start`, without a copy.
pub(super) fn cut_rows(tensor: &Tensor, start: usize, n: usize) -> Result<Tensor, ExecError> {
    if start == 0 && tensor.shape().first() == Some(&n) {
        return Ok(tensor.clone());
    }
    Ok(tensor.slice_rows(start..start.saturating_add(n))?)
}

/// These rows, in order.
pub(super) fn pick_rows(tensor: &Tensor, rows: &[usize]) -> Result<Tensor, ExecError> {
    if let [first, .., last] = rows
        && last - first + 1 == rows.len()
    {
        return cut_rows(tensor, *first, rows.len());
    }
    if let [row] = rows {
        return cut_rows(tensor, *row, 1);
    }
    let pieces: Vec<Tensor> = rows.iter().map(|&r| cut_rows(tensor, r, 1)).collect::<Result<_, _>>()?;
    if pieces.is_empty() {
        return Ok(Tensor::zeros(tensor.dtype(), tensor.shape().with_dim(0, 0))?);
    }
    join_rows(pieces)
}

/// Index of the first element that is NaN or infinite.
pub(super) fn first_non_finite(tensor: &Tensor) -> Result<Option<usize>, ExecError> {
    let bytes = tensor.bytes()?;
    fn find<const N: usize>(bytes: &[u8], finite: impl Fn([u8; N]) -> bool) -> Option<usize> {
        bytes.as_chunks::<N>().0.iter().position(|&b| !finite(b))
    }
    // All ones in the exponent.
    let half = |mask: u16| move |b: [u8; 2]| u16::from_le_bytes(b) & mask != mask;
    Ok(match tensor.dtype() {
        DType::F32 => find(bytes, |b| f32::from_le_bytes(b).is_finite()),
        DType::F64 => find(bytes, |b| f64::from_le_bytes(b).is_finite()),
        DType::F16 => find(bytes, half(0x7c00)),
        DType::BF16 => find(bytes, half(0x7f80)),
        _ => None,
    })
}
