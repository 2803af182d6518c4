//! Elementwise arithmetic and functions.

use glia_core::{BackendError, Binary, Gate, Shape, Unary};

use crate::arena::Chunk;
use crate::kernel::{Kernel, Scratch, StepCx, Work};
use crate::math::{exp, gelu, gelu_tanh, sigmoid, silu, tanh};
use crate::simd::leveled;

/// A function of one element.
#[derive(Clone, Copy)]
pub(crate) enum Func {
    Unary(Unary),
    Scale(f32),
    Clamp(f32, f32),
}

pub(crate) struct Map {
    pub func: Func,
    pub x: u32,
    pub out: u32,
}

impl Kernel for Map {
    fn work(&self, cx: &StepCx<'_>) -> Result<Work, BackendError> {
        Ok(Work::split(cx.values.shape(self.out)?.n_elems(), 2, cx.n_threads))
    }

    fn run(&self, cx: &StepCx<'_>, chunk: &mut Chunk, _: &mut Scratch) -> Result<(), BackendError> {
        let x = &cx.values.read::<f32>(self.x)?[chunk.items()];
        map(cx.level, self.func, x, cx.values.write(chunk, self.out, 1)?);
        Ok(())
    }
}

leveled! {
    fn map(func: Func, x: &[f32], y: &mut [f32]) {
        macro_rules! each {
            ($f:expr) => {
                for (y, &x) in y.iter_mut().zip(x) {
                    *y = $f(x);
                }
            };
        }
        match func {
            Func::Unary(Unary::Silu) => each!(silu),
            Func::Unary(Unary::Gelu) => each!(gelu),
            Func::Unary(Unary::GeluTanh) => each!(gelu_tanh),
            // NaN stays NaN, as in the definition max(x, 0) of the frameworks.
            Func::Unary(Unary::Relu) => each!(|x: f32| if x < 0.0 { 0.0 } else { x }),
            Func::Unary(Unary::Sigmoid) => each!(sigmoid),
            Func::Unary(Unary::Tanh) => each!(tanh),
            Func::Unary(Unary::Exp) => each!(exp),
            Func::Scale(factor) => each!(|x: f32| x * factor),
            Func::Clamp(min, max) => each!(|x: f32| {
                let x = if x < min { min } else { x };
                if x > max { max } else { x }
            }),
        }
    }
}

/// `act(gate) * up`.
pub(crate) struct Gated {
    pub gate: Gate,
    pub x: u32,
    pub up: u32,
    pub out: u32,
}

impl Kernel for Gated {
    fn work(&self, cx: &StepCx<'_>) -> Result<Work, BackendError> {
        Ok(Work::split(cx.values.shape(self.out)?.n_elems(), 2, cx.n_threads))
    }

    fn run(&self, cx: &StepCx<'_>, chunk: &mut Chunk, _: &mut Scratch) -> Result<(), BackendError> {
        let items = chunk.items();
        let (x, up) = (
            &cx.values.read::<f32>(self.x)?[items.clone()],
            &cx.values.read::<f32>(self.up)?[items],
        );
        gated(cx.level, self.gate, x, up, cx.values.write(chunk, self.out, 1)?);
        Ok(())
    }
}

leveled! {
    pub(crate) fn gated(gate: Gate, x: &[f32], up: &[f32], y: &mut [f32]) {
        macro_rules! each {
            ($f:expr) => {
                for ((y, &x), &u) in y.iter_mut().zip(x).zip(up) {
                    *y = $f(x) * u;
                }
            };
        }
        match gate {
            Gate::Silu => each!(silu),
            Gate::Gelu => each!(gelu),
            Gate::GeluTanh => each!(gelu_tanh),
        }
    }
}

/// Arithmetic of two values with broadcasting.
pub(crate) struct Arithmetic {
    pub op: Binary,
    pub a: u32,
    pub b: u32,
    pub out: u32,
}

/// For each output dimension, how far an operand moves; 0 where it is repeated.
fn strides(shape: &Shape, out: &Shape) -> Vec<usize> {
    let mut strides = vec![0; out.rank()];
    let mut stride = 1;
    for (i, &d) in shape.iter().enumerate().rev() {
        strides[i + out.rank() - shape.rank()] = if d == 1 { 0 } else { stride };
        stride *= d;
    }
    strides
}

/// First element of an operand for output row `row` (a row is the last dimension).
fn offset(strides: &[usize], out: &Shape, mut row: usize) -> usize {
    let mut at = 0;
    for i in (0..out.rank().saturating_sub(1)).rev() {
        at += row % out[i] * strides[i];
        row /= out[i];
    }
    at
}

impl Kernel for Arithmetic {
    fn work(&self, cx: &StepCx<'_>) -> Result<Work, BackendError> {
        let shape = cx.values.shape(self.out)?;
        let rows = if shape.n_elems() == 0 {
            0
        } else {
            shape.n_elems() / shape.last_dim()
        };
        Ok(Work::split(rows, shape.last_dim(), cx.n_threads))
    }

    fn run(&self, cx: &StepCx<'_>, chunk: &mut Chunk, _: &mut Scratch) -> Result<(), BackendError> {
        let shape = cx.values.shape(self.out)?;
        let width = shape.last_dim();
        let (a, b) = (cx.values.read::<f32>(self.a)?, cx.values.read::<f32>(self.b)?);
        let (sa, sb) = (
            strides(cx.values.shape(self.a)?, shape),
            strides(cx.values.shape(self.b)?, shape),
        );
        let steps = |s: &[usize]| s.last().is_some_and(|&s| s == 1);
        let items = chunk.items();
        let out: &mut [f32] = cx.values.write(chunk, self.out, width)?;
        for (row, y) in items.zip(out.chunks_exact_mut(width)) {
            let (at_a, at_b) = (offset(&sa, shape, row), offset(&sb, shape, row));
            let (a, b) = (&a[at_a..], &b[at_b..]);
            arithmetic(cx.level, self.op, (a, steps(&sa)), (b, steps(&sb)), y);
        }
        Ok(())
    }
}

leveled! {
    fn arithmetic(op: Binary, a: (&[f32], bool), b: (&[f32], bool), y: &mut [f32]) {
        macro_rules! each {
            ($f:expr) => {
                match (a, b) {
                    ((a, true), (b, true)) => for ((y, &a), &b) in y.iter_mut().zip(a).zip(b) { *y = $f(a, b); },
                    ((a, true), (b, false)) => { let b = b[0]; for (y, &a) in y.iter_mut().zip(a) { *y = $f(a, b); } }
                    ((a, false), (b, true)) => { let a = a[0]; for (y, &b) in y.iter_mut().zip(b) { *y = $f(a, b); } }
                    ((a, false), (b, false)) => y.fill($f(a[0], b[0])),
                }
            };
        }
        match op {
            Binary::Add => each!(|a: f32, b: f32| a + b),
            Binary::Sub => each!(|a: f32, b: f32| a - b),
            Binary::Mul => each!(|a: f32, b: f32| a * b),
            Binary::Div => each!(|a: f32, b: f32| a / b),
        }
    }
}
