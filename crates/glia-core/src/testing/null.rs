//! A backend that runs everything and computes nothing: outputs of zeros in the shapes that the ops infer.

use std::fmt;
use std::sync::Arc;

use super::null_program::NullProgram;
use super::type_of;
use crate::{
    Backend, BackendError, CompileOptions, MemorySpace, NodeCx, NodeView, Op, Packed, Program, Segment, Tensor,
    ValueType,
};

type OpPredicate = Arc<dyn Fn(&Op) -> bool + Send + Sync>;
type NodePredicate = Arc<dyn Fn(&NodeView<'_>) -> bool + Send + Sync>;

/// Computes nothing, on any op and dtype, so that planners and executors can be tested, or timed, without kernels.
///
/// It can pretend to have a memory of its own, to run some nodes only, to pack weights and to compile segments. It is
/// strict about what it is handed: tensors of another memory space, types that an op's shape rule refuses, and steps
/// that break the contract of [`ProgramState`](crate::ProgramState) are errors.
///
/// ```
/// use glia_core::testing::NullBackend;
/// use glia_core::{Backend, DType, MemorySpace, Op, Tensor};
///
/// let null = NullBackend::new().supporting_kinds(&["matmul"]);
/// assert!(null.supports(&Op::MatMul) && !null.supports(&Op::TokenEmbed));
/// let x = Tensor::zeros(DType::F32, [2, 4])?;
/// assert_eq!(null.execute(&Op::MatMul, &[&x, &x])?[0].shape().dims(), [2, 2]);
/// assert!(null.execute(&Op::MatMul, &[&x]).is_err(), "one input is missing");
///
/// let device = NullBackend::new().named("device").in_space(MemorySpace(3));
/// let there = device.upload(&x)?;
/// assert!(there.bytes().is_err() && null.download(&there).is_err(), "in another memory");
/// assert_eq!(device.download(&there)?.as_f32()?, [0.0; 8]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct NullBackend {
    pub(super) name: String,
    pub(super) space: MemorySpace,
    runs_op: OpPredicate,
    runs_node: NodePredicate,
    packs: bool,
    compiles: bool,
    pub(super) checkpoints: usize,
}

/// What a device tensor of a [`NullBackend`] holds: whose it is.
struct Nothing(MemorySpace);

impl Default for NullBackend {
    fn default() -> NullBackend {
        NullBackend::new()
    }
}

impl NullBackend {
    /// A backend `null` in main memory, interpreted node by node, that runs every node.
    pub fn new() -> NullBackend {
        NullBackend {
            name: "null".to_owned(),
            space: MemorySpace::HOST,
            runs_op: Arc::new(|_| true),
            runs_node: Arc::new(|_| true),
            packs: false,
            compiles: false,
            checkpoints: 1,
        }
    }

    /// Sets its name.
    #[must_use]
    pub fn named(mut self, name: &str) -> NullBackend {
        self.name = name.to_owned();
        self
    }

    /// Sets the memory that its tensors live in; device tensors unless that is [`MemorySpace::HOST`].
    #[must_use]
    pub fn in_space(mut self, space: MemorySpace) -> NullBackend {
        self.space = space;
        self
    }

    /// Runs only the ops that `runs` accepts.
    #[must_use]
    pub fn supporting_ops(mut self, runs: impl Fn(&Op) -> bool + Send + Sync + 'static) -> NullBackend {
        self.runs_op = Arc::new(runs);
        self
    }

