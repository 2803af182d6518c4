//! Ops that move elements and compute nothing, on bytes: every plain dtype, and quantised ones whose rows stay whole.

use glia_core::{BackendError, DType, Shape};

use super::ints;
use crate::arena::Chunk;
use crate::error::{invalid, shape};
use crate::kernel::{Kernel, Scratch, StepCx, Work};

/// Dimensions in units that move as one (elements, or blocks of a quantised dtype), and the bytes of a unit.
pub(crate) fn units(dtype: DType, shape: &Shape) -> (Vec<usize>, usize) {
    let (elems, bytes) = dtype.block();
    let mut dims = shape.to_vec();
    if let Some(last) = dims.last_mut() {
        *last /= elems;
    }
    (dims, bytes)
}

/// The input's dimensions around `axis`: product before, size, and bytes behind.
fn around(dims: &[usize], unit: usize, axis: usize) -> (usize, usize, usize) {
    let outer = dims[..axis].iter().product();
    let inner: usize = dims[axis + 1..].iter().product();
    (outer, dims[axis], inner * unit)
}

/// Output dimension `i` walks input dimension `perm[i]`, from `start` on along `axis`.
pub(crate) struct Pick {
    pub op: &'static str,
    pub x: u32,
    pub out: u32,
    pub perm: Option<Vec<usize>>,
    pub axis: usize,
    pub start: usize,
}

impl Pick {
    /// Whether everything picked is there: a dimension that depends on the step may be too short for a slice.
    fn fits(&self, from: &[usize], to: &[usize]) -> bool {
        let source = |i: usize| self.perm.as_ref().map_or(Some(i), |perm| perm.get(i).copied());
        from.len() == to.len()
            && to.iter().enumerate().all(|(i, &n)| {
                let start = if self.perm.is_none() && i == self.axis {
                    self.start
                } else {
                    0
                };
                let size = source(i).and_then(|i| from.get(i)).copied().unwrap_or(0);
                start.checked_add(n).is_some_and(|end| end <= size)
            })
    }
}

impl Kernel for Pick {
    fn work(&self, cx: &StepCx<'_>) -> Result<Work, BackendError> {
        let (x, out) = (cx.values.get(self.x)?, cx.values.get(self.out)?);
        let (dims, unit) = units(out.dtype, &out.shape);
        if !self.fits(&units(x.dtype, &x.shape).0, &dims) {
            let reason = format!("{} does not lie in {} from {} on", out.shape, x.shape, self.start);
            return Err(shape(self.op, reason));
        }
        let n: usize = dims.iter().product();
        let last = dims.last().copied().unwrap_or(1);
        Ok(Work::split(
            if n == 0 { 0 } else { n / last },
            last * unit / 4,
            cx.n_threads,
        ))
    }

    fn run(&self, cx: &StepCx<'_>, chunk: &mut Chunk, _: &mut Scratch) -> Result<(), BackendError> {
        let (x, out) = (cx.values.get(self.x)?, cx.values.get(self.out)?);
        let ((from, unit), (to, _)) = (units(x.dtype, &x.shape), units(out.dtype, &out.shape));
        let mut strides = vec![0usize; from.len()];
        let mut stride = 1;
        for i in (0..from.len()).rev() {
            strides[i] = stride;
            stride *= from[i];
        }
        let base = if from.is_empty() {
            0
        } else {
            self.start * strides[self.axis]
        };
        if let Some(perm) = &self.perm {
            strides = perm.iter().map(|&p| strides[p]).collect();
        }
        let width = to.last().copied().unwrap_or(1);
        let source = cx.values.bytes(self.x)?;
        let items = chunk.items();
        let target: &mut [u8] = cx.values.write(chunk, self.out, width * unit)?;
        let step = strides.last().copied().unwrap_or(1);
        for (row, target) in items.zip(target.chunks_exact_mut((width * unit).max(1))) {
            let (mut at, mut rest) = (base, row);
            for i in (0..to.len().saturating_sub(1)).rev() {
                at += rest % to[i] * strides[i];
                rest /= to[i];
            }
            if step == 1 {
                target.copy_from_slice(&source[at * unit..(at + width) * unit]);
                continue;
            }
            for (i, target) in target.chunks_exact_mut(unit).enumerate() {
                let from = (at + i * step) * unit;
                target.copy_from_slice(&source[from..from + unit]);
            }
        }
        Ok(())
    }
}

