//! Random sequences of calls with hostile arguments, on compiled programs and on interpreted ones: nothing panics, a
//! refused or cancelled call changes nothing, and what is returned are the bits of a fresh session over the same tokens.

mod tiny;

use std::collections::HashMap;
use std::sync::Arc;

use glia_core::reference::ReferenceBackend;
use glia_core::{Backend, CancelToken, DType, Precision, Tensor};
use glia_ir::{ExecConfig, ExecError, GraphExecutor, Outputs, Passes, RunOptions, Session, WantedRows};
use proptest::prelude::*;
use tiny::{Attention, VOCAB, bits, graph_of, ids, weights};

const MAX_CONTEXT: usize = 90;

/// What a run is given: mostly tokens, sometimes nonsense.
#[derive(Clone, Debug)]
struct Given {
    tokens: Vec<i32>,
    form: Form,
}

#[derive(Clone, Copy, Debug)]
enum Form {
    I32,
    I64,
    F32,
    Halves,
    NotANumber,
    F16,
    Bool,
    Matrix,
    Scalar,
    Huge,
    OnDevice,
    Missing,
    Twice,
    Unknown,
    Pos,
}

const FORMS: [Form; 15] = [
    Form::I32,
    Form::I64,
    Form::F32,
    Form::Halves,
    Form::NotANumber,
    Form::F16,
    Form::Bool,
    Form::Matrix,
    Form::Scalar,
    Form::Huge,
    Form::OnDevice,
    Form::Missing,
    Form::Twice,
    Form::Unknown,
    Form::Pos,
];

impl Given {
    fn is_right(&self) -> bool {
        matches!(self.form, Form::I32 | Form::I64 | Form::F32)
            && !self.tokens.is_empty()
            && self.tokens.iter().all(|&t| (0..VOCAB as i32).contains(&t))
    }

    fn inputs(&self) -> Vec<(&'static str, Tensor)> {
        let (n, name) = (self.tokens.len(), "input_ids");
        let plain = ids(&self.tokens);
        let floats = |f: fn(i32) -> f32| {
            let values: Vec<f32> = self.tokens.iter().map(|&t| f(t)).collect();
            Tensor::from_f32([n], &values).unwrap()
        };
        let long = |f: fn(i32) -> i64| {
            let bytes: Vec<u8> = self.tokens.iter().flat_map(|&t| f(t).to_le_bytes()).collect();
            Tensor::from_bytes(DType::I64, [n], &bytes).unwrap()
        };
        let one = match self.form {
            Form::I32 => plain,
            Form::I64 => long(i64::from),
            Form::F32 => floats(|t| t as f32),
            Form::Halves => floats(|t| t as f32 + 0.5),
            Form::NotANumber => floats(|_| f32::NAN),
            Form::F16 => Tensor::zeros(DType::F16, [n]).unwrap(),
            Form::Bool => Tensor::zeros(DType::Bool, [n]).unwrap(),
            Form::Matrix => plain.reshaped([1, n]).unwrap(),
            Form::Scalar => Tensor::from_i32([0usize; 0], &[1]).unwrap(),
            Form::Huge => long(|t| i64::MIN + i64::from(t.unsigned_abs())),
            Form::OnDevice => Tensor::device(DType::I32, [n], Arc::new(())).unwrap(),
            Form::Missing => return vec![],
            Form::Twice => return vec![(name, plain.clone()), (name, plain)],
            Form::Unknown => return vec![(name, plain.clone()), ("inputs_ids", plain)],
            Form::Pos => return vec![(name, plain.clone()), ("pos", ids(&[0]))],
        };
        vec![(name, one)]
    }
}

#[derive(Clone, Debug)]
struct Asked {
    wanted: WantedRows,
    cancel: Option<usize>,
}

impl Asked {
    fn is_right(&self, n: usize) -> bool {
        match &self.wanted {
            WantedRows::Rows(rows) => rows.is_sorted_by(|a, b| a < b) && rows.iter().all(|&r| r < n),
            _ => true,
        }
    }

    fn options(&self) -> RunOptions {
        let options = RunOptions::default().with_wanted_rows(self.wanted.clone());
        match self.cancel {
            Some(n) => options.with_cancel(CancelToken::after_checks(n)),
            None => options,
        }
    }

    fn rows(&self, n: usize) -> Vec<usize> {
        match &self.wanted {
            WantedRows::All => (0..n).collect(),
            WantedRows::Last => vec![n - 1],
            WantedRows::Rows(rows) => rows.clone(),
        }
    }
}

