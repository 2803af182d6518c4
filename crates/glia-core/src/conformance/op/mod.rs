//! Cases of single ops: each through every door that the backend opens, compared with the oracle.

mod attention;
mod bench;
mod cast;
mod elementwise;
mod lookup;
mod matmul;
mod norm;
mod reduce;
pub(super) mod run;
mod structural;

pub use bench::Timing;
pub(super) use bench::repeat;

use super::case::{Body, Case, List};
use super::data::{self, Random};
use crate::{Binary, DType, Gate, Op, Tensor, Unary};

/// What an input holds.
#[derive(Clone, Debug)]
pub(super) enum Fill {
    /// Numbers of about this size.
    Noise(f32),
    /// These, in order, repeated to fill the shape.
    Values(Vec<f64>),
}

/// An input of a case.
#[derive(Clone, Debug)]
pub(super) struct Input {
    pub dtype: DType,
    pub shape: Vec<usize>,
    pub fill: Fill,
    pub is_weight: bool,
}

/// An activation of numbers in -2..2.
pub(super) fn x(dtype: DType, shape: &[usize]) -> Input {
    Input {
        dtype,
        shape: shape.to_vec(),
        fill: Fill::Noise(2.0),
        is_weight: false,
    }
}

/// A weight of numbers in -1..1.
pub(super) fn w(dtype: DType, shape: &[usize]) -> Input {
    Input {
        fill: Fill::Noise(1.0),
        is_weight: true,
        ..x(dtype, shape)
    }
}

/// An activation of these values, repeated to fill the shape.
pub(super) fn values(dtype: DType, shape: &[usize], values: &[f64]) -> Input {
    Input {
        fill: Fill::Values(values.to_vec()),
        ..x(dtype, shape)
    }
}

/// Integers of rank 1.
pub(super) fn ids(dtype: DType, list: &[i32]) -> Input {
    let list: Vec<f64> = list.iter().map(|&v| f64::from(v)).collect();
    values(dtype, &[list.len()], &list)
}

impl Input {
    /// Of about this size.
    pub fn sized(mut self, size: f32) -> Input {
        self.fill = Fill::Noise(size);
        self
    }

    pub fn tensor(&self, random: &mut Random) -> Tensor {
        match &self.fill {
            Fill::Noise(size) => data::noise(self.dtype, &self.shape, *size, random),
            Fill::Values(list) => {
                let n: usize = self.shape.iter().product();
                let all: Vec<f64> = list.iter().copied().cycle().take(n).collect();
                data::plain(self.dtype, &self.shape, &all)
            }
        }
    }
}

/// One op on tensors.
#[derive(Clone, Debug)]
pub(super) struct OpCase {
    pub op: Op,
    pub inputs: Vec<Input>,
    /// What the error must say, when the call must fail.
    pub fails: Option<&'static [&'static str]>,
    /// What an error must say that does in the place of the answer.
    pub may_refuse: Option<&'static str>,
}

impl List {
    /// A case that counts for the dtype of its first input.
    fn op(&mut self, name: impl Into<String>, op: Op, inputs: Vec<Input>) {
        let dtype = inputs[0].dtype;
        self.op_for(name, op, inputs, dtype);
    }

    /// A case that counts for `dtype` in the support table.
    fn op_for(&mut self, name: impl Into<String>, op: Op, inputs: Vec<Input>, dtype: DType) {
        let (group, name) = (op.kind(), name.into());
        let fails = None;
        self.cases.push(Case {
            group,
            name,
            covers: Some((group, dtype)),
            speed_only: false,
            body: Body::Op(OpCase {
                op,
                inputs,
                fails,
                may_refuse: None,
            }),
        });
    }

    /// A case whose call may also fail, with an error that says this.
    fn right_or_refused(&mut self, name: impl Into<String>, op: Op, inputs: Vec<Input>, says: &'static str) {
        self.op(name, op, inputs);
        if let Some(Body::Op(case)) = self.cases.last_mut().map(|c| &mut c.body) {
            case.may_refuse = Some(says);
        }
    }

    /// A case whose call must fail, with an error that says all of `says`.
    fn refused(&mut self, name: &str, op: Op, inputs: Vec<Input>, says: &'static [&'static str]) {
        self.op(name, op, inputs);
        let Some(last) = self.cases.last_mut() else { return };
        last.covers = None;
        if let Body::Op(case) = &mut last.body {
            case.fails = Some(says);
        }
    }
}

/// Sizes of real models, which only a run for speed takes: what a token and what a prompt costs.
pub(super) fn add_speed(list: &mut List) {
    let begin = list.cases.len();
    let f32 = DType::F32;
    for dtype in [
        f32,
        DType::F16,
        DType::BF16,
        DType::Q8_0,
        DType::Q4_0,
        DType::Q4_1,
        DType::Q4_K,
        DType::Q6_K,
    ] {
        // Square, so that products can be chained, with weights that leave sizes as they are.
        for (name, m, k) in [("token", 1, 4096), ("prompt", 128, 2048)] {
            let inputs = vec![x(f32, &[m, k]), w(dtype, &[k, k]).sized(1.5 / (k as f32).sqrt())];
            list.op_for(format!("speed_{name}_{dtype}"), Op::MatMul, inputs, dtype);
        }
    }
    let rows = || x(f32, &[512, 4096]);
    let rms = Op::RmsNorm {
        eps: 1e-5,
        plus_one: false,
    };
    list.op("speed", rms, vec![rows(), w(f32, &[4096])]);
    list.op("speed", Op::Softmax { axis: 1 }, vec![rows()]);
    list.op("speed", Op::Binary(Binary::Add), vec![rows(), rows()]);
    list.op("speed", Op::Gated(Gate::Silu), vec![rows(), rows()]);
    list.op("speed", Op::Unary(Unary::Gelu), vec![rows()]);
    list.op("speed", Op::Transpose { a: 0, b: 1 }, vec![rows()]);
    attention::add_speed(list);
    list.cases[begin..].iter_mut().for_each(|case| case.speed_only = true);
}

/// `3x1x5`; `scalar` for none.
fn size_name(shape: &[usize]) -> String {
    let sizes: Vec<String> = shape.iter().map(usize::to_string).collect();
    if sizes.is_empty() {
        "scalar".to_owned()
    } else {
        sizes.join("x")
    }
}

/// Dtypes of activations.
const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

/// The cases of every op.
pub(super) fn add_all(list: &mut List) {
    matmul::add(list);
    elementwise::add(list);
    norm::add(list);
    lookup::add(list);
    attention::add(list);
    structural::add(list);
    cast::add(list);
    reduce::add(list);
}
