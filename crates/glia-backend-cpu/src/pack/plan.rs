//! The packed form of a matrix before its memory exists: which form, how many bytes, and the filling of a few tiles.

use std::ops::Range;

use glia_core::quant::dequantize;
use glia_core::{BackendError, DType, Precision, Shape};

use super::format::Format;
use super::{ActForm, PackedMatrix, Store, coded, units};
use crate::isa::Isa;
use crate::kernels::float::CHUNK_K;
use crate::kernels::pairs::{PAIR_BYTES, n_pairs};
use crate::kernels::runs::Kind;
use crate::simd::Level;

/// How a matrix is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// F32, F16 or BF16 as `[tile][k][16]`.
    Float(DType),
    /// BF16 as `[tile][pair of k][16][2]`.
    Pairs,
    /// Integer codes, as tiles of units of [`Format::unit_bytes`].
    Int(Format),
    /// Codes that are decoded to bytes as they are used: blocks of 16 rows side by side, or the rows of the file.
    Coded { kind: Kind, exact: bool },
    /// Numbers of other types, in the file's rows: widened to f32 as they are used.
    Rows,
}

/// Geometry of a packed matrix of `n` rows by `k` columns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub n: usize,
    pub k: usize,
    pub dtype: DType,
    pub form: Form,
    pub store: Store,
    /// Bytes of a tile of 16 rows when it is packed; 0 for forms that read the file's rows.
    pub tile_bytes: usize,
    /// Bytes of a row in the file.
    pub row_bytes: usize,
}

impl Plan {
    /// A plan for a weight `[.., n, k]`; leading dimensions are folded into n.
    ///
    /// # Errors
    /// [`BackendError::ShapeMismatch`] for a scalar, [`BackendError::OutOfMemory`] for sizes beyond an address space.
    pub(super) fn new(
        dtype: DType,
        shape: &Shape,
        precision: Precision,
        isa: Isa,
        store: Store,
    ) -> Result<Plan, BackendError> {
        if shape.is_empty() {
            return Err(BackendError::ShapeMismatch {
                op: "MatMul".to_owned(),
                reason: "a weight needs at least one dimension, this one is a scalar".to_owned(),
            });
        }
        let k = shape.last_dim();
        let n: usize = shape[..shape.rank() - 1].iter().product();
        let format = Format::of(dtype, precision);
        let form = match (format, coded::kind(dtype), dtype) {
            (Some(format), ..) => Form::Int(format),
            (None, Some(kind), _) => Form::Coded {
                kind,
                exact: precision == Precision::Exact,
            },
            (None, None, DType::BF16) if isa.has_bf16() && precision == Precision::Fast => Form::Pairs,
            (None, None, DType::F32 | DType::F16 | DType::BF16) => Form::Float(dtype),
            _ => Form::Rows,
        };
        let tile_bytes = match form {
            Form::Int(format) => format.tile_bytes(k),
            Form::Float(dtype) => k.checked_mul(PackedMatrix::TILE * dtype.block_bytes()),
            Form::Pairs => n_pairs(k).checked_mul(PackedMatrix::TILE * PAIR_BYTES),
            Form::Coded { .. } => (k / dtype.block_elems()).checked_mul(coded::block_bytes(dtype)),
            Form::Rows => Some(0),
        };
        let total = tile_bytes.and_then(|b| b.checked_mul(n.div_ceil(PackedMatrix::TILE)));
        let (Some(tile_bytes), Some(_)) = (tile_bytes, total) else {
            return Err(too_large(dtype, n, k, usize::MAX));
        };
        let (elems, size) = dtype.block();
        Ok(Plan {
            n,
            k,
            dtype,
            form,
            store: if tile_bytes == 0 { Store::Mapped } else { store },
            tile_bytes,
            row_bytes: k / elems * size,
        })
    }

    pub(super) fn n_tiles(&self) -> usize {
        self.n.div_ceil(PackedMatrix::TILE)
    }

    /// Bytes of the packed form.
    pub(super) fn bytes(&self) -> usize {
        match self.store {
            Store::Packed => self.n_tiles() * self.tile_bytes,
            Store::Mapped => 0,
        }
    }

