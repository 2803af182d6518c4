//! The `Backend` trait: one trait, four levels. Level 0 is a working backend; each further level is a default method.

mod check;
mod node;
mod program;

pub use check::check_rows;
pub(crate) use check::check_type;
pub use node::{NodeCx, NodeView, Packed};
pub use program::{
    CancelToken, CompileOptions, ConstSource, OpTime, Precision, ProfileSink, Program, ProgramState, SeqId, SeqRows,
    StateOptions, Step,
};

use std::sync::Arc;

use crate::{BackendError, Op, Segment, Tensor};

/// A memory that tensors live in. Two backends with equal spaces hand tensors to each other without copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemorySpace(pub u64);

impl MemorySpace {
    /// Main memory.
    pub const HOST: MemorySpace = MemorySpace(0);
}

/// What a backend knows of its memory; zero means unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryHints {
    /// Bytes that a program may use.
    pub limit_bytes: usize,
    /// Largest single allocation.
    pub max_alloc_bytes: usize,
}

/// A device that runs ops. Object safe: executors hold `Arc<dyn Backend>`.
///
/// Implement level 0 and every model runs, interpreted node by node. The executor calls `supports_node` for each
/// node at prepare and nothing else runs a node that was refused.
pub trait Backend: Send + Sync {
    /// Short name: `cpu`, `wgpu`.
    fn name(&self) -> &str;

    /// Level 0: whether this op can run, whatever the shapes.
    fn supports(&self, op: &Op) -> bool;

    /// Level 0: host tensors in, host tensors out. Inputs obey the op's shape rule.
    ///
    /// # Errors
    /// [`BackendError`]; the caller adds the node's name.
    fn execute(&self, op: &Op, inputs: &[&Tensor]) -> Result<Vec<Tensor>, BackendError>;

    /// Level 1: whether this node can run, with dtypes and (symbolic) shapes. The default takes F32 everywhere and
    /// any integer.
    fn supports_node(&self, node: &NodeView<'_>) -> bool {
        use crate::DType::F32;
        self.supports(node.op) && node.inputs.iter().all(|ty| ty.dtype == F32 || ty.dtype.is_int())
    }

    /// Level 1: a private form of weight `input` of a node, made once at prepare. `None` keeps the tensor.
    ///
    /// # Errors
    /// [`BackendError`].
    fn pack(&self, node: &NodeView<'_>, input: usize, weight: &Tensor) -> Result<Option<Packed>, BackendError> {
        let _ = (node, input, weight);
        Ok(None)
    }

    /// Level 1: one node with its packed weights. The default calls [`Backend::execute`].
    ///
    /// # Errors
    /// [`BackendError`].
    fn execute_node(&self, cx: &mut NodeCx<'_>) -> Result<(), BackendError> {
        let inputs: Vec<&Tensor> = cx.inputs.iter().collect();
        *cx.outputs = self.execute(cx.node.op, &inputs)?;
        Ok(())
    }

    /// Level 2: where this backend's tensors live.
    fn space(&self) -> MemorySpace {
        MemorySpace::HOST
    }

    /// Level 2: a host tensor into this backend's memory.
    ///
    /// # Errors
    /// [`BackendError`].
    fn upload(&self, host: &Tensor) -> Result<Tensor, BackendError> {
        Ok(host.clone())
    }

    /// Level 2: a tensor back to the host. The only synchronisation point.
    ///
    /// # Errors
    /// [`BackendError`].
    fn download(&self, tensor: &Tensor) -> Result<Tensor, BackendError> {
        Ok(tensor.clone())
    }

    /// Level 3: what it knows of its memory.
    fn memory_hints(&self) -> MemoryHints {
        MemoryHints::default()
    }

    /// Level 3: a whole planned segment at once. `None` means "interpret me".
    ///
    /// # Errors
    /// [`BackendError`].
    fn compile(
        &self,
        segment: &Segment,
        options: &CompileOptions<'_>,
    ) -> Result<Option<Arc<dyn Program>>, BackendError> {
        let _ = (segment, options);
        Ok(None)
    }
}
