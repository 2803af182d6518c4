//! Normalisation over the last dimension.

use glia_core::BackendError;

use crate::arena::Chunk;
use crate::kernel::{Kernel, Scratch, StepCx, Work};
use crate::simd::leveled;

pub(crate) enum Kind {
    Rms { plus_one: bool },
    Layer,
}

pub(crate) struct Norm {
    pub kind: Kind,
    pub eps: f32,
    pub x: u32,
    pub gain: Option<u32>,
    pub bias: Option<u32>,
    pub out: u32,
}

impl Kernel for Norm {
    fn work(&self, cx: &StepCx<'_>) -> Result<Work, BackendError> {
        let shape = cx.values.shape(self.x)?;
        let width = shape.last_dim();
        let rows = shape.n_elems().checked_div(width).unwrap_or(0);
        Ok(Work::split(rows, width, cx.n_threads))
    }

    fn run(&self, cx: &StepCx<'_>, chunk: &mut Chunk, _: &mut Scratch) -> Result<(), BackendError> {
        let width = cx.values.shape(self.x)?.last_dim();
        let items = chunk.items();
        let x = &cx.values.read::<f32>(self.x)?[items.start * width..items.end * width];
        let optional = |id: Option<u32>| id.map(|id| cx.values.read::<f32>(id)).transpose();
        let (gain, bias) = (optional(self.gain)?, optional(self.bias)?);
        let out: &mut [f32] = cx.values.write(chunk, self.out, width)?;
        for (x, y) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
            match self.kind {
                Kind::Rms { plus_one } => rms_norm(cx.level, x, gain, plus_one, self.eps, y),
                Kind::Layer => layer_norm(cx.level, x, gain, bias, self.eps, y),
            }
        }
        Ok(())
    }
}

/// Sum of `f(x)` in an order that depends on the length only.
#[inline(always)]
fn sum(x: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0f32; 32];
    let (whole, rest) = x.as_chunks::<32>();
    for x in whole {
        for lane in 0..32 {
            lanes[lane] += f(x[lane]);
        }
    }
    let mut total = 0f64;
    for l in lanes {
        total += f64::from(l);
    }
    for &x in rest {
        total += f64::from(f(x));
    }
    total as f32
}

leveled! {
    pub(crate) fn rms_norm(x: &[f32], gain: Option<&[f32]>, plus_one: bool, eps: f32, y: &mut [f32]) {
        let mean = sum(x, |v| v * v) / x.len() as f32;
        let factor = 1.0 / (mean + eps).sqrt();
        match gain {
            Some(gain) if plus_one => {
                for ((y, x), g) in y.iter_mut().zip(x).zip(gain) {
                    *y = x * factor * (1.0 + g);
                }
            }
            Some(gain) => {
                for ((y, x), g) in y.iter_mut().zip(x).zip(gain) {
                    *y = x * factor * g;
                }
            }
            None => {
                for (y, x) in y.iter_mut().zip(x) {
                    *y = x * factor;
                }
            }
        }
    }
}

leveled! {
    fn layer_norm(x: &[f32], gain: Option<&[f32]>, bias: Option<&[f32]>, eps: f32, y: &mut [f32]) {
        let n = x.len() as f32;
        let mean = sum(x, |v| v) / n;
        let variance = sum(x, |v| (v - mean) * (v - mean)) / n;
        let factor = 1.0 / (variance + eps).sqrt();
        for (y, x) in y.iter_mut().zip(x) {
            *y = (x - mean) * factor;
        }
        if let Some(gain) = gain {
            for (y, g) in y.iter_mut().zip(gain) {
                *y *= g;
            }
        }
        if let Some(bias) = bias {
            for (y, b) in y.iter_mut().zip(bias) {
                *y += b;
            }
        }
    }
}
