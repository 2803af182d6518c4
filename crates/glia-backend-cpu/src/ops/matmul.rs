//! Matrix products. Constant weights are packed, and rows of activations prepared once for all products that read
//! them. Weights that are no constants are taken as they are: each row is decoded once per step.

use std::ops::Range;
use std::sync::Arc;

use glia_core::{BackendError, Gate, quant};

use super::elementwise;
use crate::arena::Chunk;
use crate::error::invalid;
use crate::kernel::{Kernel, Scratch, StepCx, Work, grown};
use crate::kernels::dynamic;
use crate::kernels::int8::Panels;
use crate::pack::{ActKind, PackedMatrix};

/// `x [.., k]` by `w [n, k]`, or batched `[.., m, k]` by `[.., n, k]`.
pub(crate) struct MatMul {
    pub x: u32,
    pub w: u32,
    pub bias: Option<u32>,
    pub out: u32,
}

struct Sizes {
    n_batch: usize,
    m: usize,
    n: usize,
    k: usize,
}

impl MatMul {
    fn sizes(&self, cx: &StepCx<'_>) -> Result<Sizes, BackendError> {
        let (x, w) = (cx.values.shape(self.x)?, cx.values.shape(self.w)?);
        let rank = w.rank();
        if rank < 2 || x.last_dim() != w.last_dim() {
            return Err(invalid("matmul", format!("{x} by {w}")));
        }
        let n_batch = w[..rank - 2].iter().product();
        let (n, k) = (w[rank - 2], w[rank - 1]);
        let rows: usize = x[..x.rank() - 1].iter().product();
        let m = rows.checked_div(n_batch).unwrap_or(0);
        Ok(Sizes { n_batch, m, n, k })
    }
}

/// Columns of a piece of work: the bits of a product depend on it, so it is one number for all.
const COLUMNS: usize = 64;

impl Kernel for MatMul {
    fn work(&self, cx: &StepCx<'_>) -> Result<Work, BackendError> {
        let s = self.sizes(cx)?;
        Ok(Work::each(if s.m == 0 { 0 } else { s.n_batch * s.n.div_ceil(COLUMNS) }))
    }

    fn run(&self, cx: &StepCx<'_>, chunk: &mut Chunk, scratch: &mut Scratch) -> Result<(), BackendError> {
        let s = self.sizes(cx)?;
        let x = cx.values.read::<f32>(self.x)?;
        let w = cx.values.bytes(self.w)?;
        let dtype = cx.values.get(self.w)?.dtype;
        let bias = match self.bias {
            Some(id) => Some(cx.values.read::<f32>(id)?),
            None => None,
        };
        let row_bytes = w.len() / (s.n_batch * s.n).max(1);
        let per_batch = s.n.div_ceil(COLUMNS);
        for item in chunk.items() {
            let (batch, first) = (item / per_batch, item % per_batch * COLUMNS);
            let columns = first..s.n.min(first + COLUMNS);
            let n = columns.len();
            let weights = grown(&mut scratch.floats, n * s.k);
            let raw = &w[(batch * s.n + first) * row_bytes..][..n * row_bytes];
            quant::dequantize(dtype, raw, weights).map_err(|e| invalid("matmul", e.to_string()))?;
            let x = &x[batch * s.m * s.k..][..s.m * s.k];
            let mut failed = None;
            dynamic::matmul_f32(x, weights, (s.m, s.k, n), &mut scratch.products, |row, values| {
                let at = (batch * s.m + row) * s.n + first;
                let to: *mut f32 = match cx.values.write_ptr(chunk, self.out, at, n) {
                    Ok(to) => to,
                    Err(e) => {
                        failed = Some(e);
                        return;
                    }
                };
                for (i, &v) in values.iter().enumerate() {
                    let add = bias.map_or(0.0, |b| b[first + i]);
                    // SAFETY: in bounds by `write_ptr`; each column belongs to one chunk.
                    unsafe { to.add(i).write(v + add) };
                }
            });
            if let Some(e) = failed {
                return Err(e);
            }
        }
        Ok(())
    }
}

/// Rows of activations in the form of a packed matrix.
pub(crate) struct Prepare {
    pub x: u32,
    pub weights: Arc<PackedMatrix>,
    pub out: u32,
}

/// Rows of a value whose rows have `k` elements.
fn n_rows(cx: &StepCx<'_>, x: u32, k: usize) -> Result<usize, BackendError> {
    let shape = cx.values.shape(x)?;
    if shape.rank() == 0 || shape.last_dim() != k {
        return Err(invalid("matmul", format!("{shape} by a matrix of {k} columns")));
    }
    Ok(shape[..shape.rank() - 1].iter().product())
}

impl Kernel for Prepare {
    fn work(&self, cx: &StepCx<'_>) -> Result<Work, BackendError> {
        let k = self.weights.k();
        let m = if k == 0 { 0 } else { n_rows(cx, self.x, k)? };
        let panels = Panels::of(m).len();
        Ok(Work::split(panels, k * m.min(Panels::ROWS), cx.n_threads))
    }

    fn run(&self, cx: &StepCx<'_>, chunk: &mut Chunk, _: &mut Scratch) -> Result<(), BackendError> {
        let k = self.weights.k();
        let panels = Panels::of(n_rows(cx, self.x, k)?);
        let x = cx.values.read::<f32>(self.x)?;
        for panel in chunk.items() {
            let rows = panels.rows(panel);
            prepare_panel(
                cx,
                chunk,
                &self.weights,
                &x[rows.start * k..rows.end * k],
                rows,
                self.out,
            )?;
        }
        Ok(())
    }
}

