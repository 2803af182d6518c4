//! Rotary position embedding: a table of cosines and sines per step, shared by all rotations with the same positions
//! and frequencies, and the rotation itself.

use glia_core::{BackendError, RopePairing};

use super::ints;
use crate::arena::Chunk;
use crate::error::invalid;
use crate::kernel::{Kernel, Scratch, StepCx, Work};
use crate::simd::leveled;

/// `[T][2][rot/2]`: cosines, then sines, times the scale.
pub(crate) struct RopeTable {
    pub positions: u32,
    pub freqs: u32,
    /// Another table of frequencies, for sequences of more tokens.
    pub long: Option<(u32, usize)>,
    pub scale: f32,
    pub out: u32,
}

impl RopeTable {
    /// Tokens of the sequence that row `row` belongs to, this step included.
    fn sequence_len(&self, cx: &StepCx<'_>, row: usize) -> Result<usize, BackendError> {
        if let Some(r) = cx
            .rows
            .iter()
            .find(|r| (r.first_row..r.first_row + r.n_rows).contains(&row))
        {
            return Ok(r.pos.saturating_add(r.n_rows));
        }
        let mut most = 0;
        for i in 0..cx.values.shape(self.positions)?.n_elems() {
            most = most.max(ints::int("rope", &cx.values, self.positions, i)?);
        }
        Ok(usize::try_from(most.saturating_add(1)).unwrap_or(usize::MAX))
    }
}

impl Kernel for RopeTable {
    fn work(&self, cx: &StepCx<'_>) -> Result<Work, BackendError> {
        let half = cx.values.shape(self.freqs)?.n_elems();
        Ok(Work::split(
            cx.values.shape(self.positions)?.n_elems(),
            half * 20,
            cx.n_threads,
        ))
    }

    fn run(&self, cx: &StepCx<'_>, chunk: &mut Chunk, _: &mut Scratch) -> Result<(), BackendError> {
        let short = cx.values.read::<f32>(self.freqs)?;
        let half = short.len();
        if half == 0 {
            return Ok(());
        }
        let items = chunk.items();
        let out: &mut [f32] = cx.values.write(chunk, self.out, 2 * half)?;
        for (row, out) in items.zip(out.chunks_exact_mut(2 * half)) {
            let freqs = match self.long {
                Some((long, from)) if self.sequence_len(cx, row)? > from => cx.values.read::<f32>(long)?,
                _ => short,
            };
            let position = ints::int("rope", &cx.values, self.positions, row)? as f32;
            let (cos, sin) = out.split_at_mut(half);
            for ((c, s), &f) in cos.iter_mut().zip(sin).zip(freqs) {
                let (sine, cosine) = (position * f).sin_cos();
                (*c, *s) = (cosine * self.scale, sine * self.scale);
            }
        }
        Ok(())
    }
}

/// Rotates x `[T, H, D]` by a table.
pub(crate) struct Rotate {
    pub pairing: RopePairing,
    pub x: u32,
    pub table: u32,
    pub freqs: u32,
    pub out: u32,
}

impl Kernel for Rotate {
    fn work(&self, cx: &StepCx<'_>) -> Result<Work, BackendError> {
        let &[t, heads, dim] = &cx.values.shape(self.x)?[..] else {
            return Err(invalid("rope", "x must be [T, heads, head_dim]"));
        };
        if cx.values.shape(self.freqs)?.n_elems() * 2 > dim {
            return Err(invalid("rope", "more frequencies than half the head"));
        }
        Ok(Work::split(
            if heads * dim == 0 { 0 } else { t },
            heads * dim,
            cx.n_threads,
        ))
    }

    fn run(&self, cx: &StepCx<'_>, chunk: &mut Chunk, _: &mut Scratch) -> Result<(), BackendError> {
        let &[_, heads, dim] = &cx.values.shape(self.x)?[..] else {
            return Err(invalid("rope", "x must be [T, heads, head_dim]"));
        };
        let half = cx.values.shape(self.freqs)?.n_elems();
        let width = heads * dim;
        let items = chunk.items();
        let table = cx.values.read::<f32>(self.table)?;
        let x = &cx.values.read::<f32>(self.x)?[items.start * width..items.end * width];
        let out: &mut [f32] = cx.values.write(chunk, self.out, width)?;
        for ((row, x), y) in items.zip(x.chunks_exact(width)).zip(out.chunks_exact_mut(width)) {
            let (cos, sin) = table[row * 2 * half..(row + 1) * 2 * half].split_at(half);
            for (x, y) in x.chunks_exact(dim).zip(y.chunks_exact_mut(dim)) {
                rotate(cx.level, x, cos, sin, self.pairing == RopePairing::Interleaved, y);
            }
        }
        Ok(())
    }
}

leveled! {
    fn rotate(x: &[f32], cos: &[f32], sin: &[f32], interleaved: bool, y: &mut [f32]) {
        let half = cos.len();
        if interleaved {
            let pairs = x.as_chunks::<2>().0.iter().zip(y.as_chunks_mut::<2>().0);
            for (([a, b], y), (c, s)) in pairs.zip(cos.iter().zip(sin)) {
                *y = [a * c - b * s, b * c + a * s];
            }
        } else {
            let (first, second) = x[..2 * half].split_at(half);
            let (y_first, y_second) = y[..2 * half].split_at_mut(half);
            for i in 0..half {
                y_first[i] = first[i] * cos[i] - second[i] * sin[i];
                y_second[i] = second[i] * cos[i] + first[i] * sin[i];
            }
        }
        y[2 * half..].copy_from_slice(&x[2 * half..]);
    }
}