    pub(super) fn act_form(&self) -> ActForm {
        match self.form {
            Form::Int(format) if !format.exact => ActForm::Q8 {
                n_scales: format.n_scales,
                offset: format.offset,
            },
            Form::Coded { exact: false, .. } => ActForm::Q8 {
                n_scales: coded::ACTS.n_scales,
                offset: coded::ACTS.offset,
            },
            Form::Pairs => ActForm::Bf16,
            _ => ActForm::F32,
        }
    }

    /// Bytes of the file that the rows of `tiles` take.
    pub(super) fn source(&self, tiles: Range<usize>) -> Range<usize> {
        let row = |tile: usize| (tile * PackedMatrix::TILE).min(self.n) * self.row_bytes;
        row(tiles.start)..row(tiles.end)
    }

    /// Packs some tiles: `source` is what [`Plan::source`] says, `out` their zeroed bytes.
    pub(super) fn fill(&self, level: Level, source: &[u8], out: &mut [u8]) {
        if self.row_bytes == 0 || self.tile_bytes == 0 {
            return;
        }
        let rows = source.chunks(self.row_bytes * PackedMatrix::TILE);
        for (rows, tile) in rows.zip(out.chunks_exact_mut(self.tile_bytes)) {
            match self.form {
                Form::Int(_) => units::fill(level, self.dtype, rows, self.row_bytes, tile),
                Form::Float(dtype) => match dtype.block_bytes() {
                    4 => transpose::<4>(rows, self.row_bytes, tile),
                    _ => transpose::<2>(rows, self.row_bytes, tile),
                },
                Form::Pairs => transpose::<PAIR_BYTES>(rows, self.row_bytes, tile),
                Form::Coded { .. } => coded::pack(self.dtype, rows, self.row_bytes, tile),
                Form::Rows => {}
            }
        }
    }
}

impl Plan {
    /// Columns `ks` of up to 16 rows of single numbers as `[k][16]` f32.
    pub(super) fn widen(&self, rows: &[u8], ks: Range<usize>, out: &mut [f32]) {
        let size = self.dtype.block_bytes();
        let mut line = [0f32; CHUNK_K];
        let line = &mut line[..ks.len()];
        out.fill(0.0);
        for (lane, row) in rows.chunks_exact(self.row_bytes).enumerate() {
            // Lengths agree by construction.
            if dequantize(self.dtype, &row[ks.start * size..ks.end * size], line).is_err() {
                line.fill(f32::NAN);
            }
            for (o, &v) in out.chunks_exact_mut(PackedMatrix::TILE).zip(line.iter()) {
                o[lane] = v;
            }
        }
    }
}

/// Rows of elements of `SIZE` bytes to `[element][16]`. What is left at the end of a row becomes the first bytes of an
/// element of its own, the others of which are as they were.
fn transpose<const SIZE: usize>(rows: &[u8], row_bytes: usize, tile: &mut [u8]) {
    // A strip of columns at a time, so that the strip's lines of the tile stay in the first-level cache.
    const STRIP: usize = 64;
    let (tile, _) = tile.as_chunks_mut::<SIZE>();
    let n = row_bytes / SIZE;
    for first in (0..n).step_by(STRIP) {
        let last = n.min(first + STRIP);
        for (lane, row) in rows.chunks_exact(row_bytes).enumerate() {
            let row = &row.as_chunks::<SIZE>().0[first..last];
            let out = tile[first * PackedMatrix::TILE + lane..]
                .iter_mut()
                .step_by(PackedMatrix::TILE);
            for (v, out) in row.iter().zip(out) {
                *out = *v;
            }
        }
    }
    let ends = tile[n * PackedMatrix::TILE..].iter_mut();
    for (row, end) in rows.chunks_exact(row_bytes).zip(ends) {
        let rest = row.as_chunks::<SIZE>().1;
        end[..rest.len()].copy_from_slice(rest);
    }
}

pub(super) fn too_large(dtype: DType, n: usize, k: usize, needed_bytes: usize) -> BackendError {
    BackendError::OutOfMemory {
        what: format!("a packed {dtype} matrix of {n} x {k}"),
        needed_bytes,
        limit_bytes: isize::MAX as usize,
    }
}
