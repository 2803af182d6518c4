//! Constant matrices packed into the layout of the best kernel: tiles of 16 output columns, k running inside.

mod format;
mod memory;
#[cfg(test)]
mod tests;

use std::ops::Range;

use glia_core::quant::dequantize;
use glia_core::{BackendError, DType, Precision, Tensor};

pub(crate) use self::format::Format;
use self::format::{Block32, store, unpack};
use self::memory::PackedBytes;
use crate::isa::Isa;
use crate::kernels::{float, int8};

/// The form of a row of activations that a packed matrix takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActKind {
    /// The f32 values themselves.
    F32,
    /// Int8 in blocks of 32, each with a scale and its sum.
    Q8,
}

/// What the prepared rows of a matrix depend on: matrices of equal forms and k share them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ActForm {
    F32,
    Q8 { n_scales: usize, offset: i32 },
}

/// Elements of k that the f32 kernel converts at a time: one 256-element block at most.
const CHUNK_K: usize = 256;

enum Form {
    /// F32, F16 or BF16 as `[tile][k][16]`.
    Float(DType),
    /// Integer codes, as `[tile][k / 32]` blocks of [`Format::block_bytes`].
    Int(Format),
    /// The rows as the file has them, decoded 16 rows by `CHUNK_K` at a time.
    Rows(Tensor),
}

/// A constant matrix of `n` output rows by `k` columns, for `y = x Wᵀ`.
///
/// Each output is computed whole, in one order of k that depends on nothing but the matrix.
pub struct PackedMatrix {
    n: usize,
    k: usize,
    isa: Isa,
    form: Form,
    data: PackedBytes,
}

impl PackedMatrix {
    /// Output columns of a tile.
    pub const TILE: usize = 16;

    /// Packs a weight `[.., n, k]` (leading dimensions are folded into n) and releases its bytes.
    ///
    /// # Errors
    /// [`BackendError::ShapeMismatch`] for a scalar, [`BackendError::UnsupportedOp`] for an instruction set that this
    /// machine lacks, [`BackendError::OutOfMemory`], and device tensors.
    pub fn pack(w: &Tensor, precision: Precision, isa: Isa) -> Result<PackedMatrix, BackendError> {
        if !isa.is_available() {
            let op = format!("{} kernels", isa.name());
            return Err(BackendError::UnsupportedOp {
                backend: "cpu".to_owned(),
                op,
            });
        }
        if w.shape().is_empty() {
            return Err(BackendError::ShapeMismatch {
                op: "MatMul".to_owned(),
                reason: "a weight needs at least one dimension, this one is a scalar".to_owned(),
            });
        }
        let k = w.shape().last_dim();
        let n = w.n_elems().checked_div(k).unwrap_or(0);
        let dtype = w.dtype();
        let bytes = w.bytes()?;
        let tiles = n.div_ceil(Self::TILE);
        let too_large = |needed_bytes| BackendError::OutOfMemory {
            what: format!("a packed {dtype} matrix of {n} x {k}"),
            needed_bytes,
            limit_bytes: isize::MAX as usize,
        };
        let alloc = |per_tile: Option<usize>| {
            let size = per_tile
                .and_then(|b| b.checked_mul(tiles))
                .ok_or_else(|| too_large(usize::MAX))?;
            PackedBytes::zeroed(size).ok_or_else(|| too_large(size))
        };
        let format = Format::of(dtype).filter(|_| precision == Precision::Fast);
        let (form, data) = if let Some(format) = format {
            let mut data = alloc((k / 32).checked_mul(format.block_bytes()))?;
            pack_int(dtype, format, bytes, k, data.as_mut_slice());
            w.release();
            (Form::Int(format), data)
        } else if matches!(dtype, DType::F32 | DType::F16 | DType::BF16) {
            let size = dtype.block_bytes();
            let mut data = alloc(k.checked_mul(16 * size))?;
            pack_float(size, bytes, k, data.as_mut_slice());
            w.release();
            (Form::Float(dtype), data)
        } else {
            (Form::Rows(w.clone()), alloc(Some(0))?)
        };
        Ok(PackedMatrix { n, k, isa, form, data })
    }

