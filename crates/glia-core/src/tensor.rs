//! Tensors: a dtype, a shape and a contiguous run of bytes, cheap to clone.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::storage::{AlignedBytes, ByteSource, Storage};
use crate::{DType, Shape};

/// Why bytes and shape do not make a tensor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// The element count, or its size in bytes, does not fit in `usize`.
    #[error("shape {shape} of {dtype} is too large to address")]
    TooLarge {
        /// Element type asked for.
        dtype: DType,
        /// Shape asked for.
        shape: Shape,
    },
    /// Rows of a quantised dtype must be whole blocks.
    #[error("rows of {shape} are no whole number of {dtype} blocks of {} elements", dtype.block_elems())]
    PartialBlock {
        /// Element type asked for.
        dtype: DType,
        /// Shape asked for.
        shape: Shape,
    },
    /// The data has another length than the shape needs.
    #[error("shape {shape} of {dtype} needs {needed} bytes, got {got}")]
    WrongLength {
        /// Element type asked for.
        dtype: DType,
        /// Shape asked for.
        shape: Shape,
        /// Bytes that the shape needs.
        needed: usize,
        /// Bytes at hand.
        got: usize,
    },
    /// The tensor holds another dtype than the caller asked for.
    #[error("expected {expected}, the tensor holds {got}")]
    WrongDType {
        /// What was asked for.
        expected: DType,
        /// What the tensor holds.
        got: DType,
    },
    /// The tensor lives on a device; download it first.
    #[error("the tensor lives on a device: download it first")]
    NotOnHost,
    /// The bytes are not aligned for the element type.
    #[error("the bytes of this {dtype} tensor are not aligned for it: copy it with `to_owned_aligned`")]
    Unaligned {
        /// Element type of the tensor.
        dtype: DType,
    },
    /// The file behind the bytes cannot be read any more.
    #[error("the bytes of the tensor cannot be read: {reason}")]
    Unreadable {
        /// What the system says.
        reason: String,
    },
}

/// Bytes that a tensor of this type takes; rows (the last dimension) must be whole blocks.
pub fn tensor_bytes(dtype: DType, shape: &Shape) -> Result<usize, TensorError> {
    let too_large = || TensorError::TooLarge { dtype, shape: *shape };
    let n_elems = shape.checked_elems().ok_or_else(too_large)?;
    if !shape.last_dim().is_multiple_of(dtype.block_elems()) {
        return Err(TensorError::PartialBlock { dtype, shape: *shape });
    }
    dtype.size_bytes(n_elems).ok_or_else(too_large)
}

/// An n-dimensional array, rows contiguous, outermost dimension first.
///
/// Clones share the bytes. Memory is owned and aligned to 64 bytes, or a range of a shared [`ByteSource`], or an
/// opaque handle of a device backend.
#[derive(Clone)]
pub struct Tensor {
    dtype: DType,
    shape: Shape,
    storage: Storage,
    offset: usize,
    len: usize,
}

impl Tensor {
    /// All zero bytes.
    ///
    /// # Errors
    /// [`TensorError::TooLarge`], [`TensorError::PartialBlock`].
    pub fn zeros(dtype: DType, shape: impl Into<Shape>) -> Result<Tensor, TensorError> {
        let shape = shape.into();
        let len = tensor_bytes(dtype, &shape)?;
        let storage = Storage::Owned(Arc::new(AlignedBytes::zeroed(len)));
        Ok(Tensor {
            dtype,
            shape,
            storage,
            offset: 0,
            len,
        })
    }

    /// A copy of raw little-endian bytes.
    ///
    /// # Errors
    /// As [`Tensor::zeros`], and [`TensorError::WrongLength`].
    pub fn from_bytes(dtype: DType, shape: impl Into<Shape>, bytes: &[u8]) -> Result<Tensor, TensorError> {
        let shape = shape.into();
        let needed = tensor_bytes(dtype, &shape)?;
        if needed != bytes.len() {
            return Err(TensorError::WrongLength {
                dtype,
                shape,
                needed,
                got: bytes.len(),
            });
        }
        let mut tensor = Tensor::zeros(dtype, shape)?;
        tensor.bytes_mut().expect("fresh host memory").copy_from_slice(bytes);
        Ok(tensor)
    }

    /// A tensor over `source.bytes()[range]`, without a copy.
    ///
    /// # Errors
    /// As [`Tensor::from_bytes`]; a range outside the source is [`TensorError::WrongLength`].
    pub fn shared(
        dtype: DType,
        shape: impl Into<Shape>,
        source: Arc<dyn ByteSource>,
        range: Range<usize>,
    ) -> Result<Tensor, TensorError> {
        let shape = shape.into();
        let needed = tensor_bytes(dtype, &shape)?;
        let inside = range.start <= range.end && range.end <= source.n_bytes();
        let got = if inside { range.len() } else { 0 };
        if needed != got {
            return Err(TensorError::WrongLength {
                dtype,
                shape,
                needed,
                got,
            });
        }
        Ok(Tensor {
            dtype,
            shape,
            storage: Storage::Shared(source),
            offset: range.start,
            len: needed,
        })
    }

