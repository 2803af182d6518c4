//! Ops along one dimension: softmax, sums, means, largest elements.

use std::cmp::Ordering;

use glia_core::{BackendError, Shape};

use crate::arena::Chunk;
use crate::kernel::{Kernel, Scratch, StepCx, Work, grown};
use crate::math::exp;
use crate::simd::leveled;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Softmax,
    Sum,
    Mean,
    Argmax,
}

pub(crate) struct Reduce {
    pub kind: Kind,
    pub axis: usize,
    pub x: u32,
    pub out: u32,
}

/// Product of the dimensions before `axis`, its size, product of those behind.
fn around(shape: &Shape, axis: usize) -> (usize, usize, usize) {
    (
        shape[..axis].iter().product(),
        shape[axis],
        shape[axis + 1..].iter().product(),
    )
}

/// Element `i` of line `(outer, at)` is at `(outer * n + i) * inner + at`.
fn load(x: &[f32], line: &mut [f32], inner: usize, outer: usize, at: usize) {
    let first = outer * line.len() * inner + at;
    if inner == 1 {
        line.copy_from_slice(&x[first..first + line.len()]);
        return;
    }
    for (i, v) in line.iter_mut().enumerate() {
        *v = x[first + i * inner];
    }
}

impl Kernel for Reduce {
    fn work(&self, cx: &StepCx<'_>) -> Result<Work, BackendError> {
        let (outer, n, inner) = around(cx.values.shape(self.x)?, self.axis);
        let (n_items, ops) = match self.kind {
            Kind::Softmax if n * inner == 0 => (0, 0),
            Kind::Softmax => (outer, n * inner * 4),
            Kind::Argmax if n == 0 && outer * inner > 0 => {
                return Err(crate::error::shape(
                    "argmax",
                    "an empty dimension has no largest element",
                ));
            }
            _ => (outer * inner, n),
        };
        Ok(Work::split(n_items, ops, cx.n_threads))
    }

    fn run(&self, cx: &StepCx<'_>, chunk: &mut Chunk, scratch: &mut Scratch) -> Result<(), BackendError> {
        let (_, n, inner) = around(cx.values.shape(self.x)?, self.axis);
        let x = cx.values.read::<f32>(self.x)?;
        let line = grown(&mut scratch.floats, n);
        let items = chunk.items();
        match self.kind {
            Kind::Softmax => {
                let out: &mut [f32] = cx.values.write(chunk, self.out, n * inner)?;
                for (outer, y) in items.zip(out.chunks_exact_mut(n * inner)) {
                    for at in 0..inner {
                        load(x, line, inner, outer, at);
                        softmax(cx.level, line);
                        for (y, &v) in y[at..].iter_mut().step_by(inner).zip(line.iter()) {
                            *y = v;
                        }
                    }
                }
            }
            Kind::Argmax => {
                let out: &mut [i32] = cx.values.write(chunk, self.out, 1)?;
                for (item, y) in items.zip(out) {
                    load(x, line, inner, item / inner, item % inner);
                    *y = argmax(line) as i32;
                }
            }
            Kind::Sum | Kind::Mean => {
                let out: &mut [f32] = cx.values.write(chunk, self.out, 1)?;
                for (item, y) in items.zip(out) {
                    load(x, line, inner, item / inner, item % inner);
                    let sum: f64 = line.iter().map(|&v| f64::from(v)).sum();
                    *y = if self.kind == Kind::Mean { sum / n as f64 } else { sum } as f32;
                }
            }
        }
        Ok(())
    }
}

leveled! {
    fn softmax(line: &mut [f32]) {
        let most = line.iter().fold(f32::NEG_INFINITY, |m, &v| if v > m { v } else { m });
        let most = if most == f32::NEG_INFINITY { 0.0 } else { most };
        let mut sum = 0f64;
        for v in line.iter_mut() {
            *v = exp(*v - most);
        }
        for &v in line.iter() {
            sum += f64::from(v);
        }
        let factor = (1.0 / sum) as f32;
        for v in line.iter_mut() {
            *v *= factor;
        }
    }
}

/// Falling, lower index first on ties. NaN ranks above every number, so that the order is total.
fn falling(line: &[f32]) -> impl Fn(&usize, &usize) -> Ordering + '_ {
    |&a, &b| {
        let (x, y) = (line[a], line[b]);
        let order = y
            .partial_cmp(&x)
            .unwrap_or_else(|| x.is_nan().cmp(&y.is_nan()).reverse());
        order.then(a.cmp(&b))
    }
}

fn argmax(line: &[f32]) -> usize {
    let mut best = 0;
    for (i, &v) in line.iter().enumerate().skip(1) {
        if v > line[best] || (v.is_nan() && !line[best].is_nan()) {
            best = i;
        }
    }
    best
}

/// The largest elements of the last dimension.
pub(crate) struct TopK {
    pub k: usize,
    pub x: u32,
    pub values: u32,
    pub indices: u32,
}

impl Kernel for TopK {
    fn work(&self, cx: &StepCx<'_>) -> Result<Work, BackendError> {
        let shape = cx.values.shape(self.x)?;
        let n = shape.last_dim();
        if self.k > n {
            let reason = format!("k {} exceeds the last dimension of {shape}", self.k);
            return Err(crate::error::shape("topk", reason));
        }
        let rows = if n == 0 || self.k == 0 { 0 } else { shape.n_elems() / n };
        Ok(Work::split(rows, n * 4, cx.n_threads))
    }

    fn run(&self, cx: &StepCx<'_>, chunk: &mut Chunk, _: &mut Scratch) -> Result<(), BackendError> {
        let n = cx.values.shape(self.x)?.last_dim();
        let x = cx.values.read::<f32>(self.x)?;
        let items = chunk.items();
        let (values, indices) = cx
            .values
            .write_two::<f32, i32>(chunk, (self.values, self.indices), self.k)?;
        let mut order: Vec<usize> = Vec::with_capacity(n);
        let rows = values.chunks_exact_mut(self.k).zip(indices.chunks_exact_mut(self.k));
        for (row, (values, indices)) in items.zip(rows) {
            let line = &x[row * n..(row + 1) * n];
            order.clear();
            order.extend(0..n);
            if self.k < n {
                order.select_nth_unstable_by(self.k, falling(line));
            }
            order.truncate(self.k);
            order.sort_unstable_by(falling(line));
            for ((v, i), &at) in values.iter_mut().zip(indices).zip(&order) {
                (*v, *i) = (line[at], at as i32);
            }
        }
        Ok(())
    }
}
