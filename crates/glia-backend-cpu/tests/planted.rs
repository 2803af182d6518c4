//! Mistakes planted in the CPU backend, in ways that the suite's own list knows nothing of, are found and named.

use std::cell::UnsafeCell;
use std::sync::Arc;

use glia_backend_cpu::{CpuBackend, CpuOptions};
use glia_core::conformance::{Options, Report, run};
use glia_core::{
    Backend, BackendError, ByteSource, CompileOptions, ConstId, ConstSource, DType, NodeView, Op, Program,
    ProgramState, Segment, SeqId, StateOptions, Step, Tensor,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plant {
    WritePastEnd,
    WriteBeforeStart,
    ChangedInput,
    SameMemory,
    WiderWindow,
    MissingBias,
    TransposedWeight,
    LateCommit,
}

struct Planted {
    cpu: CpuBackend,
    plant: Plant,
}

impl Backend for Planted {
    fn name(&self) -> &str {
        "planted"
    }

    fn supports(&self, op: &Op) -> bool {
        self.cpu.supports(op)
    }

    fn supports_node(&self, node: &NodeView<'_>) -> bool {
        self.cpu.supports_node(node)
    }

    fn execute(&self, op: &Op, inputs: &[&Tensor]) -> Result<Vec<Tensor>, BackendError> {
        let mut outputs = self.cpu.execute(op, inputs)?;
        match self.plant {
            Plant::WritePastEnd | Plant::WriteBeforeStart => {
                let bytes = outputs[0].bytes_mut()?;
                let at = if self.plant == Plant::WritePastEnd {
                    bytes.len() as isize
                } else {
                    -1
                };
                // SAFETY: none, it is the planted mistake; the byte lies in the guard of the same allocation.
                unsafe { bytes.as_mut_ptr().offset(at).write_volatile(1) };
            }
            Plant::ChangedInput if inputs[0].size_bytes() > 0 => {
                let byte = inputs[0].bytes()?.as_ptr().cast_mut();
                // SAFETY: none, it is the planted mistake; nobody reads the byte meanwhile.
                unsafe { byte.write_volatile(byte.read_volatile() ^ 1) };
            }
            _ => {}
        }
        Ok(outputs)
    }

    fn compile(
        &self,
        segment: &Segment,
        options: &CompileOptions<'_>,
    ) -> Result<Option<Arc<dyn Program>>, BackendError> {
        let mut segment = segment.clone();
        for instr in &mut segment.instrs {
            match &mut instr.op {
                Op::Sdpa(sdpa) if self.plant == Plant::WiderWindow => sdpa.window = sdpa.window.map(|w| w + 1),
                Op::MatMul if self.plant == Plant::MissingBias => instr.inputs.truncate(2),
                _ => {}
            }
        }
        let consts = Turned(options.consts, self.plant == Plant::TransposedWeight);
        let mut options = *options;
        options.consts = &consts;
        let program = self.cpu.compile(&segment, &options)?;
        let plant = self.plant;
        Ok(program.map(|program| Arc::new(PlantedProgram { program, plant }) as Arc<dyn Program>))
    }
}

/// Square matrices of F32 turned round.
struct Turned<'a>(&'a dyn ConstSource, bool);

impl ConstSource for Turned<'_> {
    fn tensor(&self, id: ConstId) -> Result<Tensor, BackendError> {
        let tensor = self.0.tensor(id)?;
        let square = tensor.shape().rank() == 2 && tensor.shape()[0] == tensor.shape()[1];
        if !(self.1 && square && tensor.dtype() == DType::F32) {
            return Ok(tensor);
        }
        let (n, old) = (tensor.shape()[0], tensor.to_owned_aligned()?);
        let old = old.as_f32()?;
        let turned: Vec<f32> = (0..n * n).map(|i| old[i % n * n + i / n]).collect();
        Ok(Tensor::from_f32([n, n], &turned)?)
    }

    fn n_consts(&self) -> usize {
        self.0.n_consts()
    }
}

struct PlantedProgram {
    program: Arc<dyn Program>,
    plant: Plant,
}

impl Program for PlantedProgram {
    fn open(self: Arc<Self>, options: &StateOptions) -> Result<Box<dyn ProgramState>, BackendError> {
        Ok(Box::new(PlantedState {
            state: self.program.clone().open(options)?,
            plant: self.plant,
            memory: Arc::default(),
        }))
    }
}