    /// Runs only ops of these kinds.
    #[must_use]
    pub fn supporting_kinds(self, kinds: &'static [&'static str]) -> NullBackend {
        self.supporting_ops(move |op| kinds.contains(&op.kind()))
    }

    /// Of the ops that it runs, only those nodes that `runs` accepts, by their dtypes and shapes.
    #[must_use]
    pub fn supporting_nodes(mut self, runs: impl Fn(&NodeView<'_>) -> bool + Send + Sync + 'static) -> NullBackend {
        self.runs_node = Arc::new(runs);
        self
    }

    /// Takes every weight into a packed form of no bytes.
    #[must_use]
    pub fn packing(mut self) -> NullBackend {
        self.packs = true;
        self
    }

    /// Compiles the segments whose nodes it all runs, so that they are not interpreted. Its programs keep the lengths
    /// of sequences and nothing else.
    #[must_use]
    pub fn compiling(mut self) -> NullBackend {
        self.compiles = true;
        self
    }

    /// Its compiled programs rewind to multiples of `every` tokens only, as recurrent states do.
    #[must_use]
    pub fn with_checkpoints(mut self, every: usize) -> NullBackend {
        self.checkpoints = every.max(1);
        self
    }

    /// Zeros in its memory; the zeros themselves are made by `download` only.
    pub(super) fn zeros(&self, ty: &ValueType) -> Result<Tensor, BackendError> {
        let shape = ty.as_fixed().ok_or_else(|| {
            BackendError::shape(
                &self.name,
                format!("an output {ty} whose size is open, or of too high a rank"),
            )
        })?;
        Ok(match self.space {
            MemorySpace::HOST => Tensor::zeros(ty.dtype, shape)?,
            space => Tensor::device(ty.dtype, shape, Arc::new(Nothing(space)))?,
        })
    }

    /// That a tensor lies in its memory.
    pub(super) fn check_place(&self, tensor: &Tensor) -> Result<(), BackendError> {
        let held = match tensor.device_handle() {
            None => Some(MemorySpace::HOST),
            Some(handle) => handle.downcast_ref::<Nothing>().map(|n| n.0),
        };
        if held == Some(self.space) {
            return Ok(());
        }
        let reason = format!(
            "{tensor:?} lies in another memory than that of backend {}, {:?}",
            self.name, self.space
        );
        Err(BackendError::invalid("memory", reason))
    }
}

impl Backend for NullBackend {
    fn name(&self) -> &str {
        &self.name
    }

    fn supports(&self, op: &Op) -> bool {
        (self.runs_op)(op)
    }

    fn execute(&self, op: &Op, inputs: &[&Tensor]) -> Result<Vec<Tensor>, BackendError> {
        if !self.supports(op) {
            return Err(BackendError::unsupported(&self.name, op));
        }
        inputs.iter().try_for_each(|t| t.check_on_host())?;
        let types = op.output_types(inputs)?;
        let made = types.into_iter().map(|(dtype, shape)| Tensor::zeros(dtype, shape));
        Ok(made.collect::<Result<_, _>>()?)
    }

    fn supports_node(&self, node: &NodeView<'_>) -> bool {
        (self.runs_op)(node.op) && (self.runs_node)(node)
    }

    fn pack(&self, node: &NodeView<'_>, input: usize, weight: &Tensor) -> Result<Option<Packed>, BackendError> {
        let _ = (node, input, weight);
        Ok(self.packs.then(|| Packed {
            data: Arc::new(Nothing(self.space)),
            size_bytes: 0,
        }))
    }

    fn execute_node(&self, cx: &mut NodeCx<'_>) -> Result<(), BackendError> {
        if !self.supports_node(&cx.node) {
            return Err(BackendError::unsupported(&self.name, cx.node.op));
        }
        let mut types = Vec::with_capacity(cx.inputs.len());
        for (i, tensor) in cx.inputs.iter().enumerate() {
            // The tensor of a packed input is a placeholder: its type is that of the node.
            types.push(match cx.packed.get(i) {
                Some(Some(_)) => cx.node.inputs[i].clone(),
                _ => {
                    self.check_place(tensor)?;
                    type_of(tensor)
                }
            });
        }
        let outputs = cx.node.op.infer(&types)?;
        *cx.outputs = outputs.iter().map(|ty| self.zeros(ty)).collect::<Result<_, _>>()?;
        Ok(())
    }

    fn space(&self) -> MemorySpace {
        self.space
    }

    fn upload(&self, host: &Tensor) -> Result<Tensor, BackendError> {
        host.check_on_host()?;
        match self.space {
            MemorySpace::HOST => Ok(host.clone()),
            space => Ok(Tensor::device(host.dtype(), *host.shape(), Arc::new(Nothing(space)))?),
        }
    }

    fn download(&self, tensor: &Tensor) -> Result<Tensor, BackendError> {
        self.check_place(tensor)?;
        match self.space {
            MemorySpace::HOST => Ok(tensor.clone()),
            _ => Ok(Tensor::zeros(tensor.dtype(), *tensor.shape())?),
        }
    }

    fn compile(
        &self,
        segment: &Segment,
        options: &CompileOptions<'_>,
    ) -> Result<Option<Arc<dyn Program>>, BackendError> {
        if !self.compiles {
            return Ok(None);
        }
        segment.check_ids()?;
        Ok(Some(Arc::new(NullProgram::new(self.clone(), segment.clone(), options))))
    }
}

impl fmt::Debug for NullBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NullBackend({}, {:?})", self.name, self.space)
    }
}
