//! Every mistake of the list, planted in a backend, is found by the suite and called by its name.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use super::*;
use crate::conformance::case::{Body, Case, Outcome};
use crate::conformance::{Options, Report, cases, run};
use crate::{Backend, Unary};

fn hint(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Failed(failure) => Some(failure.hint.clone().unwrap_or_default()),
        _ => None,
    }
}

#[test]
fn every_mistake_in_an_op_is_found_and_named() {
    let all = all();
    let (mut named, mut found) = (BTreeSet::new(), BTreeSet::new());
    for case in cases() {
        let Body::Op(op) = &case.body else { continue };
        let Ok(prepared) = op.prepare(&case.full_name()) else {
            continue;
        };
        for fault in &all {
            // Each is looked for until it is named once.
            if named.contains(fault.says) || (fault.wrong)(&op.op, &prepared.inputs).is_none() {
                continue;
            }
            let backend: Arc<dyn Backend> = Arc::new(FaultyBackend {
                fault: Some(*fault),
                state: None,
            });
            let Some(hint) = hint(&case.run(&backend)) else {
                continue;
            };
            found.insert(fault.says);
            if hint == fault.says {
                named.insert(fault.says);
            }
        }
    }
    let unnamed: Vec<_> = all.iter().map(|f| f.says).filter(|s| !named.contains(s)).collect();
    assert!(
        unnamed.is_empty(),
        "not named: {unnamed:#?}\nof these found: {:?}",
        unnamed.iter().filter(|s| found.contains(*s)).collect::<Vec<_>>()
    );
}

#[test]
fn every_mistake_in_states_and_memory_is_found_and_named() {
    let groups = ["state", "memory"];
    let all: Vec<Case> = cases()
        .into_iter()
        .filter(|c| {
            groups.contains(&c.group)
                || ["tied_head_f32", "views_f32", "encoder_f32", "decoder_f32"].contains(&c.name.as_str())
        })
        .collect();
    for state in StateFault::ALL {
        let backend: Arc<dyn Backend> = Arc::new(FaultyBackend {
            fault: None,
            state: Some(state),
        });
        let mut hints = BTreeSet::new();
        let named = all.iter().any(|case| {
            let hint = hint(&case.run(&backend));
            let hit = hint.as_deref() == Some(state.says());
            hints.extend(hint);
            hit
        });
        assert!(named, "{state:?} is called {hints:?}");
    }
}

/// Mistakes in ops show in segments too, where the op is one of many.
#[test]
fn mistakes_are_named_in_segments() {
    for (case, says) in [
        (
            "segment/attention_f32",
            "wrong head grouping: query head h reads K/V head h % n_kv_heads",
        ),
        ("segment/attention_window_f32", "an off-by-one window: one key too many"),
        ("segment/encoder_f32", "a missing bias: the third input"),
        ("segment/gated_mlp_f32", "a transposed weight"),
        ("segment/decoder_f32", "no causal mask"),
        ("segment/gated_mlp_q8_0", "plus_one is ignored"),
    ] {
        let fault = all().into_iter().find(|f| f.says.starts_with(says));
        let backend: Arc<dyn Backend> = Arc::new(FaultyBackend { fault, state: None });
        let case = cases().into_iter().find(|c| c.full_name() == case).unwrap();
        let hint = hint(&case.run(&backend)).unwrap_or_default();
        assert!(hint.starts_with(says), "{}: `{hint}` is not `{says}`", case.name);
    }
}

/// An oracle whose answers are changed by a function, without any list of known mistakes.
struct Changed<F>(F);

impl<F: Fn(&Op, Vec<Tensor>) -> Vec<Tensor> + Send + Sync> Backend for Changed<F> {
    fn name(&self) -> &str {
        "changed"
    }

    fn supports(&self, op: &Op) -> bool {
        !op.is_stateful()
    }

    fn execute(&self, op: &Op, inputs: &[&Tensor]) -> Result<Vec<Tensor>, BackendError> {
        Ok((self.0)(op, reference::execute(op, inputs)?))
    }
}

fn of(filter: &str, backend: impl Backend + 'static) -> Report {
    run(backend, &Options::only(filter))
}

