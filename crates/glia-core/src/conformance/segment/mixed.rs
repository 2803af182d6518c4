//! A backend whose missing nodes run on the oracle, as the planner gives them to another backend.

use std::sync::Arc;

use crate::{Backend, BackendError, MemorySpace, NodeCx, NodeView, Op, Packed, Tensor, reference};

/// The backend, and the oracle for what it does not run.
pub(in crate::conformance) struct MixedBackend(pub Arc<dyn Backend>);

impl Backend for MixedBackend {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn supports(&self, _: &Op) -> bool {
        true
    }

    fn execute(&self, op: &Op, inputs: &[&Tensor]) -> Result<Vec<Tensor>, BackendError> {
        reference::execute(op, inputs)
    }

    fn supports_node(&self, _: &NodeView<'_>) -> bool {
        true
    }

    fn pack(&self, node: &NodeView<'_>, input: usize, weight: &Tensor) -> Result<Option<Packed>, BackendError> {
        if self.0.supports_node(node) {
            self.0.pack(node, input, weight)
        } else {
            Ok(None)
        }
    }

    fn execute_node(&self, cx: &mut NodeCx<'_>) -> Result<(), BackendError> {
        if self.0.supports_node(&cx.node) {
            return self.0.execute_node(cx);
        }
        let on_host = self.space() == MemorySpace::HOST;
        let home = |t: &Tensor| if on_host { Ok(t.clone()) } else { self.0.download(t) };
        let inputs: Vec<Tensor> = cx.inputs.iter().map(home).collect::<Result<_, _>>()?;
        let outputs = reference::execute(cx.node.op, &inputs.iter().collect::<Vec<_>>())?;
        let away = |t: Tensor| if on_host { Ok(t) } else { self.0.upload(&t) };
        *cx.outputs = outputs.into_iter().map(away).collect::<Result<_, _>>()?;
        Ok(())
    }

    fn space(&self) -> MemorySpace {
        self.0.space()
    }

    fn upload(&self, host: &Tensor) -> Result<Tensor, BackendError> {
        self.0.upload(host)
    }

    fn download(&self, tensor: &Tensor) -> Result<Tensor, BackendError> {
        self.0.download(tensor)
    }
}
