//! A backend with one of its methods overridden in the plainest right manner: the other state of a method that the
//! backend leaves to its default.

use std::sync::Arc;

use super::without::{backend_around, compiled, handed_on};
use crate::{
    Backend, BackendError, CompileOptions, MemoryHints, MemorySpace, NodeCx, NodeView, Op, Packed, Program,
    ProgramState, Segment, SeqId, StateOptions, Step, Tensor,
};

backend_around! {
    /// Refuses additions, which others run for it.
    OwnSupportsNode: [pack execute_node space memory_hints compile]

    fn supports_node(&self, node: &NodeView<'_>) -> bool {
        !matches!(node.op, Op::Binary(crate::Binary::Add)) && self.0.supports_node(node)
    }
}

/// A weight that only [`OwnPack`] can read: what the backend itself packed of it, or a copy in its memory.
struct Kept {
    packed: Option<Packed>,
    tensor: Option<Tensor>,
}

backend_around! {
    /// Every weight is packed: as the backend does it, or as a copy behind a handle.
    OwnPack: [supports_node space memory_hints]

    fn pack(&self, node: &NodeView<'_>, input: usize, weight: &Tensor) -> Result<Option<Packed>, BackendError> {
        let packed = self.0.pack(node, input, weight)?;
        let tensor = match packed {
            Some(_) => None,
            None if self.0.space() == MemorySpace::HOST => Some(weight.to_owned_aligned()?),
            None => Some(self.0.upload(weight)?),
        };
        let size_bytes = packed.as_ref().map_or(weight.size_bytes(), |p| p.size_bytes);
        Ok(Some(Packed {
            data: Arc::new(Kept { packed, tensor }),
            size_bytes,
        }))
    }

    fn execute_node(&self, cx: &mut NodeCx<'_>) -> Result<(), BackendError> {
        let (mut inputs, mut packed) = (cx.inputs.to_vec(), cx.packed.to_vec());
        for (input, form) in inputs.iter_mut().zip(&mut packed) {
            let kept = form.as_ref().and_then(|p| p.data.downcast_ref::<Kept>());
            let Some(Kept { packed, tensor }) = kept else { continue };
            if let Some(tensor) = tensor {
                *input = tensor.clone();
            }
            *form = packed.clone();
        }
        self.0.execute_node(&mut NodeCx::new(cx.node, &inputs, &packed, cx.outputs))
    }
}

backend_around! {
    /// Runs a node by `execute`, by hand.
    OwnExecuteNode: [supports_plain_node space memory_hints]

    fn execute_node(&self, cx: &mut NodeCx<'_>) -> Result<(), BackendError> {
        let mut inputs = Vec::with_capacity(cx.inputs.len());
        for tensor in cx.inputs {
            inputs.push(match tensor.check_on_host() {
                Ok(()) => tensor.clone(),
                Err(_) => self.0.download(tensor)?,
            });
        }
        cx.outputs.clear();
        for made in self.0.execute(cx.node.op, &inputs.iter().collect::<Vec<_>>())? {
            cx.outputs.push(self.0.upload(&made)?);
        }
        Ok(())
    }
}

/// The memory of [`OwnSpace`].
const APART: MemorySpace = MemorySpace(u64::from_le_bytes(*b"apart-ly"));

/// A copy that others see as an opaque handle.
fn away(tensor: &Tensor) -> Result<Tensor, BackendError> {
    let copy: Arc<Tensor> = Arc::new(tensor.to_owned_aligned()?);
    Ok(Tensor::device(tensor.dtype(), *tensor.shape(), copy)?)
}

/// The tensor behind a handle, under the shape that the handle has now.
fn back(tensor: &Tensor) -> Result<Tensor, BackendError> {
    match tensor.device_handle().and_then(|h| h.downcast_ref::<Tensor>()) {
        Some(inner) => Ok(inner.reshaped(*tensor.shape())?),
        None => Ok(tensor.clone()),
    }
}

