//! The backend: a device that programs are compiled for, opened again when it is lost.

use std::sync::{Arc, Mutex, PoisonError};

use glia_core::{
    Backend, BackendError, CompileOptions, ConstId, ConstSource, InputRole, Instr, MemoryHints, MemorySpace, NodeView,
    Op, Precision, Program, Segment, SeqId, SeqRows, StateOptions, Step, Tensor, ValueDef, ValueId, ValueKind,
    ValueType,
};

use crate::gpu::{AdapterEntry, Counters, Gpu, NAME, WgpuOptions};
use crate::{ops, program};

/// Runs segments on a GPU through wgpu.
///
/// Open one with [`WgpuBackend::new`] and give it to an executor in a list of backends, the CPU after it.
pub struct WgpuBackend {
    options: WgpuOptions,
    gpu: Mutex<Arc<Gpu>>,
}

impl WgpuBackend {
    /// Opens the adapter that the options choose.
    ///
    /// # Errors
    /// [`BackendError::InvalidInput`] naming the adapters that there are; what the driver says.
    pub fn new(options: WgpuOptions) -> Result<WgpuBackend, BackendError> {
        let gpu = Gpu::open(&options)?;
        Ok(WgpuBackend {
            options,
            gpu: Mutex::new(gpu),
        })
    }

    /// The adapter that it runs on.
    pub fn adapter(&self) -> AdapterEntry {
        self.held().entry.clone()
    }

    /// What it has done on the device.
    pub fn counters(&self) -> Counters {
        self.held().counters.read()
    }

    /// Bytes per second that a copy on the device reads and writes together, the best of several.
    ///
    /// # Errors
    /// When memory is out or the device is lost.
    pub fn copy_bandwidth(&self) -> Result<f64, BackendError> {
        self.device()?.copy_bandwidth()
    }

    /// Destroys the device, as a driver does that gives up. Programs then fail with
    /// [`BackendError::DeviceLost`]; what is compiled afterwards runs on a new device. For tests of recovery.
    pub fn lose_device(&self) {
        self.held().lose();
    }

    /// A device that is told other capabilities than its own, for tests that run nothing on it.
    #[cfg(test)]
    pub(crate) fn altered(
        options: WgpuOptions,
        change: impl FnOnce(&mut crate::gpu::Caps),
    ) -> Result<WgpuBackend, BackendError> {
        let mut gpu = Gpu::open(&options)?;
        if let Some(gpu) = Arc::get_mut(&mut gpu) {
            change(&mut gpu.caps);
        }
        Ok(WgpuBackend {
            options,
            gpu: Mutex::new(gpu),
        })
    }

    /// The device, for tests of the crate.
    #[cfg(test)]
    pub(crate) fn gpu(&self) -> Arc<Gpu> {
        self.held()
    }

    fn held(&self) -> Arc<Gpu> {
        self.gpu.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The device, a new one when the last is lost.
    fn device(&self) -> Result<Arc<Gpu>, BackendError> {
        let mut gpu = self.gpu.lock().unwrap_or_else(PoisonError::into_inner);
        if gpu.is_lost() {
            *gpu = Gpu::open(&self.options)?;
        }
        Ok(gpu.clone())
    }
}

impl std::fmt::Debug for WgpuBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WgpuBackend({})", self.adapter())
    }
}

impl Backend for WgpuBackend {
    fn name(&self) -> &str {
        NAME
    }

    fn supports(&self, op: &Op) -> bool {
        !matches!(op, Op::KvCache)
    }

    fn execute(&self, op: &Op, inputs: &[&Tensor]) -> Result<Vec<Tensor>, BackendError> {
        alone(&self.device()?, op, inputs)
    }

    fn supports_node(&self, node: &NodeView<'_>) -> bool {
        ops::supports_node(node)
    }

    fn space(&self) -> MemorySpace {
        // Any number but that of main memory: one device at a time.
        MemorySpace(u64::from_le_bytes(*b"glia-gpu"))
    }

    fn upload(&self, host: &Tensor) -> Result<Tensor, BackendError> {
        program::upload(&self.device()?, host)
    }

    fn download(&self, tensor: &Tensor) -> Result<Tensor, BackendError> {
        program::download(&self.held(), tensor)
    }

    fn memory_hints(&self) -> MemoryHints {
        let gpu = self.held();
        let mut hints = MemoryHints::default();
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        hints.limit_bytes = size(gpu.max_memory_bytes);
        hints.max_alloc_bytes = size(gpu.caps.max_buffer_bytes.min(gpu.caps.max_binding_bytes));
        if hints.limit_bytes > 0 {
            hints.max_alloc_bytes = hints.max_alloc_bytes.min(hints.limit_bytes);
        }
        hints
    }