    /// Output columns.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Length of an activation row.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Bytes of memory that the packed form takes, beyond the tensor it was made from.
    pub fn size_bytes(&self) -> usize {
        self.data.as_slice().len()
    }

    /// Tiles of [`Self::TILE`] columns; the last may be partial.
    pub fn n_tiles(&self) -> usize {
        self.n.div_ceil(Self::TILE)
    }

    /// The form of activations that [`Self::run`] takes.
    pub fn act(&self) -> ActKind {
        match self.form {
            Form::Int(_) => ActKind::Q8,
            _ => ActKind::F32,
        }
    }

    /// What prepared rows depend on.
    pub(crate) fn act_form(&self) -> ActForm {
        match self.form {
            Form::Int(format) => ActForm::Q8 {
                n_scales: format.n_scales,
                offset: format.offset,
            },
            _ => ActForm::F32,
        }
    }

    /// Bytes of one prepared row: a multiple of 4.
    pub fn act_row_bytes(&self) -> usize {
        match self.form {
            Form::Int(_) => self.k / 32 * int8::ACT_BLOCK,
            _ => self.k * 4,
        }
    }

    /// Prepares one row: the same bytes on every instruction set.
    ///
    /// # Panics
    /// When `x` is not `k` long or `out` not [`Self::act_row_bytes`].
    pub fn prepare_row(&self, x: &[f32], out: &mut [u8]) {
        assert_eq!(
            (x.len(), out.len()),
            (self.k, self.act_row_bytes()),
            "lengths of a row and its prepared form"
        );
        match self.form {
            Form::Int(format) => int8::quantize_row(self.isa, x, format, out),
            _ => out.copy_from_slice(bytemuck::cast_slice(x)),
        }
    }

    /// Columns of `tiles` for `m` prepared rows, to `out[row * out_stride + column]`, plus `bias[column]`.
    ///
    /// # Safety
    /// `out` must be valid for writes of every column of `tiles` (below [`Self::n`]) of `m` rows, and nobody else may
    /// touch those elements meanwhile.
    ///
    /// # Panics
    /// When `acts` is not `m` rows, `tiles` leaves the matrix, or `bias` is not `n` long.
    pub unsafe fn run(
        &self,
        acts: &[u8],
        m: usize,
        tiles: Range<usize>,
        bias: Option<&[f32]>,
        out: *mut f32,
        out_stride: usize,
    ) {
        assert_eq!(
            Some(acts.len()),
            m.checked_mul(self.act_row_bytes()),
            "bytes of the prepared rows"
        );
        assert!(tiles.end <= self.n_tiles(), "tiles {tiles:?} of {}", self.n_tiles());
        assert!(bias.is_none_or(|b| b.len() == self.n), "length of the bias");
        for tile in tiles {
            let first = tile * Self::TILE;
            let cols = (self.n - first).min(Self::TILE);
            let put = |row: usize, acc: &[f32; 16]| {
                let mut values = *acc;
                if let Some(bias) = bias {
                    for (v, b) in values.iter_mut().zip(&bias[first..first + cols]) {
                        *v += b;
                    }
                }
                // SAFETY: `row < m` and `first + cols <= n`: elements that the caller gave us.
                unsafe {
                    std::ptr::copy_nonoverlapping(values.as_ptr(), out.add(row * out_stride + first), cols);
                }
            };
            self.run_tile(acts, m, tile, put);
        }
    }

    fn run_tile(&self, acts: &[u8], m: usize, tile: usize, mut put: impl FnMut(usize, &[f32; 16])) {
        let data = self.data.as_slice();
        match &self.form {
            Form::Int(format) => {
                let size = self.k / 32 * format.block_bytes();
                int8::tile(
                    self.isa,
                    *format,
                    &data[tile * size..(tile + 1) * size],
                    acts,
                    m,
                    &mut put,
                );
            }
            Form::Float(dtype) => {
                let size = self.k * 16 * dtype.block_bytes();
                let tile = &data[tile * size..(tile + 1) * size];
                let step = 16 * dtype.block_bytes();
                float::tile(self.isa, self.k, CHUNK_K, acts, m, &mut put, |ks, out| {
                    float::widen(self.isa, *dtype, &tile[ks.start * step..ks.end * step], out);
                });
            }
            Form::Rows(w) => {
                let Ok(bytes) = w.bytes() else { return };
                float::tile(self.isa, self.k, CHUNK_K, acts, m, &mut put, |ks, out| {
                    self.decode_rows(w.dtype(), bytes, tile, ks, out);
                });
            }
        }
    }