#[test]
fn wrong_types_and_numbers_of_outputs_are_found() {
    let half = |_: &Op, outputs: Vec<Tensor>| {
        let cast = |t: &Tensor| one(Op::Cast { to: DType::F64 }, std::slice::from_ref(t)).unwrap();
        outputs.iter().map(cast).collect()
    };
    let report = of("silu/f32_3x17", Changed(half)).to_string();
    assert!(
        report.contains("the output is f64 [3, 17] instead of f32 [3, 17]"),
        "{report}"
    );
    let twice = |_: &Op, outputs: Vec<Tensor>| [outputs.clone(), outputs].concat();
    let report = of("silu/f32_3x17", Changed(twice)).to_string();
    assert!(report.contains("returned 2 outputs instead of 1"), "{report}");
    let longer = |_: &Op, outputs: Vec<Tensor>| {
        let both = [outputs[0].clone(), outputs[0].clone()];
        vec![one(Op::Concat { axis: 0 }, &both).unwrap()]
    };
    let report = of("silu/f32_3x17", Changed(longer)).to_string();
    assert!(
        report.contains("a write past the end: the output has more elements"),
        "{report}"
    );
    let panicking = |_: &Op, outputs: Vec<Tensor>| {
        let at = outputs[0].n_elems();
        vec![Tensor::from_f32([1], &[outputs[0].as_f32().unwrap()[at]]).unwrap()]
    };
    let report = of("silu/f32_3x17", Changed(panicking)).to_string();
    assert!(report.contains("a write or read past the end: an index"), "{report}");
}

/// Where the wrong elements are says something, too.
#[test]
fn places_of_wrong_elements_are_told() {
    let changed = |change: fn(&mut [f64])| {
        of(
            "layer_norm/f32_3x17",
            Changed(move |_: &Op, outputs: Vec<Tensor>| {
                let mut all = list(&outputs[0]).unwrap();
                change(&mut all);
                vec![like(&outputs[0], &all)]
            }),
        )
        .to_string()
    };
    let report = changed(|all| all.chunks_mut(17).skip(1).for_each(|row| row[0] = 9.0));
    assert!(report.contains("a write past the end, it seems"), "{report}");
    let report = changed(|all| all.chunks_mut(17).for_each(|row| row[16] += 0.5));
    assert!(report.contains("only columns from 16 on are wrong, of 17"), "{report}");
    let report = changed(|all| all.iter_mut().skip(34).for_each(|v| *v += 0.5));
    assert!(report.contains("only rows from 2 on are wrong, of 3"), "{report}");
}

#[test]
fn support_that_contradicts_itself_is_found() {
    struct Liar;
    impl Backend for Liar {
        fn name(&self) -> &str {
            "two words"
        }
        fn supports(&self, _: &Op) -> bool {
            false
        }
        fn supports_node(&self, _: &crate::NodeView<'_>) -> bool {
            true
        }
        fn execute(&self, op: &Op, inputs: &[&Tensor]) -> Result<Vec<Tensor>, BackendError> {
            reference::execute(op, inputs)
        }
        fn download(&self, tensor: &Tensor) -> Result<Tensor, BackendError> {
            Ok(Tensor::zeros(tensor.dtype(), *tensor.shape())?)
        }
    }
    let report = of("methods/", Liar);
    let names: Vec<&str> = report.failures().into_iter().map(|(name, _)| name).collect();
    assert!(
        names.contains(&"methods/support_is_consistent") && names.contains(&"methods/name"),
        "{report}"
    );
    assert!(names.contains(&"methods/round_trip_f32"), "{report}");
}

/// Keeps its operands in a buffer that all calls share.
struct SharedScratch(Vec<AtomicU32>);

impl Backend for SharedScratch {
    fn name(&self) -> &str {
        "shared"
    }

    fn supports(&self, op: &Op) -> bool {
        matches!(op, Op::Unary(Unary::Silu))
    }

    fn execute(&self, op: &Op, inputs: &[&Tensor]) -> Result<Vec<Tensor>, BackendError> {
        let x = inputs[0];
        for (place, v) in self.0.iter().zip(x.as_f32()?) {
            place.store(v.to_bits(), Ordering::SeqCst);
        }
        std::thread::yield_now();
        let back: Vec<f32> = self
            .0
            .iter()
            .take(x.n_elems())
            .map(|p| f32::from_bits(p.load(Ordering::SeqCst)))
            .collect();
        reference::execute(op, &[&Tensor::from_f32(*x.shape(), &back)?])
    }
}

#[test]
fn memory_shared_between_threads_is_found() {
    let scratch = (0..4096).map(|_| AtomicU32::new(0)).collect();
    let report = of("silu", SharedScratch(scratch));
    let failures = report.failures();
    assert_eq!(failures.len(), 1, "{report}");
    assert_eq!(failures[0].0, "threads/silu_from_four");
    assert!(failures[0].1.to_string().contains("share memory"), "{report}");
}

