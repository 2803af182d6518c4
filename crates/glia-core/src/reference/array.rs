//! Tensors as f64, and back.

use crate::{BackendError, DType, Shape, Tensor, read_ints};

/// A shape and its elements in f64.
pub(super) struct Array {
    pub shape: Shape,
    pub data: Vec<f64>,
}

impl Array {
    /// The elements by value; exact for every dtype but integers above 2^53.
    pub fn load(op: &str, tensor: &Tensor) -> Result<Array, BackendError> {
        let shape = *tensor.shape();
        let data = match tensor.dtype() {
            DType::F64 => tensor
                .bytes()?
                .as_chunks()
                .0
                .iter()
                .map(|&b| f64::from_le_bytes(b))
                .collect(),
            dtype if dtype.is_int() => read_ints(op, tensor)?.into_iter().map(|v| v as f64).collect(),
            dtype => {
                let mut values = vec![0f32; tensor.n_elems()];
                crate::quant::dequantize(dtype, tensor.bytes()?, &mut values)
                    .map_err(|e| BackendError::invalid(op, e.to_string()))?;
                values.into_iter().map(f64::from).collect()
            }
        };
        Ok(Array { shape, data })
    }

    /// Elements outside `axis`, along it, and inside it: element `(o, i, n)` is at `(o * len + i) * inner + n`.
    pub fn split_at(&self, axis: usize) -> (usize, usize, usize) {
        let dims = self.shape.dims();
        (
            dims[..axis].iter().product(),
            dims[axis],
            dims[axis + 1..].iter().product(),
        )
    }
}

/// Rounds to a plain dtype: floats to nearest even, floats to integers to nearest even and saturating.
pub(super) fn store(dtype: DType, shape: Shape, data: &[f64]) -> Result<Tensor, BackendError> {
    fn put<const N: usize>(data: &[f64], bytes: &mut [u8], write: impl Fn(f64) -> [u8; N]) {
        for (b, &v) in bytes.as_chunks_mut::<N>().0.iter_mut().zip(data) {
            *b = write(v);
        }
    }
    let mut tensor = Tensor::zeros(dtype, shape)?;
    let bytes = tensor.bytes_mut()?;
    match dtype {
        DType::F32 => put(data, bytes, |v| (v as f32).to_le_bytes()),
        DType::F64 => put(data, bytes, f64::to_le_bytes),
        DType::F16 => put(data, bytes, |v| half::f16::from_f64(v).to_le_bytes()),
        DType::BF16 => put(data, bytes, |v| half::bf16::from_f64(v).to_le_bytes()),
        DType::I8 => put(data, bytes, |v| (v.round_ties_even() as i8).to_le_bytes()),
        DType::I16 => put(data, bytes, |v| (v.round_ties_even() as i16).to_le_bytes()),
        DType::I32 => put(data, bytes, |v| (v.round_ties_even() as i32).to_le_bytes()),
        DType::I64 => put(data, bytes, |v| (v.round_ties_even() as i64).to_le_bytes()),
        DType::U8 => put(data, bytes, |v| [v.round_ties_even() as u8]),
        DType::Bool => put(data, bytes, |v| [u8::from(v != 0.0)]),
        _ => {
            return Err(BackendError::invalid(
                "cast",
                format!("{dtype} is the work of a quantiser"),
            ));
        }
    }
    Ok(tensor)
}

/// Conversion of dtype; between integers without a detour over floats.
pub(super) fn cast(x: &Tensor, to: DType) -> Result<Tensor, BackendError> {
    if x.dtype() == to {
        return Ok(x.clone());
    }
    if !(x.dtype() == DType::I64 && to.is_int()) {
        return store(to, *x.shape(), &Array::load("cast", x)?.data);
    }
    // The targets are narrower: after clamping, every value is exact in f64.
    let (min, max) = match to {
        DType::I8 => (i8::MIN.into(), i8::MAX.into()),
        DType::I16 => (i16::MIN.into(), i16::MAX.into()),
        DType::U8 => (0, u8::MAX.into()),
        _ => (i64::from(i32::MIN), i64::from(i32::MAX)),
    };
    let data: Vec<f64> = read_ints("cast", x)?
        .into_iter()
        .map(|v: i64| v.clamp(min, max) as f64)
        .collect();
    store(to, *x.shape(), &data)
}