    /// Columns `ks` of the rows of a tile, decoded and transposed to `[k][16]`.
    fn decode_rows(&self, dtype: DType, bytes: &[u8], tile: usize, ks: Range<usize>, out: &mut [f32]) {
        let (elems, size) = dtype.block();
        let row_bytes = self.k / elems * size;
        let mut line = [0f32; CHUNK_K];
        let line = &mut line[..ks.len()];
        for lane in 0..16 {
            let row = tile * 16 + lane;
            line.fill(0.0);
            if row < self.n {
                let at = row * row_bytes;
                let raw = &bytes[at + ks.start / elems * size..at + ks.end / elems * size];
                // Lengths agree by construction: chunks begin and end at whole blocks.
                if dequantize(dtype, raw, line).is_err() {
                    line.fill(f32::NAN);
                }
            }
            for (o, &v) in out.chunks_exact_mut(16).zip(line.iter()) {
                o[lane] = v;
            }
        }
    }

    /// [`Self::run`] over all tiles on f32 rows, checked.
    ///
    /// # Errors
    /// [`BackendError::ShapeMismatch`] when `x` is not `m` rows of `k`, or a bias is not `n` long.
    pub fn matmul(&self, x: &[f32], m: usize, bias: Option<&[f32]>) -> Result<Vec<f32>, BackendError> {
        if m.checked_mul(self.k) != Some(x.len()) || bias.is_some_and(|b| b.len() != self.n) {
            let reason = format!("{} activations for {m} rows of {}, {} outputs", x.len(), self.k, self.n);
            return Err(BackendError::ShapeMismatch {
                op: "MatMul".to_owned(),
                reason,
            });
        }
        let row_bytes = self.act_row_bytes();
        let mut acts = vec![0u8; m * row_bytes];
        for row in 0..m {
            self.prepare_row(&x[row * self.k..][..self.k], &mut acts[row * row_bytes..][..row_bytes]);
        }
        let mut out = vec![0f32; m * self.n];
        // SAFETY: `out` holds `m` rows of `n` and is ours alone.
        unsafe { self.run(&acts, m, 0..self.n_tiles(), bias, out.as_mut_ptr(), self.n) };
        Ok(out)
    }
}

fn pack_int(dtype: DType, format: Format, bytes: &[u8], k: usize, data: &mut [u8]) {
    let (elems, size) = dtype.block();
    let row_bytes = k / elems * size;
    if row_bytes == 0 {
        return;
    }
    let per = elems / 32;
    let mut blocks = [Block32::ZERO; 8];
    let tile_bytes = k / 32 * format.block_bytes();
    for (row, raw) in bytes.chunks_exact(row_bytes).enumerate() {
        let tile = &mut data[row / 16 * tile_bytes..][..tile_bytes];
        for (raw, out) in raw
            .chunks_exact(size)
            .zip(tile.chunks_exact_mut(per * format.block_bytes()))
        {
            unpack(dtype, raw, &mut blocks[..per]);
            for (block, out) in blocks.iter().zip(out.chunks_exact_mut(format.block_bytes())) {
                store(format, row % 16, block, out);
            }
        }
    }
}

fn pack_float(size: usize, bytes: &[u8], k: usize, data: &mut [u8]) {
    if k == 0 {
        return;
    }
    for (row, raw) in bytes.chunks_exact(k * size).enumerate() {
        let tile = &mut data[row / 16 * k * 16 * size..][..k * 16 * size];
        for (v, out) in raw.chunks_exact(size).zip(tile.chunks_exact_mut(16 * size)) {
            out[row % 16 * size..][..size].copy_from_slice(v);
        }
    }
}
