//! Rows of one part of a KV cache: contiguous, growing by doubling, copied only when written to while shared.

use crate::{BackendError, DType, Shape, Tensor};
use half::{bf16, f16};

/// All rows of one part, with room for more. The length is kept by the sequence: rows beyond it are tentative.
#[derive(Clone, Default)]
pub(super) struct Rows {
    /// `[capacity, ..row]`; `None` before the first append. Clones share it until one of them is written to.
    store: Option<Tensor>,
}

impl Rows {
    /// Bytes held and where, so that shared stores are counted once.
    pub fn held(&self) -> Option<(*const u8, usize)> {
        let bytes = self.store.as_ref()?.bytes().ok()?;
        Some((bytes.as_ptr(), bytes.len()))
    }

    /// Bytes that an append of `n` rows at `len` would allocate.
    pub fn growth_bytes(&self, len: usize, new: &Tensor, max_rows: usize) -> usize {
        let n = new.shape().first().copied().unwrap_or(0);
        let needed = len.saturating_add(n);
        if needed <= self.capacity() || n == 0 {
            return 0;
        }
        (new.size_bytes() / n).saturating_mul(grown(needed, max_rows))
    }

    fn capacity(&self) -> usize {
        self.store
            .as_ref()
            .and_then(|s| s.shape().first().copied())
            .unwrap_or(0)
    }

    /// Writes `new` behind row `len`, in place unless the store must grow or is shared, and returns all rows.
    pub fn append(&mut self, len: usize, new: &Tensor, max_rows: usize) -> Result<Tensor, BackendError> {
        let n = new.shape().first().copied().unwrap_or(0);
        let total = len.saturating_add(n);
        if total > self.capacity() || self.store.is_none() {
            let shape = new.shape().with_dim(0, grown(total, max_rows));
            let mut store = Tensor::zeros(new.dtype(), shape)?;
            if let Some(old) = &self.store
                && len > 0
            {
                let old = old.slice_rows(0..len)?;
                store.bytes_mut()?[..old.size_bytes()].copy_from_slice(old.bytes()?);
            }
            self.store = Some(store);
        }
        let Some(store) = &mut self.store else {
            return Err(BackendError::invalid("kv_cache", "no storage"));
        };
        if store.dtype() != new.dtype() || store.shape().get(1..) != new.shape().get(1..) {
            let reason = format!(
                "rows of {} {} after {} {}",
                new.dtype(),
                new.shape(),
                store.dtype(),
                store.shape()
            );
            return Err(BackendError::shape("kv_cache", reason));
        }
        if let Some(row_bytes) = new.size_bytes().checked_div(n) {
            store.bytes_mut()?[len * row_bytes..total * row_bytes].copy_from_slice(new.bytes()?);
        }
        if store.shape()[0] == 0 {
            return Ok(store.clone());
        }
        Ok(store.slice_rows(0..total)?)
    }
}

/// Capacity for `needed` rows: doubling keeps appends O(new rows), the context bounds it.
fn grown(needed: usize, max_rows: usize) -> usize {
    needed
        .checked_next_power_of_two()
        .unwrap_or(needed)
        .max(16)
        .min(max_rows.max(needed))
}

/// Whether [`round_through`] knows this storage dtype for rows of this shape.
pub(super) fn can_round(dtype: DType, row: &[usize]) -> bool {
    match dtype {
        DType::F32 | DType::F16 | DType::BF16 => true,
        DType::Q8_0 => row.last().is_some_and(|d| d.is_multiple_of(32)),
        _ => false,
    }
}

/// F32 values as they read back from a cache of `dtype`: the interpreter keeps F32, with the storage's rounding.
pub(super) fn round_through(dtype: DType, tensor: &Tensor) -> Result<Tensor, BackendError> {
    if dtype == DType::F32 || tensor.dtype() != DType::F32 {
        return Ok(tensor.clone());
    }
    let mut out = Tensor::zeros(DType::F32, *tensor.shape() as Shape)?;
    out.bytes_mut()?.copy_from_slice(tensor.bytes()?);
    let values = out.as_f32_mut()?;
    match dtype {
        DType::F16 => values.iter_mut().for_each(|v| *v = f16::from_f32(*v).to_f32()),
        DType::BF16 => values.iter_mut().for_each(|v| *v = bf16::from_f32(*v).to_f32()),
        DType::Q8_0 => {
            for block in values.as_chunks_mut::<32>().0 {
                let most = block.iter().fold(0f32, |m, v| m.max(v.abs()));
                let scale = most / 127.0;
                let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
                let stored = f16::from_f32(scale).to_f32();
                block.iter_mut().for_each(|v| *v = (*v * inverse).round() * stored);
            }
        }
        _ => return Err(BackendError::invalid("kv_cache", format!("no cache of {dtype}"))),
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(values: &[f32]) -> Tensor {
        Tensor::from_f32([values.len(), 1], values).unwrap()
    }

    #[test]
    fn appends_stay_in_place_until_shared() {
        let mut a = Rows::default();
        assert_eq!(
            a.append(0, &rows(&[1.0, 2.0]), 100).unwrap().as_f32().unwrap(),
            [1.0, 2.0]
        );
        let before = a.held();
        assert_eq!(
            a.append(2, &rows(&[3.0]), 100).unwrap().as_f32().unwrap(),
            [1.0, 2.0, 3.0]
        );
        assert_eq!(a.held(), before);

        let mut b = a.clone();
        assert_eq!(b.held(), before);
        assert_eq!(b.append(1, &rows(&[9.0]), 100).unwrap().as_f32().unwrap(), [1.0, 9.0]);
        assert_ne!(b.held(), before);
        assert_eq!(
            a.append(3, &rows(&[4.0]), 100).unwrap().as_f32().unwrap(),
            [1.0, 2.0, 3.0, 4.0]
        );
    }

    #[test]
    fn a_returned_view_is_never_overwritten() {
        let mut a = Rows::default();
        let view = a.append(0, &rows(&[1.0]), 100).unwrap();
        a.append(0, &rows(&[2.0]), 100).unwrap();
        assert_eq!(view.as_f32().unwrap(), [1.0]);
    }

    #[test]
    fn growth_is_bounded_by_the_context() {
        let mut a = Rows::default();
        for len in 0..40 {
            a.append(len, &rows(&[len as f32]), 40).unwrap();
        }
        assert_eq!(a.capacity(), 40);
    }

    #[test]
    fn rounding_is_that_of_the_storage() {
        let x = Tensor::from_f32([32], &[0.1; 32]).unwrap();
        assert_eq!(
            round_through(DType::F16, &x).unwrap().as_f32().unwrap()[0],
            f16::from_f32(0.1).to_f32()
        );
        let q = round_through(DType::Q8_0, &x).unwrap().as_f32().unwrap()[5];
        assert!((q - 0.1).abs() < 1e-4);
        assert_eq!(round_through(DType::F32, &x).unwrap().as_f32().unwrap()[0], 0.1);
        assert!(!can_round(DType::Q8_0, &[33]) && !can_round(DType::Q4_0, &[32]));
    }
}
