//! `__Struct__`: a backend of level 0 that runs two ops on F32. Grow it op by op; the conformance suite in
//! `tests/conformance.rs` says what is wrong.

mod add;
mod matmul;

use glia_core::{Backend, BackendError, Binary, DType, NodeView, Op, Tensor};

/// Runs `add` and `matmul` on host tensors of F32.
#[derive(Clone, Copy, Debug, Default)]
pub struct __Struct__;

impl __Struct__ {
    /// A backend ready to run.
    pub fn new() -> __Struct__ {
        __Struct__
    }
}

impl Backend for __Struct__ {
    fn name(&self) -> &str {
        "__short__"
    }

    fn supports(&self, op: &Op) -> bool {
        matches!(op, Op::Binary(Binary::Add) | Op::MatMul)
    }

    // What is refused here is never executed: the planner gives it to another backend.
    fn supports_node(&self, node: &NodeView<'_>) -> bool {
        self.supports(node.op) && node.inputs.iter().all(|ty| ty.dtype == DType::F32)
    }

    fn execute(&self, op: &Op, inputs: &[&Tensor]) -> Result<Vec<Tensor>, BackendError> {
        if !self.supports(op) {
            return Err(BackendError::unsupported(self.name(), op));
        }
        // The op's rule checks the inputs and says what comes out.
        let outputs = op.output_types(inputs)?;
        let shape = outputs[0].1;
        match (op, inputs) {
            (Op::Binary(Binary::Add), [a, b]) => Ok(vec![add::add(a, b, shape)?]),
            (Op::MatMul, [x, w]) => Ok(vec![matmul::matmul(x, w, None, shape)?]),
            (Op::MatMul, [x, w, bias]) => Ok(vec![matmul::matmul(x, w, Some(bias), shape)?]),
            _ => Err(BackendError::unsupported(self.name(), op)),
        }
    }
}