    /// A tensor in a device's own memory; `handle` is what its backend understands.
    ///
    /// # Errors
    /// As [`Tensor::zeros`].
    pub fn device(
        dtype: DType,
        shape: impl Into<Shape>,
        handle: Arc<dyn Any + Send + Sync>,
    ) -> Result<Tensor, TensorError> {
        let shape = shape.into();
        let len = tensor_bytes(dtype, &shape)?;
        Ok(Tensor {
            dtype,
            shape,
            storage: Storage::Device(handle),
            offset: 0,
            len,
        })
    }

    /// An F32 tensor of these values.
    ///
    /// # Errors
    /// [`TensorError::WrongLength`] when the shape has another element count.
    pub fn from_f32(shape: impl Into<Shape>, values: &[f32]) -> Result<Tensor, TensorError> {
        Tensor::from_bytes(DType::F32, shape, bytemuck::cast_slice(values))
    }

    /// An I32 tensor of these values.
    ///
    /// # Errors
    /// [`TensorError::WrongLength`] when the shape has another element count.
    pub fn from_i32(shape: impl Into<Shape>, values: &[i32]) -> Result<Tensor, TensorError> {
        Tensor::from_bytes(DType::I32, shape, bytemuck::cast_slice(values))
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Dimensions, outermost first.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Product of the dimensions.
    pub fn n_elems(&self) -> usize {
        self.shape.n_elems()
    }

    /// Bytes of the data.
    pub fn size_bytes(&self) -> usize {
        self.len
    }

    /// The handle given to [`Tensor::device`], if this is a device tensor.
    pub fn device_handle(&self) -> Option<&Arc<dyn Any + Send + Sync>> {
        match &self.storage {
            Storage::Device(handle) => Some(handle),
            _ => None,
        }
    }

    /// That the bytes can be read here, without reading them.
    ///
    /// # Errors
    /// [`TensorError::NotOnHost`].
    pub fn check_on_host(&self) -> Result<(), TensorError> {
        match self.storage {
            Storage::Device(_) => Err(TensorError::NotOnHost),
            _ => Ok(()),
        }
    }

    /// The raw bytes.
    ///
    /// # Errors
    /// [`TensorError::NotOnHost`].
    pub fn bytes(&self) -> Result<&[u8], TensorError> {
        let all = match &self.storage {
            Storage::Owned(bytes) => bytes.as_slice(),
            Storage::Shared(source) => source.bytes(),
            Storage::Device(_) => return Err(TensorError::NotOnHost),
        };
        Ok(&all[self.offset..self.offset + self.len])
    }

    /// What a kernel wrote outside the bytes of this tensor, if its memory is owned and something did.
    #[cfg(feature = "conformance")]
    pub(crate) fn overrun(&self) -> Option<String> {
        let Storage::Owned(bytes) = &self.storage else {
            return None;
        };
        let at = bytes.overrun()?;
        let n = self.len as isize;
        Some(match at < 0 {
            true => format!("{} bytes before its start", -at),
            false => format!("byte {} past its end", at - n),
        })
    }

    /// The raw bytes to write to; copies them first when others share them.
    ///
    /// # Errors
    /// As [`Tensor::fetch`].
    pub fn bytes_mut(&mut self) -> Result<&mut [u8], TensorError> {
        let whole = match &self.storage {
            Storage::Owned(bytes) => self.offset == 0 && self.len == bytes.as_slice().len(),
            _ => false,
        };
        if !whole {
            *self = self.to_owned_aligned()?;
        }
        match &mut self.storage {
            Storage::Owned(bytes) => Ok(Arc::make_mut(bytes).as_mut_slice()),
            _ => unreachable!("made owned above"),
        }
    }

    /// A copy in memory of its own, aligned to 64 bytes.
    ///
    /// # Errors
    /// As [`Tensor::fetch`].
    pub fn to_owned_aligned(&self) -> Result<Tensor, TensorError> {
        const PIECE: usize = 1 << 18;
        let (mut copy, mut buffer) = (AlignedBytes::zeroed(self.len), Vec::new());
        for (i, out) in copy.as_mut_slice().chunks_mut(PIECE).enumerate() {
            let start = i * PIECE;
            out.copy_from_slice(self.fetch(start..start + out.len(), &mut buffer)?);
        }
        Ok(Tensor {
            storage: Storage::Owned(Arc::new(copy)),
            offset: 0,
            ..self.clone()
        })
    }

    fn typed<T: bytemuck::AnyBitPattern>(&self, dtype: DType) -> Result<&[T], TensorError> {
        if self.dtype != dtype {
            return Err(TensorError::WrongDType {
                expected: dtype,
                got: self.dtype,
            });
        }
        bytemuck::try_cast_slice(self.bytes()?).map_err(|_| TensorError::Unaligned { dtype })
    }

    /// The elements of an F32 tensor.
    ///
    /// # Errors
    /// [`TensorError::WrongDType`], [`TensorError::NotOnHost`], [`TensorError::Unaligned`].
    pub fn as_f32(&self) -> Result<&[f32], TensorError> {
        self.typed(DType::F32)
    }

    /// The elements of an I32 tensor. Errors as [`Tensor::as_f32`].
    ///
    /// # Errors
    /// As [`Tensor::as_f32`].
    pub fn as_i32(&self) -> Result<&[i32], TensorError> {
        self.typed(DType::I32)
    }

    /// The elements as F32, whatever the dtype and alignment: quantised blocks are decoded, integers converted by value.
    ///
    /// # Errors
    /// [`TensorError::NotOnHost`], [`TensorError::Unreadable`].
    pub fn to_f32_vec(&self) -> Result<Vec<f32>, TensorError> {
        let bytes = self.bytes()?;
        let mut values = vec![0.0; self.n_elems()];
        crate::quant::dequantize(self.dtype, bytes, &mut values)
            .map_err(|e| TensorError::Unreadable { reason: e.to_string() })?;
        Ok(values)
    }

    /// The elements of an F32 tensor to write to; copies them first when others share them.
    ///
    /// # Errors
    /// [`TensorError::WrongDType`], [`TensorError::NotOnHost`].
    pub fn as_f32_mut(&mut self) -> Result<&mut [f32], TensorError> {
        if self.dtype != DType::F32 {
            return Err(TensorError::WrongDType {
                expected: DType::F32,
                got: self.dtype,
            });
        }
        Ok(bytemuck::cast_slice_mut(self.bytes_mut()?))
    }

    /// The same bytes under another shape of as many elements.
    ///
    /// # Errors
    /// [`TensorError::WrongLength`] when the sizes differ.
    pub fn reshaped(&self, shape: impl Into<Shape>) -> Result<Tensor, TensorError> {
        let shape = shape.into();
        let needed = tensor_bytes(self.dtype, &shape)?;
        if needed != self.len || shape.checked_elems() != self.shape.checked_elems() {
            return Err(TensorError::WrongLength {
                dtype: self.dtype,
                shape,
                needed,
                got: self.len,
            });
        }
        Ok(Tensor { shape, ..self.clone() })
    }

    /// Rows `rows` of the outermost dimension, sharing the bytes. Host and shared memory only.
    ///
    /// # Errors
    /// [`TensorError::NotOnHost`]; [`TensorError::WrongLength`] when the range leaves the tensor or rank is 0.
    pub fn slice_rows(&self, rows: Range<usize>) -> Result<Tensor, TensorError> {
        if self.device_handle().is_some() {
            return Err(TensorError::NotOnHost);
        }
        let n_rows = self.shape.first().copied().unwrap_or(0);
        if rows.start > rows.end || rows.end > n_rows || n_rows == 0 {
            let needed = rows.end;
            return Err(TensorError::WrongLength {
                dtype: self.dtype,
                shape: self.shape,
                needed,
                got: n_rows,
            });
        }
        let row_bytes = self.len / n_rows;
        let shape = self.shape.with_dim(0, rows.len());
        let (offset, len) = (self.offset + rows.start * row_bytes, rows.len() * row_bytes);
        Ok(Tensor {
            shape,
            offset,
            len,
            ..self.clone()
        })
    }

    /// The bytes of `range`, for a reader that needs them once; `buffer` may be used to hold them. See
    /// [`ByteSource::fetch`].
    ///
    /// # Errors
    /// [`TensorError::NotOnHost`]; [`TensorError::Unreadable`] when the range leaves the tensor or the file fails.
    pub fn fetch<'a>(&'a self, range: Range<usize>, buffer: &'a mut Vec<u8>) -> Result<&'a [u8], TensorError> {
        if range.start > range.end || range.end > self.len {
            return Err(TensorError::Unreadable {
                reason: format!("bytes {range:?} of {}", self.len),
            });
        }
        match &self.storage {
            Storage::Owned(bytes) => Ok(&bytes.as_slice()[self.offset + range.start..self.offset + range.end]),
            Storage::Shared(source) => source
                .fetch(self.offset + range.start..self.offset + range.end, buffer)
                .map_err(|e| TensorError::Unreadable { reason: e.to_string() }),
            Storage::Device(_) => Err(TensorError::NotOnHost),
        }
    }

    /// Passes on to the byte source that these bytes will not be read soon. See [`ByteSource::release`].
    pub fn release(&self) {
        if let Storage::Shared(source) = &self.storage {
            source.release(self.offset..self.offset + self.len);
        }
    }

    /// Whether the bytes belong to a shared [`ByteSource`] such as a memory map.
    pub fn is_shared_source(&self) -> bool {
        matches!(self.storage, Storage::Shared(_))
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match self.storage {
            Storage::Owned(_) => "owned",
            Storage::Shared(_) => "shared",
            Storage::Device(_) => "device",
        };
        write!(f, "Tensor({} {} {place})", self.dtype, self.shape)
    }
}