/// Rows of `gate(x) * up` in the form of a packed matrix.
pub(crate) struct PrepareGated {
    pub gate: Gate,
    pub x: u32,
    pub up: u32,
    pub weights: Arc<PackedMatrix>,
    pub out: u32,
}

impl Kernel for PrepareGated {
    fn work(&self, cx: &StepCx<'_>) -> Result<Work, BackendError> {
        let k = self.weights.k();
        let m = if k == 0 { 0 } else { n_rows(cx, self.x, k)? };
        let panels = Panels::of(m).len();
        Ok(Work::split(panels, 4 * k * m.min(Panels::ROWS), cx.n_threads))
    }

    fn run(&self, cx: &StepCx<'_>, chunk: &mut Chunk, scratch: &mut Scratch) -> Result<(), BackendError> {
        let k = self.weights.k();
        let panels = Panels::of(n_rows(cx, self.x, k)?);
        let (x, up) = (cx.values.read::<f32>(self.x)?, cx.values.read::<f32>(self.up)?);
        for panel in chunk.items() {
            let rows = panels.rows(panel);
            let elems = rows.start * k..rows.end * k;
            let gated = scratch.floats(elems.len());
            elementwise::gated(cx.level, self.gate, &x[elems.clone()], &up[elems], gated);
            prepare_panel(cx, chunk, &self.weights, gated, rows, self.out)?;
        }
        Ok(())
    }
}

/// Prepares the rows of a panel, whose values are `x`, to where they belong in `out`.
fn prepare_panel(
    cx: &StepCx<'_>,
    chunk: &mut Chunk,
    weights: &PackedMatrix,
    x: &[f32],
    rows: Range<usize>,
    out: u32,
) -> Result<(), BackendError> {
    let row_bytes = weights.act_row_bytes();
    let n_bytes = rows.len() * row_bytes;
    let out: *mut u8 = cx.values.write_ptr(chunk, out, rows.start * row_bytes, n_bytes)?;
    // SAFETY: in bounds by `write_ptr`; the rows of a panel belong to one item.
    let out = unsafe { std::slice::from_raw_parts_mut(out, n_bytes) };
    weights.prepare_panel(x, rows.len(), out);
    Ok(())
}

/// A product with a packed matrix.
pub(crate) struct Packed {
    /// The prepared rows; those of the value itself for matrices that take F32.
    pub acts: u32,
    pub weights: Arc<PackedMatrix>,
    pub bias: Option<u32>,
    pub out: u32,
}

impl Packed {
    /// Rows of a piece of work: enough to use a tile often, few enough to stay in cache; whole panels.
    const ROWS: usize = 8 * Panels::ROWS;

    fn n_rows(&self, cx: &StepCx<'_>) -> Result<usize, BackendError> {
        match self.weights.act() {
            ActKind::F32 => n_rows(cx, self.acts, self.weights.k()),
            ActKind::Q8 | ActKind::Bf16 => n_rows(cx, self.acts, self.weights.act_row_bytes()),
        }
    }

    /// Pieces along the rows and tiles of a piece.
    fn cut(&self, m: usize, n_threads: usize) -> (usize, usize) {
        let blocks = m.div_ceil(Self::ROWS).max(1);
        let tiles = self.weights.n_tiles();
        // A tile times a row is about k * 16 operations; a piece should be worth the hand-out.
        let least = (65_536 / (self.weights.k().max(1) * 16 * m.clamp(1, Self::ROWS)).max(1)).max(1);
        // Enough pieces that nobody waits long for the last one; kernels take two tiles at a time.
        let fair = (tiles * blocks).div_ceil(n_threads * 12).next_multiple_of(2);
        (blocks, fair.clamp(least.min(8), least.max(8)).min(tiles.max(1)))
    }
}

impl Kernel for Packed {
    fn work(&self, cx: &StepCx<'_>) -> Result<Work, BackendError> {
        let m = self.n_rows(cx)?;
        let (blocks, per) = self.cut(m, cx.n_threads);
        Ok(Work::each(if m == 0 {
            0
        } else {
            blocks * self.weights.n_tiles().div_ceil(per)
        }))
    }

    fn run(&self, cx: &StepCx<'_>, chunk: &mut Chunk, _: &mut Scratch) -> Result<(), BackendError> {
        let (n, row_bytes) = (self.weights.n(), self.weights.act_row_bytes());
        let m = self.n_rows(cx)?;
        let (blocks, per) = self.cut(m, cx.n_threads);
        let acts = cx.values.bytes(self.acts)?;
        let bias = match self.bias {
            Some(id) => Some(cx.values.read::<f32>(id)?),
            None => None,
        };
        for item in chunk.items() {
            // Pieces that share tiles follow each other.
            let (block, first) = (item % blocks, item / blocks * per);
            let rows = block * Self::ROWS..m.min((block + 1) * Self::ROWS);
            let tiles = first..self.weights.n_tiles().min(first + per);
            let out: *mut f32 = cx.values.write_ptr(chunk, self.out, rows.start * n, rows.len() * n)?;
            let acts = &acts[rows.start * row_bytes..rows.end * row_bytes];
            // SAFETY: `out` has these rows of `n` elements by `write_ptr`, and every (rows, tiles) is one item.
            unsafe { self.weights.run(acts, rows.len(), tiles, bias, out, n) };
        }
        Ok(())
    }
}
