//! Devices that are lost: the request that meets the loss fails with its error, sequences on the device are gone, and
//! the next session finds everything compiled again, once, with the same bits.

mod toy;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use glia_core::testing::{Call, Fault, RecordingBackend};
use glia_core::{
    Backend, BackendError, CompileOptions, NodeView, Op, Program, ProgramState, Segment, SeqId, StateOptions, Step,
    Tensor,
};
use glia_ir::{ExecConfig, ExecError, GraphExecutor, HeldWeights, Session, WeightSource};
use toy::{Toy, VOCAB, floats, ids, model, weights};

/// The toy on a device that can be lost, and that the next compilation replaces.
struct Fragile {
    inner: RecordingBackend,
    /// Whether the device of now is lost.
    lost: Mutex<Arc<AtomicBool>>,
    /// Whether programs know of the loss before a step meets it.
    tells: bool,
    n_compiled: AtomicUsize,
    /// How many compilations are refused from now on.
    refusals: AtomicUsize,
}

impl Fragile {
    fn new(name: &'static str, only: &'static [&'static str], tells: bool) -> Arc<Fragile> {
        let toy = Toy { name, only, space: 0 };
        Arc::new(Fragile {
            inner: RecordingBackend::new(Arc::new(toy)).with_programs(),
            lost: Mutex::default(),
            tells,
            n_compiled: AtomicUsize::new(0),
            refusals: AtomicUsize::new(0),
        })
    }

    fn lose(&self) {
        self.lost.lock().unwrap().store(true, SeqCst);
    }

    fn n_compiled(&self) -> usize {
        self.n_compiled.load(SeqCst)
    }
}

impl Backend for Fragile {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn supports(&self, op: &Op) -> bool {
        self.inner.supports(op)
    }

    fn execute(&self, op: &Op, inputs: &[&Tensor]) -> Result<Vec<Tensor>, BackendError> {
        self.inner.execute(op, inputs)
    }

    fn supports_node(&self, node: &NodeView<'_>) -> bool {
        self.inner.supports_node(node)
    }

    fn compile(
        &self,
        segment: &Segment,
        options: &CompileOptions<'_>,
    ) -> Result<Option<Arc<dyn Program>>, BackendError> {
        let one_less = |n: usize| n.checked_sub(1);
        if self.refusals.fetch_update(SeqCst, SeqCst, one_less).is_ok() {
            return Err(BackendError::Other("no new device".into()));
        }
        let lost = {
            let mut held = self.lost.lock().unwrap();
            if held.load(SeqCst) {
                *held = Arc::default();
            }
            held.clone()
        };
        let Some(inner) = self.inner.compile(segment, options)? else {
            return Ok(None);
        };
        self.n_compiled.fetch_add(1, SeqCst);
        Ok(Some(Arc::new(OnDevice {
            inner,
            lost,
            tells: self.tells,
        })))
    }
}

struct OnDevice {
    inner: Arc<dyn Program>,
    lost: Arc<AtomicBool>,
    tells: bool,
}

impl Program for OnDevice {
    fn open(self: Arc<Self>, options: &StateOptions) -> Result<Box<dyn ProgramState>, BackendError> {
        Ok(Box::new(State {
            inner: self.inner.clone().open(options)?,
            lost: self.lost.clone(),
        }))
    }