#[derive(Clone, Debug)]
enum Call {
    Run(usize, Given, Asked),
    Batch(Vec<(usize, Given)>, Asked),
    Truncate(usize, usize),
    Fork(usize),
    Reset(usize),
    Drop(usize),
    Open,
    /// Another executor; the sessions of the old one live on.
    Prepare,
    /// The default session is one more.
    Default(Given, Asked),
}

fn given() -> impl Strategy<Value = Given> {
    let bad = prop::sample::select(vec![-1, VOCAB as i32, i32::MAX, i32::MIN]);
    let token = prop_oneof![150 => 0..VOCAB as i32, 1 => bad];
    let n = prop_oneof![6 => 0usize..10, 1 => 30usize..70];
    let form = prop_oneof![4 => Just(Form::I32), 1 => prop::sample::select(FORMS.to_vec())];
    let tokens = n.prop_flat_map(move |n| prop::collection::vec(token.clone(), n));
    (tokens, form).prop_map(|(tokens, form)| Given { tokens, form })
}

fn asked() -> impl Strategy<Value = Asked> {
    let row = prop_oneof![12 => 0usize..9, 1 => Just(usize::MAX)];
    let some = (prop::collection::vec(row, 0..4), 0..4).prop_map(|(mut rows, untidy)| {
        if untidy > 0 {
            rows.sort_unstable();
            rows.dedup();
        }
        WantedRows::Rows(rows)
    });
    let wanted = prop_oneof![3 => Just(WantedRows::All), 1 => Just(WantedRows::Last), 2 => some];
    let cancel = prop_oneof![3 => Just(None), 1 => (0usize..60).prop_map(Some)];
    (wanted, cancel).prop_map(|(wanted, cancel)| Asked { wanted, cancel })
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let session = 0usize..5;
    let length = prop_oneof![5 => 0usize..MAX_CONTEXT + 5, 1 => Just(usize::MAX)];
    let member = (session.clone(), given());
    let call = prop_oneof![
        7 => (session.clone(), given(), asked()).prop_map(|(s, g, a)| Call::Run(s, g, a)),
        3 => (prop::collection::vec(member, 0..4), asked()).prop_map(|(m, a)| Call::Batch(m, a)),
        3 => (session.clone(), length).prop_map(|(s, n)| Call::Truncate(s, n)),
        3 => session.clone().prop_map(Call::Fork),
        1 => session.clone().prop_map(Call::Reset),
        1 => session.prop_map(Call::Drop),
        2 => Just(Call::Open),
        1 => Just(Call::Prepare),
        1 => (given(), asked()).prop_map(|(g, a)| Call::Default(g, a)),
    ];
    prop::collection::vec(call, 1..30)
}

/// A backend and how it is set up.
#[derive(Clone, Copy, Debug)]
enum Target {
    OneThread,
    Threads,
    SmallSteps,
    Interpreter,
    InterpreterOfSmallSteps,
}

fn prepare(target: Target) -> GraphExecutor {
    let dtype = match target {
        Target::OneThread | Target::Interpreter => DType::F32,
        _ => DType::Q8_0,
    };
    let graph = graph_of(32, dtype, &[Attention::plain(), Attention::plain()]);
    let config = ExecConfig::default().with_max_context(MAX_CONTEXT);
    let (backend, config): (Arc<dyn Backend>, _) = match target {
        Target::OneThread => (tiny::backend(1, None), config.with_precision(Precision::Exact)),
        Target::Threads => (tiny::backend(2, None), config.with_kv_dtypes([DType::F16; 2])),
        Target::SmallSteps => (tiny::backend(3, None), config.with_max_step_tokens(5)),
        Target::Interpreter => (Arc::new(ReferenceBackend), config.with_passes(Passes::None)),
        Target::InterpreterOfSmallSteps => (Arc::new(ReferenceBackend), config.with_max_step_tokens(4)),
    };
    GraphExecutor::prepare(graph.clone(), weights(&graph), vec![backend], config).unwrap()
}

/// A session, the executor that made it, and the tokens that it should hold.
struct Held {
    session: Session,
    of: usize,
    tokens: Vec<i32>,
}

/// The naive model: a cold run over all tokens.
struct Model {
    clean: GraphExecutor,
    known: HashMap<Vec<i32>, Vec<u32>>,
}

