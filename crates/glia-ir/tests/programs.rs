//! Backends that compile whole segments: what the executor hands them, and what it accepts back.

mod toy;

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use glia_core::{
    Backend, BackendError, CompileOptions, DType, Op, Precision, Program, ProgramState, Segment, SeqId, Sizes,
    StateOptions, Step, Tensor,
};
use glia_ir::{ExecConfig, ExecError, GraphExecutor};
use toy::{ids, model, weights};

/// Computes nothing: outputs of zeros in the planned shapes, and a record of what was asked.
#[derive(Default)]
struct Recording {
    log: Arc<Mutex<Vec<String>>>,
    /// What is wrong with the outputs of the next run.
    wrong: Arc<Mutex<Option<Wrong>>>,
    /// How much shorter than asked `truncate` and `fork` end.
    rewinds_to: Arc<AtomicUsize>,
}

#[derive(Clone, Copy)]
enum Wrong {
    None,
    Fails,
    Panics,
    NaN,
    TooMany,
    TooFew,
    Shape,
    DType,
}

impl Backend for Recording {
    fn name(&self) -> &str {
        "recording"
    }
    fn supports(&self, _: &Op) -> bool {
        true
    }
    fn execute(&self, op: &Op, _: &[&Tensor]) -> Result<Vec<Tensor>, BackendError> {
        Err(BackendError::UnsupportedOp {
            backend: "recording".into(),
            op: op.to_string(),
        })
    }
    fn compile(
        &self,
        segment: &Segment,
        options: &CompileOptions<'_>,
    ) -> Result<Option<Arc<dyn Program>>, BackendError> {
        self.log.lock().unwrap().push(format!(
            "compile {} of {} in {} as {:?} with {}/{}",
            segment.instrs.len(),
            options.max_step_tokens,
            options.max_context,
            options.precision,
            options.kv_dtypes[0],
            options.kv_dtypes[1],
        ));
        Ok(Some(Arc::new(Compiled {
            segment: segment.clone(),
            log: self.log.clone(),
            wrong: self.wrong.clone(),
            rewinds_to: self.rewinds_to.clone(),
        })))
    }
}

#[derive(Clone)]
struct Compiled {
    segment: Segment,
    log: Arc<Mutex<Vec<String>>>,
    wrong: Arc<Mutex<Option<Wrong>>>,
    rewinds_to: Arc<AtomicUsize>,
}

impl Program for Compiled {
    fn open(self: Arc<Self>, _: &StateOptions) -> Result<Box<dyn ProgramState>, BackendError> {
        Ok(Box::new((*self).clone()))
    }
}

impl Compiled {
    fn say(&self, what: String) {
        self.log.lock().unwrap().push(what);
    }
}

impl ProgramState for Compiled {
    fn run(&mut self, step: &Step<'_>) -> Result<Vec<Tensor>, BackendError> {
        let rows: Vec<String> = step
            .rows
            .iter()
            .map(|r| format!("{}@{}+{}", r.seq.0, r.pos, r.n_rows))
            .collect();
        self.say(format!("run {} wanting {:?}", rows.join(" "), step.wanted_rows));
        let sizes = Sizes {
            t: step.n_rows(),
            r: step.wanted_rows.len(),
            ..Sizes::default()
        };
        let zeros = |ty: &glia_core::ValueType| Tensor::zeros(ty.dtype, ty.shape(&sizes).unwrap()).unwrap();
        let mut out: Vec<Tensor> = self.segment.types(&self.segment.outputs).iter().map(zeros).collect();
        let wrong = self.wrong.lock().unwrap().take();
        match wrong.unwrap_or(Wrong::None) {
            Wrong::None => {}
            Wrong::Fails => {
                return Err(BackendError::DeviceLost {
                    reason: "told to".into(),
                });
            }
            Wrong::Panics => panic!("told to"),
            Wrong::NaN => out[0].as_f32_mut().unwrap().fill(f32::NAN),
            Wrong::TooMany => out.push(out[0].clone()),
            Wrong::TooFew => out.clear(),
            Wrong::Shape => out[0] = Tensor::zeros(DType::F32, [1]).unwrap(),
            Wrong::DType => out[0] = Tensor::zeros(DType::I32, *out[0].shape()).unwrap(),
        }
        Ok(out)
    }
    fn commit(&mut self) {
        self.say("commit".into());
    }
    fn rollback(&mut self) {
        self.say("rollback".into());
    }
    fn create(&mut self, seq: SeqId) -> Result<(), BackendError> {
        self.say(format!("create {}", seq.0));
        Ok(())
    }
    fn fork(&mut self, from: SeqId, to: SeqId, len: usize) -> Result<usize, BackendError> {
        self.say(format!("fork {} {} {len}", from.0, to.0));
        Ok(len.min(self.rewinds_to.load(SeqCst)))
    }
    fn truncate(&mut self, seq: SeqId, len: usize) -> usize {
        self.say(format!("truncate {} {len}", seq.0));
        len.min(self.rewinds_to.load(SeqCst))
    }
    fn free(&mut self, seq: SeqId) {
        self.say(format!("free {}", seq.0));
    }
}