    fn is_lost(&self) -> bool {
        self.tells && self.lost.load(SeqCst)
    }
}

struct State {
    inner: Box<dyn ProgramState>,
    lost: Arc<AtomicBool>,
}

impl ProgramState for State {
    fn run(&mut self, step: &Step<'_>) -> Result<Vec<Tensor>, BackendError> {
        if self.lost.load(SeqCst) {
            let reason = "pulled out".to_owned();
            return Err(BackendError::DeviceLost { reason });
        }
        self.inner.run(step)
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

fn prepare(backends: Vec<Arc<dyn Backend>>, weights: impl WeightSource) -> GraphExecutor {
    let config = ExecConfig::default().with_max_step_tokens(3).with_max_context(32);
    GraphExecutor::prepare(model(2, true), weights, backends, config).unwrap()
}

fn held() -> HeldWeights {
    HeldWeights(Arc::new(weights(&model(2, true))))
}

fn logits(session: &mut Session, tokens: &[i32]) -> Result<Vec<f32>, ExecError> {
    let outputs = session.run(&[("input_ids", ids(tokens))])?;
    Ok(floats(outputs.get("logits").unwrap()))
}

fn assert_lost<T>(result: Result<T, ExecError>) {
    let Err(error) = result else {
        panic!("the device is gone")
    };
    assert!(error.is_device_lost(), "{error}");
}

const PROMPT: [i32; 5] = [3, 1, 4, 1, 5];

#[test]
fn a_new_session_has_new_programs_and_the_same_bits() {
    for tells in [true, false] {
        let device = Fragile::new("device", &[], tells);
        let ex = prepare(vec![device.clone()], held());
        let expected = logits(&mut ex.session().unwrap(), &PROMPT).unwrap();
        for n in 2..5 {
            let mut session = ex.session().unwrap();
            logits(&mut session, &PROMPT[..2]).unwrap();
            device.lose();
            assert_lost(logits(&mut session, &PROMPT[2..]));
            assert_eq!(session.pos(), 2);
            assert_eq!(device.n_compiled(), n - 1, "nothing is done until a session asks");
            let mut new = ex.session().unwrap();
            assert_eq!(device.n_compiled(), n, "compiled again");
            assert_eq!(logits(&mut new, &PROMPT).unwrap(), expected);
            assert_lost(logits(&mut session, &PROMPT[2..]));
            ex.session().unwrap();
            assert_eq!(device.n_compiled(), n, "once");
        }
        assert_eq!(ex.state_bytes(), 0, "all sequences of now were dropped");
    }
}

#[test]
fn a_loss_that_no_run_has_met_is_found_when_a_session_opens() {
    let device = Fragile::new("device", &[], true);
    let ex = prepare(vec![device.clone()], held());
    device.lose();
    logits(&mut ex.session().unwrap(), &PROMPT).unwrap();
    assert_eq!(device.n_compiled(), 2);
}

#[test]
fn sessions_with_tokens_fail_until_they_are_reset() {
    let device = Fragile::new("device", &[], false);
    let mut ex = prepare(vec![device.clone()], held());
    let mut old = ex.session().unwrap();
    let expected = logits(&mut old, &PROMPT).unwrap();
    let (mut fork, mut empty) = (old.fork().unwrap(), ex.session().unwrap());
    device.lose();
    assert_lost(logits(&mut fork, &[1]));
    for _ in 0..2 {
        assert_lost(logits(&mut old, &[1]));
        assert_lost(logits(&mut fork, &[1]));
        assert_lost(old.fork());
    }
    assert_eq!((old.pos(), fork.pos(), fork.truncate(2)), (5, 5, 2));
    assert_lost(logits(&mut fork, &[1]));
    assert_eq!(device.n_compiled(), 1, "sessions that are lost bring nothing back");
    // One that held nothing has lost nothing.
    assert_eq!(logits(&mut empty, &PROMPT).unwrap(), expected);
    assert_eq!(logits(&mut ex.session().unwrap(), &PROMPT).unwrap(), expected);
    old.reset();
    assert_eq!(logits(&mut old, &PROMPT).unwrap(), expected);
    // Together with one that is lost nobody runs.
    let (x, y) = ([("input_ids", ids(&[1]))], [("input_ids", ids(&[2]))]);
    assert_lost(ex.run_batch(&mut [(&mut old, &x), (&mut fork, &y)]));
    assert_lost(ex.run_batch(&mut [(&mut fork, &y), (&mut old, &x)]));
    assert_eq!((old.pos(), fork.pos()), (5, 2));
    fork.reset();
    ex.run_batch(&mut [(&mut old, &x), (&mut fork, &y)]).unwrap();
    // The session that the executor brings along held nothing.
    ex.run(&[("input_ids", ids(&PROMPT))]).unwrap();
    assert_eq!(device.n_compiled(), 2);
}

#[test]
fn compiling_that_fails_is_said_and_tried_again() {
    let device = Fragile::new("device", &[], true);
    let ex = prepare(vec![device.clone()], held());
    let expected = logits(&mut ex.session().unwrap(), &PROMPT).unwrap();
    device.lose();
    device.refusals.store(2, SeqCst);
    for _ in 0..2 {
        let error = ex.session().unwrap_err().to_string();
        assert!(error.contains("no new device"), "{error}");
    }
    assert_eq!(logits(&mut ex.session().unwrap(), &PROMPT).unwrap(), expected);
    // A panic is an error as well, and leaves no lock behind.
    device.lose();
    device.inner.arm(Call::Compile, 1, Fault::Panics);
    assert!(ex.session().unwrap_err().to_string().contains("panicked"));
    device.inner.disarm();
    assert_eq!(logits(&mut ex.session().unwrap(), &PROMPT).unwrap(), expected);
}

#[test]
fn of_many_threads_one_compiles_and_the_others_wait() {
    let device = Fragile::new("device", &[], false);
    let ex = prepare(vec![device.clone()], held());
    let expected = logits(&mut ex.session().unwrap(), &PROMPT).unwrap();
    let n_failed = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (ex, device, expected, n_failed) = (&ex, &device, &expected, &n_failed);
            scope.spawn(move || {
                for round in 0..40 {
                    if thread == 0 && round % 10 == 5 {
                        device.lose();
                    }
                    let mut session = ex.session().unwrap();
                    match logits(&mut session, &PROMPT) {
                        Ok(logits) => assert_eq!(logits, *expected),
                        Err(e) => {
                            assert!(e.is_device_lost(), "{e}");
                            n_failed.fetch_add(1, SeqCst);
                        }
                    }
                }
            });
        }
    });
    // Whoever is on the device or opens a session before its loss was met fails once; nobody twice for one loss.
    let n_failed = n_failed.load(SeqCst);
    assert!(
        (1..=16).contains(&n_failed),
        "{n_failed} requests failed of four losses"
    );
    let n_compiled = device.n_compiled();
    assert!(
        (2..=5).contains(&n_compiled),
        "{n_compiled} compilations for four losses"
    );
}