impl Model {
    fn logits(&mut self, tokens: &[i32]) -> &[u32] {
        let clean = &self.clean;
        self.known.entry(tokens.to_vec()).or_insert_with(|| {
            let outputs = clean.session().unwrap().run(&[("input_ids", ids(tokens))]).unwrap();
            bits(outputs.get("logits").unwrap())
        })
    }

    /// Checks the outputs of a run and takes its tokens over.
    fn check(&mut self, tokens: &mut Vec<i32>, given: &Given, asked: &Asked, outputs: &Outputs) {
        let past = tokens.len();
        tokens.extend(&given.tokens);
        let all = self.logits(tokens);
        let rows = asked.rows(given.tokens.len());
        let expected: Vec<u32> = rows
            .iter()
            .flat_map(|r| all[(past + r) * VOCAB..(past + r + 1) * VOCAB].iter().copied())
            .collect();
        let logits = outputs.get("logits").unwrap();
        assert_eq!(&logits.shape()[..], [rows.len(), VOCAB]);
        assert_eq!(bits(logits), expected);
    }
}

/// Whether a call succeeded, which it must have if it may and nobody cancelled it.
fn judge<T>(result: Result<T, ExecError>, may: bool, asked: &Asked) -> Option<T> {
    match result {
        Ok(value) => {
            assert!(may, "a wrong call was taken");
            Some(value)
        }
        Err(e) => {
            let cancelled = asked.cancel.is_some() && matches!(e, ExecError::Cancelled);
            assert!(!may || cancelled, "a right call was refused: {e}");
            assert!(!e.to_string().is_empty());
            None
        }
    }
}

fn fits(given: &Given, asked: &Asked, past: usize) -> bool {
    given.is_right() && asked.is_right(given.tokens.len()) && past + given.tokens.len() <= MAX_CONTEXT
}

fn play(target: Target, calls: Vec<Call>) {
    let mut model = Model {
        clean: prepare(target),
        known: HashMap::new(),
    };
    let mut ex = prepare(target);
    let (mut generation, mut default_tokens) = (0, Vec::new());
    let mut all: Vec<Held> = Vec::new();
    for call in calls {
        match call {
            Call::Open => {
                if all.len() < 5 {
                    let session = ex.session().unwrap();
                    all.push(Held {
                        session,
                        of: generation,
                        tokens: Vec::new(),
                    });
                }
            }
            Call::Run(at, given, asked) => {
                let Some(held) = all.get_mut(at) else { continue };
                let may = fits(&given, &asked, held.tokens.len());
                let result = held.session.run_with(&given.inputs(), &asked.options());
                if let Some(outputs) = judge(result, may, &asked) {
                    model.check(&mut held.tokens, &given, &asked, &outputs);
                }
            }
            Call::Default(given, asked) => {
                let may = fits(&given, &asked, default_tokens.len());
                let result = ex.run_with(&given.inputs(), &asked.options());
                if let Some(outputs) = judge(result, may, &asked) {
                    model.check(&mut default_tokens, &given, &asked, &outputs);
                }
                assert_eq!(ex.default_session().pos(), default_tokens.len());
            }
            Call::Batch(mut members, asked) => {
                members.sort_by_key(|(at, _)| *at);
                members.dedup_by_key(|(at, _)| *at);
                members.retain(|(at, _)| *at < all.len());
                let given: Vec<_> = members.iter().map(|(_, given)| given.inputs()).collect();
                let right = |(at, given): &(usize, Given)| {
                    all[*at].of == generation && fits(given, &asked, all[*at].tokens.len())
                };
                let may = members.iter().all(right);
                let mut batch: Vec<(&mut Session, &[(&str, Tensor)])> = Vec::new();
                for (at, held) in all.iter_mut().enumerate() {
                    if let Some(i) = members.iter().position(|(member, _)| *member == at) {
                        batch.push((&mut held.session, &given[i]));
                    }
                }
                let result = ex.run_batch_with(&mut batch, &asked.options());
                if let Some(outputs) = judge(result, may, &asked) {
                    assert_eq!(outputs.len(), members.len());
                    for ((at, given), outputs) in members.iter().zip(&outputs) {
                        model.check(&mut all[*at].tokens, given, &asked, outputs);
                    }
                }
            }
            Call::Truncate(at, n) => {
                if let Some(held) = all.get_mut(at) {
                    held.tokens.truncate(n);
                    assert_eq!(held.session.truncate(n), held.tokens.len());
                }
            }
            Call::Fork(at) => {
                if let (Some(held), true) = (all.get(at), all.len() < 5) {
                    let session = held.session.fork().unwrap();
                    all.push(Held {
                        session,
                        of: held.of,
                        tokens: held.tokens.clone(),
                    });
                }
            }
            Call::Reset(at) => {
                if let Some(held) = all.get_mut(at) {
                    held.session.reset();
                    held.tokens.clear();
                }
            }
            Call::Drop(at) => {
                if at < all.len() {
                    all.remove(at);
                }
            }
            Call::Prepare => {
                ex = prepare(target);
                generation += 1;
                default_tokens.clear();
            }
        }
        for held in &all {
            assert_eq!(held.session.pos(), held.tokens.len());
        }
    }
    // Every session still works, whatever it went through.
    let (one, asked) = (
        Given {
            tokens: vec![7],
            form: Form::I32,
        },
        Asked {
            wanted: WantedRows::All,
            cancel: None,
        },
    );
    for held in &mut all {
        held.session.truncate(MAX_CONTEXT - 1);
        held.tokens.truncate(MAX_CONTEXT - 1);
        let outputs = held.session.run(&one.inputs()).unwrap();
        model.check(&mut held.tokens, &one, &asked, &outputs);
    }
    drop(all);
    ex.reset();
    assert_eq!(ex.state_bytes(), 0);
}

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases(96))]

    #[test]
    fn calls_on_compiled_programs(
        target in prop::sample::select(vec![Target::OneThread, Target::Threads, Target::SmallSteps]),
        calls in calls(),
    ) {
        play(target, calls);
    }
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn calls_on_interpreted_programs(
        target in prop::sample::select(vec![Target::Interpreter, Target::InterpreterOfSmallSteps]),
        calls in calls(),
    ) {
        play(target, calls);
    }
}

