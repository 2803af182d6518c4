//! Constant matrices packed into the layout of the best kernel: tiles of 16 output columns, k running inside.

mod all;
mod coded;
mod format;
#[cfg(test)]
mod one_by_one;
mod plan;
mod region;
#[cfg(test)]
mod tests;
mod units;
#[cfg(test)]
mod wild;

use std::cell::Cell;
use std::ops::Range;

use glia_core::{BackendError, Precision, Tensor};

pub(crate) use self::all::pack_all;
use self::coded::Source;
pub(crate) use self::format::{Format, PackedRun, Scales};
use self::plan::{Form, Plan};
use self::region::PackedBytes;
use crate::isa::Isa;
use crate::kernels::int8::Panels;
use crate::kernels::runs::{RUNS, Run};
use crate::kernels::{exact, float, int8, pairs, runs};
use crate::simd::Level;

/// The form of a row of activations that a packed matrix takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActKind {
    /// The f32 values themselves.
    F32,
    /// Int8 in blocks of 32, each with a scale and its sum.
    Q8,
    /// BF16, two numbers side by side.
    Bf16,
}

/// What the prepared rows of a matrix depend on: matrices of equal forms and k share them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ActForm {
    F32,
    Q8 { n_scales: usize, offset: i32 },
    Bf16,
}

/// Where the codes of a matrix are when a step needs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    /// In memory of their own, packed.
    Packed,
    /// In the file's rows: tiles are packed as they are used.
    Mapped,
}

/// A constant matrix of `n` output rows by `k` columns, for `y = x Wᵀ`.
///
/// Each output is computed whole, in one order of k that depends on nothing but the matrix.
pub struct PackedMatrix {
    plan: Plan,
    /// That of the kernels: one with BF16 only where its products are.
    isa: Isa,
    /// The file's rows, where they are decoded as they are needed.
    rows: Option<Tensor>,
    data: PackedBytes,
}