    fn compile(
        &self,
        segment: &Segment,
        options: &CompileOptions<'_>,
    ) -> Result<Option<Arc<dyn Program>>, BackendError> {
        program::compile(&self.device()?, segment, options).map(Some)
    }
}

/// Weights of a segment of one instruction: those of its inputs that must be weights.
pub(crate) struct Inputs<'a>(pub &'a [Tensor]);

impl ConstSource for Inputs<'_> {
    fn tensor(&self, id: ConstId) -> Result<Tensor, BackendError> {
        let unknown = BackendError::UnknownId {
            what: "weight",
            id: id.0.into(),
        };
        self.0.get(id.index()).cloned().ok_or(unknown)
    }

    fn n_consts(&self) -> usize {
        self.0.len()
    }
}

/// Whether input `i` of an op that stands alone is a weight.
fn is_weight(op: &Op, types: &[ValueType], i: usize) -> bool {
    match op {
        Op::MatMul => i > 0 && types[1].rank() == 2,
        Op::TokenEmbed => i == 1,
        Op::Rope(_) => i > 1,
        Op::RmsNorm { .. } | Op::LayerNorm { .. } => i > 0,
        _ => false,
    }
}

/// A segment of one op; weights have the number of their input.
///
/// # Errors
/// When the shapes do not fit the op, or the backend does not run it.
pub(crate) fn segment_of(op: &Op, types: &[ValueType]) -> Result<Segment, BackendError> {
    let outputs = op.infer(types)?;
    let is_const: Vec<bool> = (0..types.len()).map(|i| is_weight(op, types, i)).collect();
    let view = NodeView::new("node", op, types, &outputs, &is_const);
    if !ops::supports_node(&view) || op.is_stateful() {
        return Err(BackendError::UnsupportedOp {
            backend: NAME.to_owned(),
            op: op.to_string(),
        });
    }
    let mut segment = Segment::default();
    let mut instr = Instr {
        node: "node".to_owned(),
        op: op.clone(),
        inputs: Vec::new(),
        outputs: Vec::new(),
        frees: Vec::new(),
        state: None,
    };
    for (i, ty) in types.iter().enumerate() {
        let id = ValueId(segment.values.len() as u32);
        let name = format!("x{i}");
        let kind = if is_const[i] {
            ValueKind::Const(ConstId(i as u32))
        } else {
            segment.inputs.push(id);
            ValueKind::Input(InputRole::Named(name.clone()))
        };
        segment.values.push(ValueDef {
            name,
            ty: ty.clone(),
            kind,
        });
        instr.inputs.push(id);
    }
    for (i, ty) in outputs.iter().enumerate() {
        let id = ValueId(segment.values.len() as u32);
        let kind = if op.is_view() {
            ValueKind::Alias(instr.inputs[0])
        } else {
            ValueKind::Dynamic
        };
        segment.values.push(ValueDef {
            name: format!("y{i}"),
            ty: ty.clone(),
            kind,
        });
        instr.outputs.push(id);
        segment.outputs.push(id);
    }
    segment.instrs.push(instr);
    Ok(segment)
}

/// Runs one op as a segment of its own.
fn alone(gpu: &Arc<Gpu>, op: &Op, inputs: &[&Tensor]) -> Result<Vec<Tensor>, BackendError> {
    let types: Vec<ValueType> = inputs.iter().map(|t| ValueType::fixed(t.dtype(), t.shape())).collect();
    let segment = segment_of(op, &types)?;
    let given: Vec<Tensor> = (0..inputs.len())
        .filter(|&i| !is_weight(op, &types, i))
        .map(|i| inputs[i].clone())
        .collect();
    let host: Vec<Tensor> = inputs
        .iter()
        .map(|t| program::download(gpu, t))
        .collect::<Result<_, _>>()?;
    let consts = Inputs(&host);
    let n_rows = given
        .first()
        .and_then(|t| t.shape().first().copied())
        .unwrap_or(1)
        .max(1);
    let mut options = CompileOptions::new(&consts, Precision::Exact);
    options.max_context = usize::MAX;
    options.max_step_tokens = n_rows;
    let mut state = program::compile(gpu, &segment, &options)?.open(&StateOptions::default())?;
    let seq = SeqId(0);
    state.create(seq)?;
    let rows = [SeqRows {
        seq,
        first_row: 0,
        n_rows,
        pos: 0,
    }];
    let outputs = state.run(&Step::new(&rows, &given, &[]))?;
    state.commit();
    outputs.iter().map(|t| program::download(gpu, t)).collect()
}
