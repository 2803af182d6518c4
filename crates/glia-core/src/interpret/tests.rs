//! The interpreted program as its caller sees it: what it refuses, and that tentative rows vanish.

use std::sync::Arc;

use super::*;
use crate::{ConstSource, Dim, InputRole, Instr, Op, SeqId, SeqRows, StateDef, StateId, Step, ValueDef, ValueId};

/// Runs nothing: caches and views are the interpreter's.
struct Nothing;

impl Backend for Nothing {
    fn name(&self) -> &str {
        "nothing"
    }
    fn supports(&self, _: &Op) -> bool {
        false
    }
    fn execute(&self, op: &Op, _: &[&Tensor]) -> Result<Vec<Tensor>, BackendError> {
        Err(BackendError::UnsupportedOp {
            backend: "nothing".into(),
            op: op.to_string(),
        })
    }
}

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

/// One cache of one column; returns all keys so far.
fn cache(op: Op) -> Segment {
    let rows = |d| ValueType::new(DType::F32, [d, Dim::fixed(1)]);
    let value = |name: &str, d, kind| ValueDef {
        name: name.into(),
        ty: rows(d),
        kind,
    };
    let input = |name: &str| value(name, Dim::T, ValueKind::Input(InputRole::Named(name.into())));
    let state = StateId(0);
    let ids = [ValueId(0), ValueId(1)];
    let spec = Op::KvCache.state(&[rows(Dim::T), rows(Dim::T)]).unwrap();
    Segment {
        values: vec![
            input("k"),
            input("v"),
            value("keys", Dim::PT, ValueKind::State(state, 0)),
            value("values", Dim::PT, ValueKind::State(state, 1)),
        ],
        instrs: vec![Instr {
            node: "cache".into(),
            op,
            inputs: ids.to_vec(),
            outputs: vec![ValueId(2), ValueId(3)],
            frees: vec![],
            state: Some(state),
        }],
        inputs: ids.to_vec(),
        outputs: vec![ValueId(2)],
        states: vec![StateDef {
            node: "cache".into(),
            spec,
        }],
        slots: vec![],
    }
}

fn open(max_context: usize, kv: DType) -> Box<dyn ProgramState> {
    let mut options = CompileOptions::new(&NoConsts, crate::Precision::Exact);
    options.max_context = max_context;
    options.kv_dtypes = [kv; 2];
    let program = InterpretedProgram::new(Arc::new(Nothing), Arc::new(cache(Op::KvCache)), &options).unwrap();
    program.open(&StateOptions::default()).unwrap()
}

fn rows(seq: u64, first_row: usize, n_rows: usize, pos: usize) -> SeqRows {
    SeqRows {
        seq: SeqId(seq),
        first_row,
        n_rows,
        pos,
    }
}

fn step(state: &mut dyn ProgramState, rows: &[SeqRows], values: &[f32]) -> Result<Vec<f32>, BackendError> {
    let x = Tensor::from_f32([values.len(), 1], values).unwrap();
    let out = state.run(&Step::new(rows, &[x.clone(), x], &[]))?;
    Ok(out[0].as_f32().unwrap().to_vec())
}

#[test]
fn rows_are_tentative_until_commit() {
    let mut state = open(100, DType::F32);
    state.create(SeqId(1)).unwrap();
    assert_eq!(step(&mut *state, &[rows(1, 0, 2, 0)], &[1.0, 2.0]).unwrap(), [1.0, 2.0]);
    state.rollback();
    assert_eq!(step(&mut *state, &[rows(1, 0, 1, 0)], &[3.0]).unwrap(), [3.0]);
    state.commit();
    assert_eq!(step(&mut *state, &[rows(1, 0, 1, 1)], &[4.0]).unwrap(), [3.0, 4.0]);
    state.commit();
    assert_eq!(state.fork(SeqId(1), SeqId(2), 1).unwrap(), 1);
    assert_eq!(step(&mut *state, &[rows(2, 0, 1, 1)], &[5.0]).unwrap(), [3.0, 5.0]);
    state.commit();
    assert_eq!((state.truncate(SeqId(1), 1), state.truncate(SeqId(1), 9)), (1, 1));
    assert_eq!(step(&mut *state, &[rows(1, 0, 1, 1)], &[6.0]).unwrap(), [3.0, 6.0]);
}