thread_local! {
    /// The tile that a thread packs as it is used; grown to the largest, its contents are arbitrary.
    static TILE_MEMORY: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Refuses an instruction set that this machine lacks.
fn check_isa(isa: Isa) -> Result<(), BackendError> {
    if isa.is_available() {
        return Ok(());
    }
    let op = format!("{} kernels", isa.name());
    Err(BackendError::UnsupportedOp {
        backend: "cpu".to_owned(),
        op,
    })
}

impl PackedMatrix {
    /// Output columns of a tile.
    pub const TILE: usize = 16;

    /// Packs a weight `[.., n, k]` (leading dimensions are folded into n).
    ///
    /// # Errors
    /// [`BackendError::ShapeMismatch`] for a scalar, [`BackendError::UnsupportedOp`] for an instruction set that this
    /// machine lacks, [`BackendError::OutOfMemory`], and device tensors.
    pub fn pack(w: &Tensor, precision: Precision, isa: Isa) -> Result<PackedMatrix, BackendError> {
        PackedMatrix::stored(w, precision, isa, Store::Packed)
    }

    /// As [`Self::pack`], but keeps the rows of the weight and packs each tile as it is used: the same bits, slower.
    ///
    /// # Errors
    /// As [`Self::pack`].
    pub fn keep_mapped(w: &Tensor, precision: Precision, isa: Isa) -> Result<PackedMatrix, BackendError> {
        PackedMatrix::stored(w, precision, isa, Store::Mapped)
    }

    fn stored(w: &Tensor, precision: Precision, isa: Isa, store: Store) -> Result<PackedMatrix, BackendError> {
        let mut here = |n: usize, job: all::Job<'_>| (0..n).for_each(job);
        let mut packed = pack_all(std::slice::from_ref(w), precision, isa, store, &mut here).map_err(|(_, e)| e)?;
        Ok(packed.remove(0))
    }

    fn new(plan: Plan, isa: Isa, rows: Option<Tensor>, data: PackedBytes) -> PackedMatrix {
        let isa = if plan.form == Form::Pairs {
            isa
        } else {
            isa.without_bf16()
        };
        PackedMatrix { plan, isa, rows, data }
    }

    /// Output columns.
    pub fn n(&self) -> usize {
        self.plan.n
    }

    /// Length of an activation row.
    pub fn k(&self) -> usize {
        self.plan.k
    }

    /// Bytes of memory that the packed form takes, beyond the tensor it was made from.
    pub fn size_bytes(&self) -> usize {
        self.data.len()
    }

    /// Tiles of [`Self::TILE`] columns; the last may be partial.
    pub fn n_tiles(&self) -> usize {
        self.plan.n_tiles()
    }

    /// The form of activations that [`Self::run`] takes.
    pub fn act(&self) -> ActKind {
        match self.act_form() {
            ActForm::Q8 { .. } => ActKind::Q8,
            ActForm::F32 => ActKind::F32,
            ActForm::Bf16 => ActKind::Bf16,
        }
    }

    /// What prepared rows depend on.
    pub(crate) fn act_form(&self) -> ActForm {
        self.plan.act_form()
    }

    /// Bytes of one prepared row: a multiple of 4.
    pub fn act_row_bytes(&self) -> usize {
        match self.act() {
            ActKind::Q8 => self.plan.k / 32 * int8::ACT_BLOCK,
            ActKind::F32 => self.plan.k * 4,
            ActKind::Bf16 => pairs::n_pairs(self.plan.k) * pairs::PAIR_BYTES,
        }
    }

    /// Prepares `m` rows: the same bytes on every instruction set that takes this form.
    ///
    /// # Panics
    /// When `x` is not `m` rows of `k`, or `out` not as many of [`Self::act_row_bytes`].
    pub fn prepare(&self, x: &[f32], m: usize, out: &mut [u8]) {
        let sizes = (m.checked_mul(self.plan.k), m.checked_mul(self.act_row_bytes()));
        assert_eq!(
            sizes,
            (Some(x.len()), Some(out.len())),
            "lengths of rows and their prepared form"
        );
        let panels = Panels::of(m);
        for rows in (0..panels.len()).map(|i| panels.rows(i)) {
            let (k, size) = (self.plan.k, self.act_row_bytes());
            let x = &x[rows.start * k..rows.end * k];
            self.prepare_panel(x, rows.len(), &mut out[rows.start * size..rows.end * size]);
        }
    }

    /// Prepares the rows of one of the [`Panels`].
    pub(crate) fn prepare_panel(&self, x: &[f32], rows: usize, out: &mut [u8]) {
        match self.plan.form {
            Form::Int(format) if !format.exact => int8::quantize_panel(self.isa, x, rows, format, out),
            Form::Coded { exact: false, .. } => int8::quantize_panel(self.isa, x, rows, coded::ACTS, out),
            Form::Pairs => pairs::round(self.isa, x, self.plan.k, out),
            _ => out.copy_from_slice(bytemuck::cast_slice(x)),
        }
    }

    /// Columns of `tiles` for `m` rows as [`Self::prepare`] leaves them, to `out[row * out_stride + column]`, plus
    /// `bias[column]`.
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
        assert!(bias.is_none_or(|b| b.len() == self.plan.n), "length of the bias");
        let put = |row: usize, tile: usize, acc: &[f32; 16]| {
            let first = tile * Self::TILE;
            let cols = (self.plan.n - first).min(Self::TILE);
            let mut values = *acc;
            if let Some(bias) = bias {
                for (v, b) in values.iter_mut().zip(&bias[first..first + cols]) {
                    *v += b;
                }
            }
            // SAFETY: `row < m` and `first + cols <= n`: elements that the caller gave us.
            unsafe {
                let out = out.add(row * out_stride + first);
                if cols == Self::TILE {
                    // As an array: the compiler would make one call for both, of a length that it does not know.
                    out.cast::<[f32; Self::TILE]>().write_unaligned(values);
                } else {
                    std::ptr::copy_nonoverlapping(values.as_ptr(), out, cols);
                }
            }
        };
        // Any address may be asked for.
        let ask = |row: usize, tile: usize| crate::simd::ask(out.wrapping_add(row * out_stride + tile * Self::TILE));
        self.run_tiles(acts, m, tiles, ask, put);
    }

    /// `put(row, tile, values)` takes the results; `ask(row, tile)` asks for the memory of some that come soon.
    fn run_tiles(
        &self,
        acts: &[u8],
        m: usize,
        tiles: Range<usize>,
        ask: impl Fn(usize, usize),
        mut put: impl FnMut(usize, usize, &[f32; 16]),
    ) {
        let Plan { k, tile_bytes, .. } = self.plan;
        if k == 0 {
            let all = tiles.flat_map(|tile| (0..m).map(move |row| (row, tile)));
            return all.for_each(|(row, tile)| put(row, tile, &[0.0; 16]));
        }
        let is_whole = matches!(self.plan.form, Form::Float(_) | Form::Pairs | Form::Int(_));
        if self.plan.store == Store::Mapped && is_whole {
            // Zeroed for each tile: packing sets bits, and leaves the lanes of absent rows.
            let mut tile_memory = TILE_MEMORY.take();
            for tile in tiles {
                tile_memory.clear();
                tile_memory.resize(tile_bytes, 0);
                self.plan
                    .fill(Level::of(self.isa), self.file_rows(tile), &mut tile_memory);
                self.packed_tiles(&tile_memory, acts, m, tile..tile + 1, &ask, &mut put);
            }
            TILE_MEMORY.set(tile_memory);
            return;
        }
        let packed = match self.plan.store {
            Store::Packed => &self.data.as_slice()[tiles.start * tile_bytes..tiles.end * tile_bytes],
            Store::Mapped => &[],
        };
        self.packed_tiles(packed, acts, m, tiles, &ask, &mut put);
    }

    /// [`Self::run_tiles`] on the packed bytes of `tiles`; forms that can do without take none from a mapped matrix.
    fn packed_tiles(
        &self,
        data: &[u8],
        acts: &[u8],
        m: usize,
        tiles: Range<usize>,
        ask: &impl Fn(usize, usize),
        put: &mut impl FnMut(usize, usize, &[f32; 16]),
    ) {
        let Plan { k, tile_bytes, .. } = self.plan;
        let first = tiles.start;
        match self.plan.form {
            Form::Float(dtype) => {
                let mut put = |row: usize, tile: usize, values: &[f32; 16]| put(row, first + tile, values);
                float::tiles(self.isa, dtype, data, k, acts, m, &mut put);
            }
            Form::Pairs => {
                let mut put = |row: usize, tile: usize, values: &[f32; 16]| put(row, first + tile, values);
                pairs::tiles(self.isa, data, k, acts, m, &mut put);
            }
            Form::Int(format) if format.exact => {
                for (data, tile) in data.chunks_exact(tile_bytes).zip(tiles) {
                    let put = &mut |row: usize, values: &[f32; 16]| put(row, tile, values);
                    exact::tile(Level::of(self.isa), format, data, acts, m, put);
                }
            }
            Form::Int(format) => {
                let mut put = |row: usize, tile: usize, values: &[f32; 16]| put(row, first + tile, values);
                let ask = |row: usize, tile: usize| ask(row, first + tile);
                int8::tiles(self.isa, format, (data, tile_bytes), acts, m, &ask, &mut put);
            }
            Form::Coded { kind, exact } => {
                let (level, dtype) = (Level::of(self.isa), self.plan.dtype);
                for tile in tiles {
                    let source = if self.plan.store == Store::Mapped {
                        Source::Rows(self.file_rows(tile), self.plan.row_bytes)
                    } else {
                        Source::Packed(&data[(tile - first) * tile_bytes..][..tile_bytes])
                    };
                    let mut put = |row: usize, values: &[f32; 16]| put(row, tile, values);
                    if exact {
                        float::tile(self.isa, k, acts, m, &mut put, |ks, out| {
                            let mut some = [Run::ZERO; RUNS];
                            let some = &mut some[..ks.len() / 32];
                            coded::decode(level, dtype, source, ks.start / 32..ks.end / 32, some);
                            runs::columns(level, kind, some, out);
                        });
                    } else {
                        runs::tile(self.isa, kind, k, acts, m, &mut put, |range, out| {
                            coded::decode(level, dtype, source, range, out);
                        });
                    }
                }
            }
            Form::Rows => {
                for tile in tiles {
                    let mut put = |row: usize, values: &[f32; 16]| put(row, tile, values);
                    let rows = self.file_rows(tile);
                    float::tile(self.isa, k, acts, m, &mut put, |ks, out| self.plan.widen(rows, ks, out));
                }
            }
        }
    }

    /// The bytes of a tile's rows where they are not packed.
    fn file_rows(&self, tile: usize) -> &[u8] {
        // Tensors that are not on the host were refused when the matrix was made.
        let bytes = self
            .rows
            .as_ref()
            .and_then(|rows| rows.bytes().ok())
            .unwrap_or_default();
        bytes.get(self.plan.source(tile..tile + 1)).unwrap_or_default()
    }

    /// [`Self::run`] over all tiles on f32 rows, checked.
    ///
    /// # Errors
    /// [`BackendError::ShapeMismatch`] when `x` is not `m` rows of `k`, or a bias is not `n` long.
    pub fn matmul(&self, x: &[f32], m: usize, bias: Option<&[f32]>) -> Result<Vec<f32>, BackendError> {
        if m.checked_mul(self.plan.k) != Some(x.len()) || bias.is_some_and(|b| b.len() != self.plan.n) {
            let reason = format!(
                "{} activations for {m} rows of {}, {} outputs",
                x.len(),
                self.plan.k,
                self.plan.n
            );
            return Err(BackendError::ShapeMismatch {
                op: "MatMul".to_owned(),
                reason,
            });
        }
        let mut acts = vec![0u8; m * self.act_row_bytes()];
        self.prepare(x, m, &mut acts);
        let mut out = vec![0f32; m * self.plan.n];
        // SAFETY: `out` holds `m` rows of `n` and is ours alone.
        unsafe { self.run(&acts, m, 0..self.n_tiles(), bias, out.as_mut_ptr(), self.plan.n) };
        Ok(out)
    }
}