fn executor(backend: Recording) -> GraphExecutor {
    backend.rewinds_to.store(usize::MAX, SeqCst);
    let graph = model(1, true);
    let weights = weights(&graph);
    let config = ExecConfig::default()
        .with_max_step_tokens(4)
        .with_max_context(99)
        .with_precision(Precision::Exact)
        .with_kv_dtypes([DType::F16, DType::Q8_0]);
    GraphExecutor::prepare(graph, weights, vec![Arc::new(backend)], config).unwrap()
}

fn taken(log: &Mutex<Vec<String>>) -> Vec<String> {
    std::mem::take(&mut *log.lock().unwrap())
}

#[test]
fn a_program_sees_steps_of_dense_rows_and_one_commit_each() {
    let backend = Recording::default();
    let log = backend.log.clone();
    let ex = executor(backend);
    assert_eq!(
        taken(&log),
        ["compile 14 of 4 in 99 as Exact with f16/q8_0", "create 0"]
    );
    let (mut a, mut b) = (ex.session().unwrap(), ex.session().unwrap());
    let (x, y) = ([("input_ids", ids(&[1, 2, 3, 4, 5]))], [("input_ids", ids(&[6, 7]))]);
    ex.run_batch(&mut [(&mut a, &x), (&mut b, &y)]).unwrap();
    let c = a.fork().unwrap();
    drop((b, c));
    let said = taken(&log);
    let expected = [
        "create 1",
        "create 2",
        "run 1@0+4 wanting [0, 1, 2, 3]",
        "commit",
        "run 1@4+1 2@0+2 wanting [0, 1, 2]",
        "commit",
        "fork 1 3 5",
        "truncate 3 5",
        "free 2",
        "free 3",
    ];
    assert_eq!(said, expected);
}

#[test]
fn wrong_outputs_of_a_program_are_named_and_rolled_back() {
    let backend = Recording::default();
    let (log, wrong) = (backend.log.clone(), backend.wrong.clone());
    let mut ex = executor(backend);
    let x = [("input_ids", ids(&[1]))];
    for (fault, said) in [
        (Wrong::TooMany, "returned 2 outputs instead of 1"),
        (Wrong::TooFew, "returned 0 outputs instead of 1"),
        (Wrong::Shape, "returned `lm_head` as f32[1] instead of f32[1, 16]"),
        (Wrong::DType, "returned `lm_head` as i32"),
    ] {
        taken(&log);
        *wrong.lock().unwrap() = Some(fault);
        let err = ex.run(&x).unwrap_err();
        assert!(matches!(
            err,
            ExecError::WrongOutputs { .. } | ExecError::WrongOutput { .. }
        ));
        assert!(
            err.to_string().contains(said) && err.to_string().contains("recording"),
            "{err}"
        );
        assert_eq!(taken(&log)[1..3], ["rollback", "truncate 0 0"]);
    }
    ex.run(&x).unwrap();
}

#[test]
fn a_state_that_rewinds_to_checkpoints_only_says_where_it_is() {
    let backend = Recording::default();
    let rewinds_to = backend.rewinds_to.clone();
    let ex = executor(backend);
    let mut session = ex.session().unwrap();
    session.run(&[("input_ids", ids(&[1, 2, 3, 4, 5]))]).unwrap();
    rewinds_to.store(2, SeqCst);
    assert_eq!(session.fork().unwrap().pos(), 2);
    assert_eq!((session.truncate(4), session.pos()), (2, 2));
}

#[test]
fn programs_that_fail_or_panic_are_rolled_back_and_asked_again() {
    let backend = Recording::default();
    let (log, wrong) = (backend.log.clone(), backend.wrong.clone());
    let mut ex = executor(backend);
    ex.run(&[("input_ids", ids(&[1]))]).unwrap();
    for (fault, said) in [
        (Wrong::Fails, "the device was lost: told to"),
        (Wrong::Panics, "the backend panicked"),
        (Wrong::NaN, "`logits` holds NaN"),
    ] {
        taken(&log);
        *wrong.lock().unwrap() = Some(fault);
        let x = [("input_ids", ids(&[1, 2, 3, 4, 5]))];
        let err = ex.run(&x).unwrap_err().to_string();
        assert!(err.contains(said), "{err}");
        let run = "run 0@1+4 wanting [0, 1, 2, 3]";
        assert_eq!(taken(&log), [run, "rollback", "truncate 0 1"]);
        ex.run(&x).unwrap();
        assert_eq!(taken(&log), [run, "commit", "run 0@5+1 wanting [0]", "commit"]);
        ex.default_session().truncate(1);
    }
}

/// Panics when it compiles.
struct Breaking;

impl Backend for Breaking {
    fn name(&self) -> &str {
        "breaking"
    }
    fn supports(&self, _: &Op) -> bool {
        true
    }
    fn execute(&self, _: &Op, _: &[&Tensor]) -> Result<Vec<Tensor>, BackendError> {
        panic!("not reached")
    }
    fn compile(&self, _: &Segment, _: &CompileOptions<'_>) -> Result<Option<Arc<dyn Program>>, BackendError> {
        panic!("told to")
    }
}

#[test]
fn a_backend_that_panics_while_it_compiles_fails_prepare() {
    let graph = model(1, true);
    let weights = weights(&graph);
    let made = GraphExecutor::prepare(graph, weights, vec![Arc::new(Breaking)], ExecConfig::default());
    let said = made.unwrap_err().to_string();
    assert!(said.contains("panicked") && said.contains("told to"), "{said}");
}