/// A buffer that every step writes its first output to.
#[derive(Debug)]
struct Memory(UnsafeCell<Vec<u8>>);

impl Default for Memory {
    fn default() -> Memory {
        Memory(UnsafeCell::new(vec![0; 1 << 20]))
    }
}

// SAFETY: each test uses a state from one thread.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl ByteSource for Memory {
    fn bytes(&self) -> &[u8] {
        // SAFETY: the buffer never moves; that its bytes change under readers is the planted mistake.
        unsafe { &*self.0.get() }
    }
}

struct PlantedState {
    state: Box<dyn ProgramState>,
    plant: Plant,
    memory: Arc<Memory>,
}

impl ProgramState for PlantedState {
    fn run(&mut self, step: &Step<'_>) -> Result<Vec<Tensor>, BackendError> {
        let mut outputs = self.state.run(step)?;
        if self.plant == Plant::SameMemory && outputs[0].size_bytes() > 0 && outputs[0].size_bytes() < 1 << 20 {
            let (old, n) = (outputs[0].clone(), outputs[0].size_bytes());
            // SAFETY: as in `Memory`; within the buffer.
            unsafe { std::ptr::copy(old.bytes()?.as_ptr(), (*self.memory.0.get()).as_mut_ptr(), n) };
            outputs[0] = Tensor::shared(old.dtype(), *old.shape(), self.memory.clone(), 0..n)?;
        }
        Ok(outputs)
    }

    fn commit(&mut self) {
        self.state.commit();
    }

    fn rollback(&mut self) {
        if self.plant == Plant::LateCommit {
            return self.state.commit();
        }
        self.state.rollback();
    }

    fn create(&mut self, seq: SeqId) -> Result<(), BackendError> {
        self.state.create(seq)
    }

    fn fork(&mut self, from: SeqId, to: SeqId, len: usize) -> Result<usize, BackendError> {
        self.state.fork(from, to, len)
    }

    fn truncate(&mut self, seq: SeqId, len: usize) -> usize {
        self.state.truncate(seq, len)
    }

    fn free(&mut self, seq: SeqId) {
        self.state.free(seq);
    }

    fn state_bytes(&self) -> usize {
        self.state.state_bytes()
    }
}

fn report(plant: Plant, filter: &str) -> Report {
    let options = CpuOptions {
        threads: 2,
        ..CpuOptions::default()
    };
    let cpu = CpuBackend::with_options(options).unwrap();
    run(Planted { cpu, plant }, &Options::only(filter))
}

#[test]
fn planted_mistakes_are_found_and_named() {
    for (plant, filter, says) in [
        (
            Plant::WritePastEnd,
            "softmax/f32_3x19_axis1",
            "a write past the end of an output",
        ),
        (Plant::WriteBeforeStart, "softmax/f32_3x19_axis1", "before its start"),
        (Plant::ChangedInput, "add/f32_6x5", "inputs belong to the caller"),
        (
            Plant::SameMemory,
            "memory/outputs_outlive",
            "must not return memory that the next step overwrites",
        ),
        (
            Plant::WiderWindow,
            "sdpa/window3_f32_9x130",
            "an off-by-one window: one key too many",
        ),
        (
            Plant::WiderWindow,
            "segment/attention_window_f32",
            "an off-by-one window: one key too many",
        ),
        (Plant::MissingBias, "matmul/q4_k_bias", "a missing bias"),
        (Plant::MissingBias, "segment/encoder_f32", "a missing bias"),
        (Plant::TransposedWeight, "matmul/f32_square", "a transposed weight"),
        (Plant::TransposedWeight, "segment/gated_mlp_f32", "a transposed weight"),
        (Plant::LateCommit, "state/rollback", "a step is tentative until commit"),
    ] {
        let report = report(plant, filter);
        assert!(!report.is_ok(), "{plant:?} is not found by {filter}: {report}");
        assert!(
            report.to_string().contains(says),
            "{plant:?} is not called `{says}`: {report}"
        );
    }
}

#[test]
fn an_honest_wrapper_passes() {
    // The wrapper itself changes nothing: without its mistake, the cases above pass.
    for filter in [
        "softmax/f32_3x19_axis1",
        "memory/outputs_outlive",
        "segment/encoder_f32",
        "matmul/f32_square",
    ] {
        let report = report(Plant::WiderWindow, filter);
        assert!(report.is_ok(), "{report}");
    }
}
