//! The segment interpreter: a [`Program`] of any backend that does not compile segments itself. Runs node by node
//! through `execute_node`, one sequence at a time, and keeps the KV rows. The executor and the suites run on it.

mod ints;
mod own;
mod rows;
mod run;
mod state;
#[cfg(test)]
mod tests;

pub use ints::{read_indices, read_ints};
pub use own::interpreter_runs;

use std::sync::Arc;

use crate::{
    Backend, BackendError, CompileOptions, ConstId, DType, MemorySpace, NodeView, Packed, Program, ProgramState,
    Segment, StateKind, StateOptions, Tensor, ValueKind, ValueType,
};
use own::Route;

/// A segment with its weights packed for a backend, ready to be interpreted.
pub struct InterpretedProgram {
    backend: Arc<dyn Backend>,
    segment: Arc<Segment>,
    instrs: Vec<Prepared>,
    /// By [`ConstId`]: weights that some instruction reads unpacked, in the backend's memory and on the host.
    consts: Vec<Weight>,
    kv_dtypes: [DType; 2],
    max_context: usize,
    on_host: bool,
    outputs_to_host: Vec<bool>,
    packed_bytes: usize,
}

/// What is known of an instruction before any step.
struct Prepared {
    route: Route,
    inputs: Vec<ValueType>,
    outputs: Vec<ValueType>,
    is_const: Vec<bool>,
    packed: Vec<Option<Packed>>,
}

#[derive(Clone, Default)]
struct Weight {
    host: Option<Tensor>,
    device: Option<Tensor>,
}

impl InterpretedProgram {
    /// Packs the weights and decides who runs which instruction.
    ///
    /// # Errors
    /// [`BackendError::UnsupportedOp`] for a node that neither the backend nor the interpreter runs, ids that the
    /// segment does not have, and what reading or packing a weight says; each names its node.
    #[allow(clippy::new_ret_no_self)] // A program is used as a trait object only.
    pub fn new(
        backend: Arc<dyn Backend>,
        segment: Arc<Segment>,
        options: &CompileOptions<'_>,
    ) -> Result<Arc<dyn Program>, BackendError> {
        segment.check_ids()?;
        let on_host = backend.space() == MemorySpace::HOST;
        let mut program = InterpretedProgram {
            backend,
            instrs: Vec::with_capacity(segment.instrs.len()),
            consts: vec![Weight::default(); options.consts.n_consts()],
            segment,
            kv_dtypes: options.kv_dtypes,
            max_context: options.max_context,
            on_host,
            outputs_to_host: options.outputs_to_host.to_vec(),
            packed_bytes: 0,
        };
        for i in 0..program.segment.instrs.len() {
            let prepared = program.prepare(i, options)?;
            program.instrs.push(prepared);
        }
        let segment = program.segment.clone();
        for (i, &id) in segment.outputs.iter().enumerate() {
            if let ValueKind::Const(id) = segment.value(segment.resolve(id)).kind {
                program.keep(id, options, !options.is_output_to_host(i))?;
            }
        }
        Ok(Arc::new(program))
    }