fn configs() -> impl Strategy<Value = ExecConfig> {
    let one_of = |values: &[usize]| prop::sample::select(values.to_vec());
    let steps = one_of(&[0, 1, 3, 512, 1 << 40, usize::MAX]);
    let context = one_of(&[0, 1, 2, 64, 4096, i32::MAX as usize, i32::MAX as usize + 1, usize::MAX]);
    let bytes = || one_of(&[0, 0, 1, 4096, 1 << 20, usize::MAX]);
    let kv = || {
        prop::sample::select(vec![
            DType::F32,
            DType::F16,
            DType::BF16,
            DType::Q8_0,
            DType::Q4_0,
            DType::I32,
        ])
    };
    (steps, context, bytes(), bytes(), [kv(), kv()], any::<bool>()).prop_map(
        |(steps, context, intermediate, state, kv, profile)| {
            ExecConfig::default()
                .with_max_step_tokens(steps)
                .with_max_context(context)
                .with_max_intermediate_bytes(intermediate)
                .with_max_state_bytes(state)
                .with_kv_dtypes(kv)
                .with_profile(profile)
        },
    )
}

proptest! {
    #![proptest_config(cases(96))]

    /// Whatever the configuration says: it is refused at prepare, or runs work or are refused, and no memory is taken
    /// because a limit is large.
    #[test]
    fn any_configuration(config in configs(), compiled in any::<bool>(), n in 1usize..80) {
        let backend: Arc<dyn Backend> = if compiled { tiny::backend(2, None) } else { Arc::new(ReferenceBackend) };
        let graph = graph_of(64, DType::Q8_0, &[Attention::plain()]);
        let Ok(ex) = GraphExecutor::prepare(graph.clone(), weights(&graph), vec![backend], config) else {
            return Ok(());
        };
        let tokens = tiny::tokens(n, 1);
        let mut session = ex.session().unwrap();
        for piece in tokens.chunks(33) {
            let (past, held) = (session.pos(), ex.state_bytes());
            match session.run(&[("input_ids", ids(piece))]) {
                Ok(_) => prop_assert_eq!(session.pos(), past + piece.len()),
                Err(_) => prop_assert!(session.pos() == past && (!compiled || ex.state_bytes() == held)),
            }
        }
        let limit = ex.config().max_state_bytes;
        prop_assert!(limit == 0 || ex.state_bytes() <= limit);
        prop_assert!(ex.state_bytes() <= 2 * 128 * 64 * 4);
    }
}