#[test]
fn answers_that_depend_on_earlier_calls_are_found() {
    // A gain of one call is used in the next.
    let last: Mutex<Option<Tensor>> = Mutex::new(None);
    let stale = move |op: &Op, outputs: Vec<Tensor>| {
        if !matches!(op, Op::RmsNorm { .. }) {
            return outputs;
        }
        let mut last = last.lock().unwrap();
        let old = last.replace(outputs[0].clone());
        old.filter(|t| t.shape() == outputs[0].shape())
            .map_or(outputs, |t| vec![t])
    };
    let report = of("rms_norm", Changed(stale));
    assert!(
        !report.is_ok() && report.to_string().contains("answers change from call to call"),
        "{report}"
    );
}

#[test]
fn exceptions_turn_red_when_they_pass() {
    let mut options = Options::only("relu/f32_");
    let declared = |name: &str| (name.to_owned(), "known".to_owned());
    options.expect_failures = vec![declared("relu/f32_3x17"), declared("relu/f33")];
    let said = run(crate::reference::ReferenceBackend, &options).to_string();
    assert!(said.contains("relu/f32_3x17 passes: take it off"), "{said}");
    assert!(said.contains("names no case: relu/f33"), "{said}");

    let wrong = |_: &Op, outputs: Vec<Tensor>| outputs.iter().map(|t| like(t, &vec![7.0; t.n_elems()])).collect();
    options.expect_failures = vec![declared("relu/f32_3x17")];
    let report = run(Changed(wrong), &options);
    assert!(
        report.failures().iter().all(|(name, _)| *name != "relu/f32_3x17"),
        "{report}"
    );
    assert!(
        report.to_string().contains("fails as declared: relu/f32_3x17 (known)"),
        "{report}"
    );
    assert!(report.to_string().contains(" failed, 1 as declared, "), "{report}");
}

/// What one case says of a backend.
fn said(case: &str, backend: FaultyBackend) -> (String, String) {
    let backend: Arc<dyn Backend> = Arc::new(backend);
    let found = cases().into_iter().find(|c| c.full_name() == case).unwrap();
    match found.run(&backend) {
        Outcome::Failed(failure) => (failure.what.clone(), failure.hint.unwrap_or_default()),
        other => panic!("{case}: {other:?}"),
    }
}

/// Integers cut to 32 bits.
fn cut_ids(op: &Op, inputs: &[Tensor]) -> Option<Vec<Tensor>> {
    let cut = |t: &Tensor| match t.dtype() {
        DType::I64 => like(
            t,
            &list(t)
                .unwrap()
                .iter()
                .map(|&v| f64::from(v as i64 as i32))
                .collect::<Vec<_>>(),
        ),
        _ => t.clone(),
    };
    right(op, &inputs.iter().map(cut).collect::<Vec<_>>())
}

/// Denormals of F16 taken for zero, in elements and in scales of blocks.
fn flush_halves(op: &Op, inputs: &[Tensor]) -> Option<Vec<Tensor>> {
    let flush = |t: &Tensor| {
        let block = match t.dtype() {
            DType::F16 | DType::Q8_0 => t.dtype().block_bytes(),
            _ => return t.clone(),
        };
        let mut bytes = t.bytes().unwrap().to_vec();
        for half in bytes.chunks_mut(block) {
            if half[1] & 0x7c == 0 {
                half[..2].fill(0);
            }
        }
        Tensor::from_bytes(t.dtype(), *t.shape(), &bytes).unwrap()
    };
    right(op, &inputs.iter().map(flush).collect::<Vec<_>>())
}

fn bias_needs_a_sum(op: &Op, inputs: &[Tensor]) -> Option<Vec<Tensor>> {
    let nothing = *op == Op::MatMul && inputs[0].shape().last_dim() == 0;
    right(op, if nothing { &inputs[..2] } else { inputs })
}

#[test]
fn values_that_are_cut_or_lost_are_found() {
    for (case, wrong) in [
        ("token_embed/id_beyond_32_bits", cut_ids as Wrong),
        ("token_embed/id_below_32_bits", cut_ids),
        ("gather/id_beyond_32_bits", cut_ids),
        ("rope/neox_positions_beyond_32_bits", cut_ids),
        ("matmul/f32_3x5x0_bias", bias_needs_a_sum),
        ("matmul/f16_denormal_weights", flush_halves),
        ("matmul/f16_smallest_weights", flush_halves),
        ("matmul/q8_0_denormal_scales", flush_halves),
        ("token_embed/f16_denormal", flush_halves),
        ("cast/f16_denormals_to_f32", flush_halves),
    ] {
        let fault = Some(Fault { says: "", wrong });
        said(case, FaultyBackend { fault, state: None });
    }
}