backend_around! {
    /// A backend of the host in a memory of its own, where tensors are opaque. One that has a memory stays there.
    OwnSpace: [supports_node pack memory_hints]

    fn space(&self) -> MemorySpace {
        match self.0.space() {
            MemorySpace::HOST => APART,
            own => own,
        }
    }

    fn upload(&self, host: &Tensor) -> Result<Tensor, BackendError> {
        if self.moves() { away(host) } else { self.0.upload(host) }
    }

    fn download(&self, tensor: &Tensor) -> Result<Tensor, BackendError> {
        if self.moves() { back(tensor) } else { self.0.download(tensor) }
    }

    fn execute_node(&self, cx: &mut NodeCx<'_>) -> Result<(), BackendError> {
        if !self.moves() {
            return self.0.execute_node(cx);
        }
        let inputs: Vec<Tensor> = cx.inputs.iter().map(back).collect::<Result<_, _>>()?;
        let mut outputs = Vec::new();
        self.0.execute_node(&mut NodeCx::new(cx.node, &inputs, cx.packed, &mut outputs))?;
        *cx.outputs = outputs.iter().map(away).collect::<Result<_, _>>()?;
        Ok(())
    }

    fn compile(
        &self,
        segment: &Segment,
        options: &CompileOptions<'_>,
    ) -> Result<Option<Arc<dyn Program>>, BackendError> {
        let program = self.0.compile(segment, options)?;
        if !self.moves() {
            return Ok(program);
        }
        let to_host: Vec<bool> = (0..segment.outputs.len()).map(|i| options.is_output_to_host(i)).collect();
        Ok(program.map(|program| Arc::new(Apart { program, to_host }) as Arc<dyn Program>))
    }
}

impl OwnSpace {
    /// Whether tensors go to and from the memory apart.
    fn moves(&self) -> bool {
        self.0.space() == MemorySpace::HOST
    }
}

/// A program of [`OwnSpace`].
struct Apart {
    program: Arc<dyn Program>,
    to_host: Vec<bool>,
}

impl Program for Apart {
    fn open(self: Arc<Self>, options: &StateOptions) -> Result<Box<dyn ProgramState>, BackendError> {
        let inner = self.program.clone().open(options)?;
        Ok(Box::new(Around {
            inner,
            apart: Some(self),
        }))
    }

    fn weight_bytes(&self) -> usize {
        // Copies, as a device has them.
        self.program.weight_bytes().max(1)
    }

    fn describe(&self) -> String {
        self.program.describe()
    }
}

backend_around! {
    /// Has a gigabyte, in pieces of a megabyte.
    OwnMemoryHints: [supports_node pack execute_node space compile]

    fn memory_hints(&self) -> MemoryHints {
        MemoryHints {
            limit_bytes: 1 << 30,
            max_alloc_bytes: 1 << 20,
        }
    }
}

backend_around! {
    /// Always has a program: the backend's, else that of the interpreter. It says everything that a program may say.
    OwnCompile: [supports_node pack execute_node space memory_hints]

    fn compile(
        &self,
        segment: &Segment,
        options: &CompileOptions<'_>,
    ) -> Result<Option<Arc<dyn Program>>, BackendError> {
        Ok(Some(Arc::new(Telling(compiled(&self.0, segment, options)?))))
    }
}

/// A program with words for all that a program may leave unsaid.
struct Telling(Arc<dyn Program>);

impl Program for Telling {
    fn open(self: Arc<Self>, options: &StateOptions) -> Result<Box<dyn ProgramState>, BackendError> {
        let inner = self.0.clone().open(options)?;
        Ok(Box::new(Around { inner, apart: None }))
    }

    fn weight_bytes(&self) -> usize {
        self.0.weight_bytes()
    }

    fn describe(&self) -> String {
        format!("around: {}", self.0.describe())
    }
}

/// A state around another; with `apart`, tensors go to and come from that memory.
struct Around {
    inner: Box<dyn ProgramState>,
    apart: Option<Arc<Apart>>,
}

impl ProgramState for Around {
    fn run(&mut self, step: &Step<'_>) -> Result<Vec<Tensor>, BackendError> {
        let Some(apart) = &self.apart else {
            return self.inner.run(step);
        };
        let inputs: Vec<Tensor> = step.inputs.iter().map(back).collect::<Result<_, _>>()?;
        let step = Step {
            inputs: &inputs,
            ..*step
        };
        let outputs = self.inner.run(&step)?;
        let place = |(i, t): (usize, &Tensor)| match apart.to_host.get(i) {
            Some(true) => Ok(t.clone()),
            _ => away(t),
        };
        outputs.iter().enumerate().map(place).collect()
    }

    fn commit(&mut self) {
        self.inner.commit();
    }

    fn rollback(&mut self) {
        self.inner.rollback();
    }

    fn create(&mut self, seq: SeqId) -> Result<(), BackendError> {
        self.inner.create(seq)
    }

    fn fork(&mut self, from: SeqId, to: SeqId, len: usize) -> Result<usize, BackendError> {
        self.inner.fork(from, to, len)
    }

    fn truncate(&mut self, seq: SeqId, len: usize) -> usize {
        self.inner.truncate(seq, len)
    }

    fn free(&mut self, seq: SeqId) {
        self.inner.free(seq);
    }

    fn state_bytes(&self) -> usize {
        self.inner.state_bytes()
    }
}
