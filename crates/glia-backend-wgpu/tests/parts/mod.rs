//! What the tests share: the devices to run on, random numbers, and programs run beside the interpreted oracle.
#![allow(dead_code)] // Each test file uses its own part of this.

use std::sync::Arc;

use glia_backend_wgpu::{Kernels, WgpuBackend, WgpuOptions};
use glia_core::reference::ReferenceBackend;
use glia_core::{
    Backend, BackendError, CompileOptions, ConstId, ConstSource, DType, InputRole, Instr, InterpretedProgram, Op,
    Precision, ProgramState, Segment, SeqId, SeqRows, StateDef, StateId, StateOptions, Step, Tensor, ValueDef, ValueId,
    ValueKind, ValueType,
};

/// Numbers between -2 and 2.
pub fn noise(n: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 4_194_304.0 - 2.0
    };
    (0..n).map(|_| next()).collect()
}

/// A random tensor.
pub fn random(shape: &[usize], seed: u32) -> Tensor {
    Tensor::from_f32(shape, &noise(shape.iter().product(), seed)).unwrap()
}

/// The device with all its features and with the baseline's, each with both forms of kernels.
pub fn devices() -> Vec<(&'static str, WgpuBackend)> {
    let open = |baseline, kernels| {
        let options = WgpuOptions::default().with_baseline(baseline).with_kernels(kernels);
        WgpuBackend::new(options).unwrap()
    };
    vec![
        ("all features, alone", open(false, Kernels::Auto)),
        ("all features, together", open(false, Kernels::Together)),
        ("baseline, alone", open(true, Kernels::Auto)),
        ("baseline, together", open(true, Kernels::Together)),
    ]
}

/// The first element that differs by more than `bound` times its size, one at least.
pub fn difference(got: &Tensor, expected: &Tensor, bound: f32) -> Option<String> {
    if got.shape() != expected.shape() {
        return Some(format!("shape {} not {}", got.shape(), expected.shape()));
    }
    let pairs = got.as_f32().unwrap().iter().zip(expected.as_f32().unwrap());
    let mut wrong = pairs.enumerate().filter(|(_, (a, b))| {
        let same = a.is_nan() && b.is_nan() || a == b;
        !same && !((*a - *b).abs() <= bound * b.abs().max(1.0))
    });
    let (i, (a, b)) = wrong.next()?;
    Some(format!("element {i} is {a}, not {b}; {} more", wrong.count()))
}

/// A segment in the making.
#[derive(Default)]
pub struct Build {
    pub segment: Segment,
    pub weights: Vec<Tensor>,
}

impl Build {
    fn value(&mut self, name: &str, ty: ValueType, kind: ValueKind) -> ValueId {
        let id = ValueId(self.segment.values.len() as u32);
        let name = name.to_owned();
        self.segment.values.push(ValueDef { name, ty, kind });
        id
    }

    pub fn input(&mut self, name: &str, ty: ValueType) -> ValueId {
        let id = self.value(name, ty, ValueKind::Input(InputRole::Named(name.to_owned())));
        self.segment.inputs.push(id);
        id
    }

    pub fn weight(&mut self, name: &str, tensor: Tensor) -> ValueId {
        let ty = ValueType::fixed(tensor.dtype(), tensor.shape());
        let id = ConstId(self.weights.len() as u32);
        self.weights.push(tensor);
        self.value(name, ty, ValueKind::Const(id))
    }

    /// Adds an op; views and caches get values of their kinds.
    pub fn op(&mut self, op: Op, inputs: &[ValueId]) -> Vec<ValueId> {
        let types: Vec<ValueType> = inputs.iter().map(|&id| self.segment.value(id).ty.clone()).collect();
        let node = format!("n{}", self.segment.instrs.len());
        let state = op.state(&types).map(|spec| {
            let node = node.clone();
            self.segment.states.push(StateDef { node, spec });
            StateId(self.segment.states.len() as u32 - 1)
        });
        let mut outputs = Vec::new();
        for (i, ty) in op.infer(&types).unwrap().into_iter().enumerate() {
            let kind = match state {
                Some(state) => ValueKind::State(state, i),
                None if op.is_view() => ValueKind::Alias(inputs[0]),
                None => ValueKind::Dynamic,
            };
            outputs.push(self.value(&format!("{node}.{i}"), ty, kind));
        }
        self.segment.instrs.push(Instr {
            node,
            op,
            inputs: inputs.to_vec(),
            outputs: outputs.clone(),
            frees: Vec::new(),
            state,
        });
        outputs
    }
}