#[test]
fn wrong_steps_are_refused_and_named() {
    let mut state = open(4, DType::F32);
    state.create(SeqId(1)).unwrap();
    for (bad, said) in [
        (vec![rows(9, 0, 1, 0)], "unknown sequence 9"),
        (vec![rows(1, 0, 1, 3)], "has 0 tokens, not 3"),
        (vec![rows(1, 1, 1, 0)], "not dense"),
        (vec![rows(1, 0, 0, 0)], "not dense"),
        (vec![rows(1, 0, 1, 0), rows(1, 1, 1, 0)], "appears twice"),
        (vec![rows(1, 0, 5, 0)], "5 tokens needed, 4 fit"),
        (vec![rows(1, 0, 2, 0)], "input `k` is f32 [1, 1] instead of f32 [2, 1]"),
    ] {
        let err = step(&mut *state, &bad, &[1.0]).unwrap_err().to_string();
        assert!(err.contains(said), "{err} does not say {said}");
        state.rollback();
    }
    step(&mut *state, &[rows(1, 0, 1, 0)], &[1.0]).unwrap();
    let err = step(&mut *state, &[rows(1, 0, 1, 0)], &[1.0]).unwrap_err().to_string();
    assert!(err.contains("neither committed nor rolled back"), "{err}");
    assert!(state.create(SeqId(1)).is_err() && state.fork(SeqId(8), SeqId(3), 0).is_err());
    assert_eq!(state.truncate(SeqId(77), 1), 0);
    state.free(SeqId(77));
    state.free(SeqId(1));
    assert_eq!(state.state_bytes(), 0);
}

#[test]
fn a_first_step_that_is_rolled_back_leaves_no_memory() {
    let mut state = open(4, DType::F32);
    state.create(SeqId(1)).unwrap();
    step(&mut *state, &[rows(1, 0, 1, 0)], &[1.0]).unwrap();
    assert!(state.state_bytes() > 0);
    state.rollback();
    assert_eq!(state.state_bytes(), 0);
    assert_eq!(step(&mut *state, &[rows(1, 0, 1, 0)], &[2.0]).unwrap(), [2.0]);
}

#[test]
fn wrong_wanted_rows_and_arity_are_refused() {
    let mut state = open(4, DType::F32);
    state.create(SeqId(1)).unwrap();
    let x = Tensor::from_f32([1, 1], &[1.0]).unwrap();
    let one = [rows(1, 0, 1, 0)];
    for wanted in [vec![1], vec![0, 0]] {
        assert!(state.run(&Step::new(&one, &[x.clone(), x.clone()], &wanted)).is_err());
        state.rollback();
    }
    assert!(matches!(
        state.run(&Step::new(&one, &[x], &[])),
        Err(BackendError::WrongArity { .. })
    ));
}

#[test]
fn caches_round_as_their_storage_does() {
    let mut state = open(4, DType::F16);
    state.create(SeqId(1)).unwrap();
    let out = step(&mut *state, &[rows(1, 0, 1, 0)], &[0.1]).unwrap();
    assert_eq!(out, [half::f16::from_f32(0.1).to_f32()]);
}

#[test]
fn segments_that_cannot_run_are_refused() {
    let new = |segment| {
        let options = CompileOptions::new(&NoConsts, crate::Precision::Exact);
        InterpretedProgram::new(Arc::new(Nothing), Arc::new(segment), &options)
            .err()
            .map(|e| e.to_string())
    };
    let mut unknown_value = cache(Op::KvCache);
    unknown_value.instrs[0].inputs[0] = ValueId(40);
    assert_eq!(new(unknown_value).unwrap(), "unknown value 40");
    let mut endless = cache(Op::KvCache);
    endless.values[0].kind = ValueKind::Alias(ValueId(0));
    assert!(new(endless).is_some());
    let mut stateless = cache(Op::KvCache);
    stateless.instrs[0].state = None;
    assert!(new(stateless).unwrap().contains("node `cache`"));
    let said = new(cache(Op::Concat { axis: 0 })).unwrap();
    assert!(said.contains("nothing does not run concat"), "{said}");
    let mut no_weight = cache(Op::KvCache);
    no_weight.values[0].kind = ValueKind::Const(ConstId(3));
    assert!(new(no_weight).unwrap().contains("unknown weight 3"));
}