    fn prepare(&mut self, i: usize, options: &CompileOptions<'_>) -> Result<Prepared, BackendError> {
        let segment = self.segment.clone();
        let backend = self.backend.clone();
        let instr = &segment.instrs[i];
        let (inputs, outputs) = (segment.types(&instr.inputs), segment.types(&instr.outputs));
        let consts: Vec<Option<ConstId>> = instr.inputs.iter().map(|&id| const_of(&segment, id)).collect();
        let is_const: Vec<bool> = consts.iter().map(Option::is_some).collect();
        let at = |e: BackendError| e.at(backend.name(), &instr.node, instr.op.kind());
        let view = NodeView::new(&instr.node, &instr.op, &inputs, &outputs, &is_const);
        let unsupported = || BackendError::unsupported(backend.name(), &instr.op);
        let route = own::route(&view, backend.supports_node(&view)).ok_or_else(|| at(unsupported()))?;
        if route == Route::Cache {
            self.check_state(i).map_err(at)?;
        }
        let mut packed: Vec<Option<Packed>> = vec![None; inputs.len()];
        for (input, id) in consts.iter().enumerate() {
            let Some(id) = *id else { continue };
            if route != Route::Backend {
                self.keep(id, options, false).map_err(at)?;
                continue;
            }
            // Aliases of weights keep their own shape; only direct reads are packed.
            let direct = matches!(segment.value(instr.inputs[input]).kind, ValueKind::Const(_));
            let tensor = options.consts.tensor(id).map_err(at)?;
            segment.check_weight(id, &tensor).map_err(at)?;
            let form = if direct {
                backend.pack(&view, input, &tensor).map_err(at)?
            } else {
                None
            };
            match form {
                Some(form) => {
                    self.packed_bytes = self.packed_bytes.saturating_add(form.size_bytes);
                    packed[input] = Some(form);
                    tensor.release();
                }
                None => self.keep(id, options, true).map_err(at)?,
            }
        }
        Ok(Prepared {
            route,
            inputs,
            outputs,
            is_const,
            packed,
        })
    }

    fn check_state(&self, i: usize) -> Result<(), BackendError> {
        let instr = &self.segment.instrs[i];
        let invalid = |reason: String| BackendError::invalid(instr.op.kind(), reason);
        let def = instr
            .state
            .and_then(|id| self.segment.states.get(id.index()))
            .ok_or_else(|| invalid("the instruction has no state".to_owned()))?;
        if def.spec.kind != StateKind::Rows || def.spec.parts.len() != 2 {
            return Err(invalid(format!(
                "the interpreter keeps rows of two parts, not {:?}",
                def.spec
            )));
        }
        for (part, dtype) in def.spec.parts.iter().zip(self.kv_dtypes) {
            let row = part
                .as_fixed()
                .ok_or_else(|| invalid(format!("rows of {part} have no fixed size")))?;
            if !rows::can_round(dtype, &row) {
                let reason = format!("a cache of {dtype} cannot hold rows of {row}; take f32 or f16");
                return Err(invalid(reason));
            }
        }
        Ok(())
    }

    /// Keeps a weight for reading; `on_device` also in the backend's own memory.
    fn keep(&mut self, id: ConstId, options: &CompileOptions<'_>, on_device: bool) -> Result<(), BackendError> {
        let unknown = || BackendError::UnknownId {
            what: "weight",
            id: id.0.into(),
        };
        let slot = self.consts.get(id.index()).ok_or_else(unknown)?;
        let mut weight = slot.clone();
        let tensor = match &weight.host {
            Some(tensor) => tensor.clone(),
            None => options.consts.tensor(id)?,
        };
        self.segment.check_weight(id, &tensor)?;
        if self.on_host || !on_device {
            weight.host = Some(tensor);
        } else if weight.device.is_none() {
            weight.device = Some(self.backend.upload(&tensor)?);
        }
        self.consts[id.index()] = weight;
        Ok(())
    }
}

/// The weight behind a value, through aliases.
fn const_of(segment: &Segment, id: crate::ValueId) -> Option<ConstId> {
    match segment.value(segment.resolve(id)).kind {
        ValueKind::Const(id) => Some(id),
        _ => None,
    }
}

impl Program for InterpretedProgram {
    fn open(self: Arc<Self>, options: &StateOptions) -> Result<Box<dyn ProgramState>, BackendError> {
        Ok(Box::new(state::Pool::new(self, options.max_state_bytes)))
    }

    fn weight_bytes(&self) -> usize {
        let owned = |t: &Option<Tensor>| match t {
            Some(t) if !t.is_shared_source() => t.size_bytes(),
            _ => 0,
        };
        let kept: usize = self
            .consts
            .iter()
            .map(|w| owned(&w.host).saturating_add(owned(&w.device)))
            .sum();
        kept.saturating_add(self.packed_bytes)
    }

    fn describe(&self) -> String {
        format!("interpreted node by node on {}", self.backend.name())
    }
}
