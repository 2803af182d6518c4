//! Weights in the form that kernels read: codes in words, natural order of k, scales apart behind them. A row of a
//! matrix stays whole; a matrix that no binding holds is cut into parts of rows.

mod blocks;
mod codebook;
mod format;
mod magnitude;
mod matrix;

pub(crate) use format::{Format, Scale};
pub(crate) use matrix::{Matrices, Matrix, Part};

use glia_core::{BackendError, DType, Tensor, quant};

/// The elements of a tensor as F32 or I32 words, whatever its dtype.
///
/// # Errors
/// For dtypes that are neither float nor quantised nor integer of up to 32 bits, and what reading says.
pub(crate) fn plain_words(tensor: &Tensor) -> Result<Vec<u32>, BackendError> {
    let dtype = tensor.dtype();
    if dtype.is_int() {
        let narrow = |v: i64| {
            i32::try_from(v).map_err(|_| BackendError::InvalidInput {
                op: "weight".to_owned(),
                reason: format!("{v} does not fit in 32 bits"),
            })
        };
        let ints = glia_core::read_ints("weight", tensor)?;
        return ints.into_iter().map(|v| Ok(narrow(v)? as u32)).collect();
    }
    if dtype == DType::F64 {
        return Err(BackendError::UnsupportedDtype {
            backend: crate::gpu::NAME.to_owned(),
            op: "weight".to_owned(),
            dtype,
        });
    }
    Ok(bytemuck::cast_vec(decode(dtype, tensor.bytes()?, tensor.n_elems())?))
}

/// Whole blocks as F32.
fn decode(dtype: DType, bytes: &[u8], n_elems: usize) -> Result<Vec<f32>, BackendError> {
    let mut values = vec![0f32; n_elems];
    quant::dequantize(dtype, bytes, &mut values).map_err(|e| BackendError::Other(Box::new(e)))?;
    Ok(values)
}