/// A step that breaks, or a length that is wrong, says what it is: there is nothing to guess.
#[test]
fn what_shows_in_no_output_is_found_and_not_guessed_about() {
    for (case, state, says) in [
        ("state/fork_of_forks", StateFault::Panics, "planted"),
        ("state/fork_of_forks", StateFault::ForkSaysLen, "fork 1 to 4 at 99"),
        (
            "state/truncate_to_5",
            StateFault::TruncateIgnored,
            "reached length 100, not 5",
        ),
        ("state/cancel_anywhere", StateFault::NeverCancelled, "check_cancelled"),
        (
            "methods/state_bytes_count_rows",
            StateFault::CountsNoBytes,
            "`state_bytes` says 0",
        ),
    ] {
        let state = Some(state);
        let (what, hint) = said(case, FaultyBackend { fault: None, state });
        assert!(what.contains(says) && hint.is_empty(), "{case}: {what}; {hint}");
    }
    // The oracle's program keeps no times.
    let (what, _) = said("methods/profiles_name_instructions", FaultyBackend::default());
    assert!(what.contains("no time came"), "{what}");
}

#[test]
fn rows_of_later_sequences_are_told() {
    let state = Some(StateFault::FirstRowIgnored);
    for case in [
        "state/several_sequences",
        "state/fork_of_forks",
        "segment/attention_f32",
    ] {
        let (what, hint) = said(case, FaultyBackend { fault: None, state });
        assert!(
            hint.starts_with("rows of sequence 2 of the step are wrong"),
            "{case}: {what}; {hint}"
        );
    }
}

#[test]
fn limits_are_no_shifts_and_no_zeros() {
    fn each(op: &Op, inputs: &[Tensor], kind: Unary, change: fn(f64, f64) -> f64) -> Option<Vec<Tensor>> {
        let y = right(op, inputs)?.into_iter().next()?;
        let pairs = list(&inputs[0])?.into_iter().zip(list(&y)?);
        (*op == Op::Unary(kind)).then(|| vec![like(&y, &pairs.map(|(x, y)| change(x, y)).collect::<Vec<_>>())])
    }
    let relu: Wrong = |op, inputs| each(op, inputs, Unary::Relu, |x, y| if x.is_nan() { 0.0 } else { y });
    let silu: Wrong = |op, inputs| {
        let nan = |x: f64, y| if x == f64::NEG_INFINITY { f64::NAN } else { y };
        each(op, inputs, Unary::Silu, nan)
    };
    for (case, wrong, says) in [
        ("relu/f32_limits", relu, "NaN is lost"),
        ("silu/f32_limits", silu, "NaN or infinity where the answer is a number"),
    ] {
        let fault = Some(Fault { says: "", wrong });
        let (what, hint) = said(case, FaultyBackend { fault, state: None });
        assert!(hint.starts_with(says), "{case}: {what}; {hint}");
    }
}

/// What compiled and what did not are told apart.
#[test]
fn interpreted_programs_are_told() {
    struct Half(FaultyBackend);
    impl Backend for Half {
        fn name(&self) -> &str {
            "half"
        }
        fn supports(&self, op: &Op) -> bool {
            !matches!(op, Op::Mean { .. })
        }
        fn supports_node(&self, node: &crate::NodeView<'_>) -> bool {
            self.supports(node.op)
        }
        fn execute(&self, op: &Op, inputs: &[&Tensor]) -> Result<Vec<Tensor>, BackendError> {
            self.0.execute(op, inputs)
        }
        fn compile(
            &self,
            segment: &crate::Segment,
            options: &crate::CompileOptions<'_>,
        ) -> Result<Option<Arc<dyn crate::Program>>, BackendError> {
            match options.kv_dtypes {
                [DType::F32, DType::F32] => self.0.compile(segment, options),
                _ => Ok(None),
            }
        }
    }
    let report = of("r_f32", Half(FaultyBackend::default())).to_string();
    assert!(report.contains("compile was not asked: `"), "{report}");
    let report = of("state/cache_of", Half(FaultyBackend::default()));
    let said = report.to_string();
    assert!(
        said.contains("passed, interpreted, compile returned None: state/cache_of_f16"),
        "{said}"
    );
    assert!(
        said.contains("programs of the cases that passed: 1 compiled, 1 interpreted"),
        "{said}"
    );
    assert!(report.program_table().contains("| `state` | 1 | 1 |"), "{said}");
}
