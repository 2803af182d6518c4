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
    /// Largest single allocation, and largest tensor that a kernel may be given: steps are cut so that none is larger,
    /// where their rows can be.
    pub max_alloc_bytes: usize,
}

/// A device that runs ops. Object safe: executors hold `Arc<dyn Backend>`.
///
/// Implement level 0 and every model runs, interpreted node by node; each further level is a method with a default.
/// The executor calls `supports_node` for each node at prepare, and nothing ever runs a node that was refused. A
/// backend is used from several threads at once. The guide with code for each level: `docs/writing-a-backend.md`; the
/// suite that says whether all of this holds: `conformance` (feature of that name).
///
/// Tensors are dense and row-major, inputs are shared and must not be written to, outputs have exactly the dtype and
/// shape of the op's rule. The same inputs give the same bits. What cannot be done is an error, never a panic.
///
/// ```
/// use glia_core::{Backend, BackendError, Op, Tensor};
///
/// /// Multiplies by constants.
/// struct Scaler;
///
/// impl Backend for Scaler {
///     fn name(&self) -> &str {
///         "scaler"
///     }
///     fn supports(&self, op: &Op) -> bool {
///         matches!(op, Op::Scale { .. })
///     }
///     fn execute(&self, op: &Op, inputs: &[&Tensor]) -> Result<Vec<Tensor>, BackendError> {
///         let Op::Scale { factor } = op else {
///             return Err(BackendError::unsupported(self.name(), op));
///         };
///         let values: Vec<f32> = inputs[0].as_f32()?.iter().map(|x| x * factor).collect();
///         Ok(vec![Tensor::from_f32(*inputs[0].shape(), &values)?])
///     }
/// }
///
/// let x = Tensor::from_f32([2], &[1.0, 2.0])?;
/// assert_eq!(Scaler.execute(&Op::Scale { factor: 3.0 }, &[&x])?[0].as_f32()?, [3.0, 6.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Backend: Send + Sync {
    /// Short name without blanks: `cpu`, `wgpu`.
    fn name(&self) -> &str;

    /// Level 0: whether this op can run, whatever the shapes. Yes wherever `supports_node` may say yes.
    fn supports(&self, op: &Op) -> bool;

    /// Level 0: host tensors in, host tensors out, also on a backend with a memory of its own. Inputs obey the op's
    /// shape rule; [`Op::output_types`] says what comes out. Ids out of range are errors that name the id.
    ///
    /// # Errors
    /// [`BackendError`]; the caller adds the node's name. An op that `supports` refuses is
    /// [`BackendError::UnsupportedOp`].
    fn execute(&self, op: &Op, inputs: &[&Tensor]) -> Result<Vec<Tensor>, BackendError>;

    /// Level 1: whether this node can run, with dtypes and (symbolic) shapes. The default takes F32 everywhere and
    /// any integer.
    fn supports_node(&self, node: &NodeView<'_>) -> bool {
        use crate::DType::F32;
        self.supports(node.op) && node.inputs.iter().all(|ty| ty.dtype == F32 || ty.dtype.is_int())
    }

    /// Level 1: a private form of weight `input` of a node, made once at prepare. `None` keeps the tensor: on a
    /// backend with a memory of its own it is then uploaded, once. `weight` may lie in a mapped file that is let go
    /// afterwards.
    ///
    /// # Errors
    /// [`BackendError`].
    fn pack(&self, node: &NodeView<'_>, input: usize, weight: &Tensor) -> Result<Option<Packed>, BackendError> {
        let _ = (node, input, weight);
        Ok(None)
    }

    /// Level 1: one node with its packed weights; inputs and outputs are in the backend's memory. The default calls
    /// [`Backend::execute`], on a backend with a memory of its own between downloads and uploads.
    ///
    /// # Errors
    /// [`BackendError`].
    fn execute_node(&self, cx: &mut NodeCx<'_>) -> Result<(), BackendError> {
        if self.space() == MemorySpace::HOST {
            let inputs: Vec<&Tensor> = cx.inputs.iter().collect();
            *cx.outputs = self.execute(cx.node.op, &inputs)?;
            return Ok(());
        }
        let home = |t: &Tensor| {
            if t.check_on_host().is_ok() {
                Ok(t.clone())
            } else {
                self.download(t)
            }
        };
        let inputs: Vec<Tensor> = cx.inputs.iter().map(home).collect::<Result<_, _>>()?;
        let outputs = self.execute(cx.node.op, &inputs.iter().collect::<Vec<_>>())?;
        *cx.outputs = outputs.iter().map(|t| self.upload(t)).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Level 2: where this backend's tensors live.
    fn space(&self) -> MemorySpace {
        MemorySpace::HOST
    }

    /// Level 2: a host tensor of any dtype into this backend's memory.
    ///
    /// # Errors
    /// [`BackendError`].
    fn upload(&self, host: &Tensor) -> Result<Tensor, BackendError> {
        Ok(host.clone())
    }

    /// Level 2: a tensor of this backend's memory back to the host, the bytes that were uploaded or computed. The
    /// only synchronisation point.
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

    /// Level 3: a whole planned segment at once, all of whose nodes `supports_node` has taken. `None` means
    /// "interpret me".
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