/// What an output element along `axis` is taken from.
pub(crate) enum Choice {
    /// The indices of a value.
    Gather(u32),
    /// Each element this often.
    Repeat(usize),
}

pub(crate) struct Select {
    pub op: &'static str,
    pub choice: Choice,
    pub axis: usize,
    pub x: u32,
    pub out: u32,
}

impl Kernel for Select {
    fn work(&self, cx: &StepCx<'_>) -> Result<Work, BackendError> {
        let out = cx.values.get(self.out)?;
        let (dims, unit) = units(out.dtype, &out.shape);
        if self.axis >= dims.len() {
            return Err(invalid(self.op, format!("axis {} of {}", self.axis, out.shape)));
        }
        let (outer, n, bytes) = around(&dims, unit, self.axis);
        Ok(Work::split(
            if bytes == 0 { 0 } else { outer * n },
            bytes / 4,
            cx.n_threads,
        ))
    }

    fn run(&self, cx: &StepCx<'_>, chunk: &mut Chunk, _: &mut Scratch) -> Result<(), BackendError> {
        let (x, out) = (cx.values.get(self.x)?, cx.values.get(self.out)?);
        let (dims, unit) = units(x.dtype, &x.shape);
        let (_, n_in, bytes) = around(&dims, unit, self.axis);
        let n_out = out.shape[self.axis];
        let source = cx.values.bytes(self.x)?;
        let items = chunk.items();
        let target: &mut [u8] = cx.values.write(chunk, self.out, bytes)?;
        for (item, target) in items.zip(target.chunks_exact_mut(bytes)) {
            let (o, i) = (item / n_out, item % n_out);
            let from = match self.choice {
                Choice::Gather(ids) => ints::index(self.op, &cx.values, ids, i, n_in, "the dimension has")?,
                Choice::Repeat(n) => i / n.max(1),
            };
            let at = (o * n_in + from) * bytes;
            target.copy_from_slice(&source[at..at + bytes]);
        }
        Ok(())
    }
}

pub(crate) struct Concat {
    pub axis: usize,
    pub inputs: Vec<u32>,
    pub out: u32,
}

impl Kernel for Concat {
    fn work(&self, cx: &StepCx<'_>) -> Result<Work, BackendError> {
        let out = cx.values.get(self.out)?;
        let (dims, unit) = units(out.dtype, &out.shape);
        let (outer, n, bytes) = around(&dims, unit, self.axis);
        Ok(Work::split(
            if n * bytes == 0 { 0 } else { outer },
            n * bytes / 4,
            cx.n_threads,
        ))
    }

    fn run(&self, cx: &StepCx<'_>, chunk: &mut Chunk, _: &mut Scratch) -> Result<(), BackendError> {
        let out = cx.values.get(self.out)?;
        let (dims, unit) = units(out.dtype, &out.shape);
        let (_, n, bytes) = around(&dims, unit, self.axis);
        let items = chunk.items();
        let target: &mut [u8] = cx.values.write(chunk, self.out, n * bytes)?;
        let mut first = 0;
        for &id in &self.inputs {
            let x = cx.values.get(id)?;
            let (dims, unit) = units(x.dtype, &x.shape);
            let (_, n_in, _) = around(&dims, unit, self.axis);
            let (source, len) = (cx.values.bytes(id)?, n_in * bytes);
            for (o, row) in items.clone().zip(target.chunks_exact_mut(n * bytes)) {
                row[first..first + len].copy_from_slice(&source[o * len..(o + 1) * len]);
            }
            first += len;
        }
        Ok(())
    }
}

/// A copy of a value's bytes: a view that could not stay one.
pub(crate) struct CopyBytes {
    pub x: u32,
    pub out: u32,
}

impl Kernel for CopyBytes {
    fn work(&self, cx: &StepCx<'_>) -> Result<Work, BackendError> {
        if cx.values.bytes(self.x)?.len() != cx.values.get(self.out)?.len_bytes() {
            return Err(invalid("reshape", "the sizes differ"));
        }
        Ok(Work::split(cx.values.bytes(self.x)?.len(), 1, cx.n_threads))
    }

    fn run(&self, cx: &StepCx<'_>, chunk: &mut Chunk, _: &mut Scratch) -> Result<(), BackendError> {
        let source = &cx.values.bytes(self.x)?[chunk.items()];
        cx.values.write::<u8>(chunk, self.out, 1)?.copy_from_slice(source);
        Ok(())
    }
}