#[test]
fn programs_of_other_backends_are_kept() {
    let (device, host) = (
        Fragile::new("device", &["sdpa", "add"], false),
        Fragile::new("host", &[], false),
    );
    let ex = prepare(vec![device.clone(), host.clone()], held());
    let n = [device.n_compiled(), host.n_compiled()];
    assert!(n[0] > 1 && n[1] > 1, "{n:?} regions");
    let mut session = ex.session().unwrap();
    let expected = logits(&mut session, &PROMPT).unwrap();
    device.lose();
    assert_lost(logits(&mut session, &[1]));
    assert_eq!(logits(&mut ex.session().unwrap(), &PROMPT).unwrap(), expected);
    assert_eq!([device.n_compiled(), host.n_compiled()], [2 * n[0], n[1]]);
    assert_lost(logits(&mut session, &[1]));
}

/// The same for programs that are interpreted, whichever call of the backend meets the loss.
#[test]
fn any_call_can_meet_the_loss() {
    let device = Toy {
        name: "device",
        only: &["sdpa", "add"],
        space: 7,
    }
    .recorded();
    let host = toy::toy();
    let ex = prepare(vec![device.clone(), host.clone()], held());
    let expected = logits(&mut ex.session().unwrap(), &PROMPT).unwrap();
    for call in [Call::Execute, Call::Upload, Call::Download] {
        device.arm(call, 1, Fault::LosesDevice);
        let mut session = ex.session().unwrap();
        assert_lost(logits(&mut session, &PROMPT));
        device.disarm();
        // A session without tokens is as good as a new one.
        assert_eq!(logits(&mut session, &PROMPT).unwrap(), expected, "{call:?}");
    }
}

#[test]
fn a_loss_that_opening_meets_costs_nothing() {
    let device = Toy {
        name: "device",
        only: &[],
        space: 0,
    }
    .recorded();
    let recorded = RecordingBackend::new(device).with_programs();
    let ex = prepare(vec![Arc::new(recorded.clone())], held());
    recorded.arm(Call::Create, 1, Fault::LosesDevice);
    logits(&mut ex.session().unwrap(), &PROMPT).unwrap();
    // One that goes on is an error.
    recorded.on_call(|entry| (entry.call == Call::Create).then_some(Fault::LosesDevice));
    assert_lost(ex.session());
    recorded.disarm();
    let mut session = ex.session().unwrap();
    logits(&mut session, &PROMPT).unwrap();
    recorded.arm(Call::Fork, 1, Fault::LosesDevice);
    assert_lost(session.fork());
    assert_lost(logits(&mut session, &[1]));
    ex.session().unwrap();
}

#[test]
fn weights_that_were_let_go_are_said() {
    let device = Fragile::new("device", &[], true);
    let ex = prepare(vec![device.clone()], weights(&model(2, true)));
    device.lose();
    let error = ex.session().unwrap_err();
    assert!(error.is_device_lost(), "{error}");
    assert!(error.to_string().contains("prepare the graph again"), "{error}");

    /// Can be opened again now and then only.
    struct Now(HeldWeights, Arc<AtomicBool>);
    impl WeightSource for Now {
        fn meta(&self, name: &str) -> Option<(glia_core::DType, glia_core::Shape)> {
            self.0.meta(name)
        }
        fn get(&self, name: &str) -> Result<Tensor, glia_ir::WeightError> {
            self.0.get(name)
        }
        fn reopen(&self) -> Option<glia_ir::Reopen> {
            let (weights, there) = (self.0.clone(), self.1.clone());
            Some(Box::new(move || match there.load(SeqCst) {
                true => Ok(Box::new(weights.clone())),
                false => Err("the disk is away".into()),
            }))
        }
    }
    let there = Arc::new(AtomicBool::new(false));
    let ex = prepare(vec![device.clone()], Now(held(), there.clone()));
    device.lose();
    let error = ex.session().unwrap_err().to_string();
    assert!(
        error.contains("the disk is away") && error.contains("was lost"),
        "{error}"
    );
    there.store(true, SeqCst);
    let logits = logits(&mut ex.session().unwrap(), &[1]).unwrap();
    assert_eq!(logits.len(), VOCAB);
}
