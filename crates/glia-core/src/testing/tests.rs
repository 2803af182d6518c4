//! That the stand-ins are as strict as they say, and that recording changes nothing.

use std::sync::Arc;

use super::*;
use crate::{
    Backend, BackendError, CompileOptions, ConstId, ConstSource, Dim, InputRole, Instr, MemorySpace, Op, Precision,
    ProgramState, Segment, SeqId, SeqRows, StateOptions, Step, ValueDef, ValueId, ValueKind,
};

struct NoConsts;

impl ConstSource for NoConsts {
    fn tensor(&self, id: ConstId) -> Result<Tensor, BackendError> {
        Err(BackendError::UnknownId {
            what: "weight",
            id: id.0.into(),
        })
    }
    fn n_consts(&self) -> usize {
        0
    }
}

/// `y = relu(x)`, a row per token.
fn relu() -> Segment {
    let value = |name: &str, kind| ValueDef {
        name: name.into(),
        ty: ValueType::new(DType::F32, [Dim::T, Dim::fixed(2)]),
        kind,
    };
    let (x, y) = (ValueId(0), ValueId(1));
    Segment {
        values: vec![
            value("x", ValueKind::Input(InputRole::Named("x".into()))),
            value("y", ValueKind::Dynamic),
        ],
        instrs: vec![Instr {
            node: "relu".into(),
            op: Op::Unary(crate::Unary::Relu),
            inputs: vec![x],
            outputs: vec![y],
            frees: vec![],
            state: None,
        }],
        inputs: vec![x],
        outputs: vec![y],
        ..Segment::default()
    }
}

fn open(backend: &dyn Backend) -> Box<dyn ProgramState> {
    let mut options = CompileOptions::new(&NoConsts, Precision::Exact);
    options.max_context = 8;
    let program = backend.compile(&relu(), &options).unwrap().unwrap();
    program.open(&StateOptions::default()).unwrap()
}

fn step(state: &mut dyn ProgramState, x: &Tensor, pos: usize) -> Result<Vec<Tensor>, BackendError> {
    let rows = [SeqRows {
        seq: SeqId(1),
        first_row: 0,
        n_rows: x.shape()[0],
        pos,
    }];
    state.run(&Step::new(&rows, std::slice::from_ref(x), &[]))
}

#[test]
fn a_null_program_holds_its_caller_to_the_contract() {
    let device = NullBackend::new().in_space(MemorySpace(5)).compiling();
    let mut state = open(&device);
    let host = Tensor::zeros(DType::F32, [3, 2]).unwrap();
    let x = device.upload(&host).unwrap();
    let said = |state: &mut dyn ProgramState, x: &Tensor, pos| {
        let said = step(state, x, pos).unwrap_err().to_string();
        state.rollback();
        said
    };
    assert!(said(&mut *state, &x, 0).contains("unknown sequence 1"));
    state.create(SeqId(1)).unwrap();
    assert!(state.create(SeqId(1)).is_err() && state.fork(SeqId(9), SeqId(2), 0).is_err());
    assert!(said(&mut *state, &x, 1).contains("has 0 tokens, not 1"));
    let other = NullBackend::new().in_space(MemorySpace(6)).upload(&host).unwrap();
    assert!(said(&mut *state, &other, 0).contains("another memory"));
    let wrong = device.upload(&Tensor::zeros(DType::F32, [3, 1]).unwrap()).unwrap();
    assert!(said(&mut *state, &wrong, 0).contains("instead of f32 [3, 2]"));

    // What the caller gives lies on the host.
    step(&mut *state, &host, 0).unwrap();
    state.rollback();
    let out = step(&mut *state, &x, 0).unwrap();
    assert_eq!(device.download(&out[0]).unwrap().as_f32().unwrap(), [0.0; 6]);
    let twice = step(&mut *state, &x, 0).unwrap_err().to_string();
    assert!(twice.contains("neither committed nor rolled back"), "{twice}");
    state.commit();
    step(&mut *state, &x, 3).unwrap();
    state.commit();
    assert!(said(&mut *state, &x, 6).contains("9 tokens needed, 8 fit"));
    assert_eq!((state.truncate(SeqId(1), 4), state.truncate(SeqId(1), 7)), (4, 4));
    assert_eq!(state.fork(SeqId(1), SeqId(2), 3).unwrap(), 3);
    state.free(SeqId(1));
    assert_eq!(state.truncate(SeqId(1), 9), 0);
}

#[test]
fn recording_interprets_what_its_backend_does_not_compile_and_keeps_the_bits() {
    /// Level 0.
    struct Relu;
    impl Backend for Relu {
        fn name(&self) -> &str {
            "relu"
        }
        fn supports(&self, op: &Op) -> bool {
            op.kind() == "relu"
        }
        fn execute(&self, _: &Op, inputs: &[&Tensor]) -> Result<Vec<Tensor>, BackendError> {
            let values: Vec<f32> = inputs[0].as_f32()?.iter().map(|x| x.max(0.0)).collect();
            Ok(vec![Tensor::from_f32(*inputs[0].shape(), &values)?])
        }
    }
    let backend = RecordingBackend::new(Arc::new(Relu));
    let mut state = open(&backend);
    state.create(SeqId(1)).unwrap();
    let x = Tensor::from_f32([2, 2], &[-1.0, 2.0, 3.0, -4.0]).unwrap();
    assert_eq!(
        step(&mut *state, &x, 0).unwrap()[0].as_f32().unwrap(),
        [0.0, 2.0, 3.0, 0.0]
    );
    state.commit();
    backend.arm(Call::Execute, 1, Fault::Fails);
    assert!(step(&mut *state, &x, 2).is_err());
    state.rollback();
    assert_eq!(
        backend.journal().take(),
        [
            "relu: compile 1 nodes as relu.0, steps of 512, contexts of 8, Exact, caches of f32/f32, interpreted",
            "relu.0: open",
            "relu.0: create 1",
            "relu: execute `relu` relu of f32[2, 2] -> f32[2, 2]",
            "relu.0: run 1@0+2 wanting [] of f32[2, 2] -> f32[2, 2]",
            "relu.0: commit",
            "relu: execute `relu` relu of f32[2, 2] fails: told to",
            "relu.0: run 1@2+2 wanting [] of f32[2, 2] fails: node `relu` (relu) on backend relu: told to",
            "relu.0: rollback",
        ]
    );
}
