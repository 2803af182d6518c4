//! The oracle: every op of the vocabulary as plain loops in f64, rounded once at the end. For tests and comparisons;
//! shares no code with any kernel, but for the decoders of quantised blocks (`quant`), which are held to golden blocks.

mod array;
mod attention;
mod elementwise;
mod matmul;
mod norm;
mod reduce;
mod structural;

use crate::{Backend, BackendError, NodeView, Op, Tensor, ValueType};
use array::Array;

type Outputs = Result<Vec<Tensor>, BackendError>;

/// Computes one op on host tensors of any dtype that the op's shape rule allows.
///
/// Outputs are rounded to their dtype once, to nearest even. [`Op::KvCache`] sees an empty past: it returns its inputs.
///
/// # Errors
/// Those of [`Op::infer`], ids and indices out of range, and tensors on devices.
pub fn execute(op: &Op, inputs: &[&Tensor]) -> Outputs {
    let types: Vec<ValueType> = inputs.iter().map(|t| ValueType::fixed(t.dtype(), t.shape())).collect();
    let outputs = op.infer(&types)?;
    let shape = |i: usize| {
        outputs[i]
            .as_fixed()
            .ok_or_else(|| BackendError::shape(op.kind(), "a size is open"))
    };
    let first = shape(0)?;
    let array = |i: usize| Array::load(op.kind(), inputs[i]);
    let rest = || (1..inputs.len()).map(array).collect::<Result<Vec<_>, _>>();
    let float = |data: Vec<f64>| Ok(vec![array::store(outputs[0].dtype, first, &data)?]);
    match op {
        Op::MatMul => float(matmul::matmul(&array(0)?, &rest()?, first.last_dim())),
        Op::Binary(binary) => float(elementwise::binary(*binary, &array(0)?, &array(1)?, &first)),
        Op::Unary(unary) => float(elementwise::map(array(0)?, |x| elementwise::unary(*unary, x))),
        Op::Scale { factor } => float(elementwise::map(array(0)?, |x| x * f64::from(*factor))),
        Op::Clamp { min, max } => float(elementwise::map(array(0)?, |x| x.max((*min).into()).min((*max).into()))),
        Op::Gated(gate) => float(elementwise::gated(*gate, &array(0)?, &array(1)?)),
        Op::RmsNorm { eps, plus_one } => float(norm::rms_norm(array(0)?, &rest()?, *eps, *plus_one)),
        Op::LayerNorm { eps } => float(norm::layer_norm(array(0)?, &rest()?, *eps)),
        Op::Softmax { axis } => float(norm::softmax(array(0)?, *axis)),
        Op::Rope(rope) => float(attention::rope(rope, array(0)?, &rest()?)),
        Op::Sdpa(sdpa) => float(attention::sdpa(sdpa, &array(0)?, &rest()?)),
        Op::Sum { axis, .. } => float(reduce::sum(&array(0)?, *axis)),
        Op::Mean { axis, .. } => float(reduce::mean(&array(0)?, *axis)),
        Op::Argmax { axis } => Ok(vec![Tensor::from_i32(first, &reduce::argmax(&array(0)?, *axis)?)?]),
        Op::TopK { k } => {
            let (values, indices) = reduce::topk(&array(0)?, *k)?;
            let values = array::store(outputs[0].dtype, first, &values)?;
            Ok(vec![values, Tensor::from_i32(shape(1)?, &indices)?])
        }
        Op::TokenEmbed => float(structural::token_embed(inputs[0], &array(1)?)?),
        Op::Cast { to } => Ok(vec![array::cast(inputs[0], *to)?]),
        Op::KvCache => Ok(vec![inputs[0].clone(), inputs[1].clone()]),
        Op::Reshape { .. } => Ok(vec![inputs[0].reshaped(first)?]),
        Op::Transpose { .. }
        | Op::Permute { .. }
        | Op::Slice { .. }
        | Op::Concat { .. }
        | Op::Split { .. }
        | Op::Gather { .. }
        | Op::Repeat { .. } => {
            let shapes = (0..outputs.len()).map(shape).collect::<Result<Vec<_>, _>>()?;
            structural::rearrange(op, inputs, &shapes)
        }
    }
}

/// The oracle as a backend of level 0. Slow, and exact to the rounding of f32.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReferenceBackend;

impl Backend for ReferenceBackend {
    fn name(&self) -> &str {
        "reference"
    }

    fn supports(&self, op: &Op) -> bool {
        !op.is_stateful()
    }

    fn supports_node(&self, node: &NodeView<'_>) -> bool {
        self.supports(node.op)
    }

    fn execute(&self, op: &Op, inputs: &[&Tensor]) -> Outputs {
        execute(op, inputs)
    }
}