impl ConstSource for Build {
    fn tensor(&self, id: ConstId) -> Result<Tensor, BackendError> {
        let unknown = BackendError::UnknownId {
            what: "weight",
            id: id.0.into(),
        };
        self.weights.get(id.index()).cloned().ok_or(unknown)
    }

    fn n_consts(&self) -> usize {
        self.weights.len()
    }
}

/// What is done to the sequences of a program.
#[derive(Clone, Debug)]
pub enum Act {
    Create(u64),
    /// Rows of each sequence; its length before.
    Run(Vec<(u64, usize, usize)>),
    /// As [`Act::Run`], taken back.
    Undo(Vec<(u64, usize, usize)>),
    Fork(u64, u64, usize),
    Truncate(u64, usize),
    Free(u64),
}

/// Runs acts on a state; what each step returned.
fn play(
    mut state: Box<dyn ProgramState>,
    acts: &[Act],
    inputs: &dyn Fn(usize, &[SeqRows]) -> Vec<Tensor>,
    download: &dyn Fn(&Tensor) -> Tensor,
) -> Vec<Tensor> {
    let mut all = Vec::new();
    for (i, act) in acts.iter().enumerate() {
        match act {
            Act::Create(seq) => state.create(SeqId(*seq)).unwrap(),
            Act::Fork(from, to, len) => assert_eq!(state.fork(SeqId(*from), SeqId(*to), *len).unwrap(), *len),
            Act::Truncate(seq, len) => assert_eq!(state.truncate(SeqId(*seq), *len), *len),
            Act::Free(seq) => state.free(SeqId(*seq)),
            Act::Run(each) | Act::Undo(each) => {
                let mut rows = Vec::new();
                let mut first_row = 0;
                for &(seq, n_rows, pos) in each {
                    let seq = SeqId(seq);
                    rows.push(SeqRows {
                        seq,
                        first_row,
                        n_rows,
                        pos,
                    });
                    first_row += n_rows;
                }
                let given = inputs(i, &rows);
                let outputs = state.run(&Step::new(&rows, &given, &[])).unwrap();
                all.extend(outputs.iter().map(download));
                match act {
                    Act::Run(_) => state.commit(),
                    _ => state.rollback(),
                }
            }
        }
    }
    all
}

/// One step of one sequence on a device.
pub fn run_once(gpu: &WgpuBackend, build: &Build, precision: Precision, inputs: &[Tensor]) -> Vec<Tensor> {
    let mut options = CompileOptions::new(build, precision);
    options.max_context = 4096;
    options.max_step_tokens = 512;
    let program = gpu.compile(&build.segment, &options).unwrap().unwrap();
    let state = program.open(&StateOptions::default()).unwrap();
    let n_rows = inputs[0].shape()[0];
    let acts = [Act::Create(0), Act::Run(vec![(0, n_rows, 0)])];
    play(state, &acts, &|_, _| inputs.to_vec(), &|t| gpu.download(t).unwrap())
}

/// Runs acts on a device and on the oracle and says where they differ.
pub fn compare(
    gpu: &WgpuBackend,
    build: &Build,
    kv: DType,
    acts: &[Act],
    inputs: &dyn Fn(usize, &[SeqRows]) -> Vec<Tensor>,
    bound: f32,
) -> Option<String> {
    compare_in(Precision::Exact, gpu, build, kv, acts, inputs, bound)
}

/// [`compare`] where the device computes in a precision.
pub fn compare_in(
    precision: Precision,
    gpu: &WgpuBackend,
    build: &Build,
    kv: DType,
    acts: &[Act],
    inputs: &dyn Fn(usize, &[SeqRows]) -> Vec<Tensor>,
    bound: f32,
) -> Option<String> {
    let mut options = CompileOptions::new(build, Precision::Exact);
    options.kv_dtypes = [kv; 2];
    options.max_context = 4096;
    options.max_step_tokens = 512;
    let oracle =
        InterpretedProgram::new(Arc::new(ReferenceBackend), Arc::new(build.segment.clone()), &options).unwrap();
    let oracle = oracle.open(&StateOptions::default()).unwrap();
    let expected = play(oracle, acts, inputs, &|t| t.clone());
    options.precision = precision;
    let program = gpu.compile(&build.segment, &options).unwrap().unwrap();
    let state = program.open(&StateOptions::default()).unwrap();
    let got = play(state, acts, inputs, &|t| gpu.download(t).unwrap());
    let faults = got.iter().zip(&expected).enumerate();
    let mut faults = faults.filter_map(|(i, (got, expected))| Some((i, difference(got, expected, bound)?)));
    faults.next().map(|(i, fault)| format!("output {i}: {fault}"))
}
