//! The bits of a sequence's logits depend on nothing but its tokens: for every dtype of the weights, both precisions
//! and every dtype of the cache, whatever the threads, chunks, neighbours, forks, rewinds and failed steps.

mod tiny;

use glia_backend_cpu::isa::Isa;
use glia_backend_cpu::{CpuBackend, CpuOptions};
use glia_core::{CancelToken, DType, Precision};
use glia_ir::{ExecConfig, GraphExecutor, RunOptions, Session};
use proptest::prelude::*;
use std::sync::Arc;
use tiny::{Attention, VOCAB, bits, executor, feed, graph, ids, tokens, weight_dtypes, weights};

const CACHES: [DType; 3] = [DType::F32, DType::F16, DType::Q8_0];
const PRECISIONS: [Precision; 2] = [Precision::Exact, Precision::Fast];

fn config(precision: Precision, kv: DType) -> ExecConfig {
    ExecConfig::default().with_precision(precision).with_kv_dtypes([kv; 2])
}

fn backends() -> [Arc<CpuBackend>; 3] {
    [1, 2, 3].map(|threads| tiny::backend(threads, None))
}

fn cold(ex: &GraphExecutor, tokens: &[i32]) -> Vec<u32> {
    feed(&mut ex.session().unwrap(), tokens, tokens.len())
}

/// Logits that say something: finite, not all alike, and other tokens give others.
fn check_alive(what: &str, logits: &[u32]) {
    let values: Vec<f32> = logits.iter().map(|&b| f32::from_bits(b)).collect();
    let largest = values.iter().fold(0f32, |m, v| m.max(v.abs()));
    assert!(
        values.iter().all(|v| v.is_finite()) && largest > 0.01,
        "{what}: {largest}"
    );
    assert_ne!(logits[..VOCAB], logits[VOCAB..2 * VOCAB], "{what}");
}

fn rows(all: &[u32], range: std::ops::Range<usize>) -> &[u32] {
    &all[range.start * VOCAB..range.end * VOCAB]
}

/// Neighbours, a fork, a rewind, a failed and a cancelled step.
fn check_sequences(what: &str, ex: &GraphExecutor, (a, only_a): (&[i32], &[u32]), (b, only_b): (&[i32], &[u32])) {
    let (mut x, mut y) = (ex.session().unwrap(), ex.session().unwrap());
    feed(&mut x, &a[..62], 62);
    feed(&mut y, &b[..3], 3);
    let (more_a, more_b) = ([("input_ids", ids(&a[62..67]))], [("input_ids", ids(&b[3..31]))]);
    let both = ex.run_batch(&mut [(&mut y, &more_b), (&mut x, &more_a)]).unwrap();
    assert_eq!(
        bits(both[0].get("logits").unwrap()),
        rows(only_b, 3..31),
        "{what}: beside another"
    );
    assert_eq!(
        bits(both[1].get("logits").unwrap()),
        rows(only_a, 62..67),
        "{what}: beside another"
    );
    let mut fork = x.fork().unwrap();
    feed(&mut fork, &b[..5], 5);
    assert_eq!(fork.truncate(61), 61);
    assert_eq!(
        feed(&mut fork, &a[61..70], 4),
        rows(only_a, 61..70),
        "{what}: fork and truncate"
    );
    let options = RunOptions::default().with_cancel(CancelToken::after_checks(12));
    x.run_with(&[("input_ids", ids(&b[..9]))], &options).unwrap_err();
    x.run(&[("input_ids", ids(&[1, VOCAB as i32]))]).unwrap_err();
    assert_eq!(
        feed(&mut x, &a[67..], 30),
        rows(only_a, 67..a.len()),
        "{what}: after a rollback"
    );
}

/// All dtypes of weights whose index leaves this remainder, so that tests share the work.
fn check_dtypes(part: usize) {
    let cpus = backends();
    let (a, b) = (tokens(97, 1), tokens(31, 2));
    for dtype in weight_dtypes().into_iter().skip(part).step_by(2) {
        let graph = graph(dtype, &Attention::both());
        let weights = weights(&graph);
        for precision in PRECISIONS {
            for kv in CACHES {
                let what = format!("{dtype} {precision:?} cache {kv}");
                let [one, two, three] = [0, 1, 2].map(|i| executor(&graph, &weights, &cpus[i], config(precision, kv)));
                let (only_a, only_b) = (cold(&one, &a), cold(&one, &b));
                check_alive(&what, &only_a);
                for (ex, n_threads, chunk) in [(&two, 2, 32), (&three, 3, 7)] {
                    let got = feed(&mut ex.session().unwrap(), &a, chunk);
                    assert_eq!(got, only_a, "{what}: {n_threads} threads, chunks of {chunk}");
                }
                let mut steps = one.session().unwrap();
                feed(&mut steps, &a[..60], 32);
                assert_eq!(
                    feed(&mut steps, &a[60..70], 1),
                    rows(&only_a, 60..70),
                    "{what}: one by one"
                );
                check_sequences(&what, &two, (&a, &only_a), (&b, &only_b));
            }
        }
    }
}

#[test]
fn every_dtype_and_cache_even() {
    check_dtypes(0);
}

#[test]
fn every_dtype_and_cache_odd() {
    check_dtypes(1);
}

/// 1, 7, 32 and 512 rows at a time over more than one step of 512.
#[test]
fn long_prompts_in_any_chunks() {
    let cpus = backends();
    let a = tokens(530, 3);
    for (i, dtype) in weight_dtypes().into_iter().enumerate() {
        let graph = graph(dtype, &Attention::both());
        let weights = weights(&graph);
        let (precision, kv) = (PRECISIONS[i % 2], CACHES[i % 3]);
        let [one, two, three] = [0, 1, 2].map(|i| executor(&graph, &weights, &cpus[i], config(precision, kv)));
        let whole = cold(&two, &a);
        check_alive(dtype.name(), &whole);
        for (ex, chunk, until) in [(&three, 512, 530), (&one, 32, 200), (&three, 7, 130), (&two, 1, 20)] {
            let got = feed(&mut ex.session().unwrap(), &a[..until], chunk);
            assert_eq!(
                got,
                rows(&whole, 0..until),
                "{dtype} {precision:?} cache {kv}: chunks of {chunk}"
            );
        }
    }
}

/// Each instruction set keeps the promise; the best one of the machine is what the other tests run on.
#[test]
fn every_instruction_set_and_dtype() {
    let a = tokens(40, 5);
    for isa in Isa::all_available().into_iter().filter(|isa| *isa != Isa::detect()) {
        let (one, two) = (tiny::backend(1, Some(isa)), tiny::backend(2, Some(isa)));
        // One with BF16 differs in those weights only from one without.
        for dtype in weight_dtypes()
            .into_iter()
            .filter(|d| !isa.has_bf16() || *d == DType::BF16)
        {
            let graph = graph(dtype, &Attention::both()[..1]);
            let weights = weights(&graph);
            for precision in PRECISIONS {
                let [one, two] = [&one, &two].map(|cpu| executor(&graph, &weights, cpu, config(precision, DType::F16)));
                let whole = cold(&one, &a);
                let got = feed(&mut two.session().unwrap(), &a, 9);
                assert_eq!(got, whole, "{} {dtype} {precision:?}", isa.name());
            }
        }
    }
}

/// Past one block of the cache, beside others, forked, rewound and cancelled, on each of the other instruction sets.
#[test]
fn every_instruction_set_and_cache() {
    let (a, b) = (tokens(97, 1), tokens(31, 2));
    let graph = graph(DType::Q4_1, &Attention::both());
    let weights = weights(&graph);
    for isa in Isa::all_available()
        .into_iter()
        .filter(|isa| *isa != Isa::detect() && !isa.has_bf16())
    {
        let (one, two) = (tiny::backend(1, Some(isa)), tiny::backend(2, Some(isa)));
        for kv in CACHES {
            let what = format!("{} cache {kv}", isa.name());
            let [one, two] = [&one, &two].map(|cpu| executor(&graph, &weights, cpu, config(Precision::Fast, kv)));
            let (only_a, only_b) = (cold(&one, &a), cold(&one, &b));
            check_alive(&what, &only_a);
            for chunk in [1, 7, 32] {
                let got = feed(&mut two.session().unwrap(), &a, chunk);
                assert_eq!(got, only_a, "{what}: chunks of {chunk}");
            }
            check_sequences(&what, &two, (&a, &only_a), (&b, &only_b));
        }
    }
}

fn attentions() -> impl Strategy<Value = Attention> {
    let heads = prop::sample::select(vec![(2usize, 1usize), (4, 4), (8, 2), (8, 1), (4, 2)]);
    let window = prop::option::of(prop::sample::select(vec![1usize, 2, 15, 16, 63, 64, 65, 500]));
    let softcap = prop::option::of(1f32..20.0);
    (heads, window, softcap, any::<bool>()).prop_map(|((heads, kv_heads), window, softcap, sinks)| Attention {
        heads,
        kv_heads,
        window,
        softcap,
        sinks,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Two sequences cut anywhere, in steps of their own or together.
    #[test]
    fn any_attention_cut_anywhere(
        layers in prop::collection::vec(attentions(), 1..3),
        kv in prop::sample::select(CACHES.to_vec()),
        precision in prop::sample::select(PRECISIONS.to_vec()),
        threads in 1usize..4,
        isa in prop::sample::select(Isa::all_available()),
        cuts in prop::collection::vec((0usize..40, 0usize..70), 1..9),
    ) {
        let graph = graph(DType::Q8_0, &layers);
        let weights = weights(&graph);
        let one = executor(&graph, &weights, &tiny::backend(1, Some(isa)), config(precision, kv));
        let many = executor(&graph, &weights, &tiny::backend(threads, Some(isa)), config(precision, kv));
        let n: (usize, usize) = cuts.iter().fold((0, 0), |n, c| (n.0 + c.0, n.1 + c.1));
        let all = [tokens(n.0, 1), tokens(n.1, 2)];
        let whole = [0, 1].map(|i| if all[i].is_empty() { vec![] } else { cold(&one, &all[i]) });
        let mut sessions: [Session; 2] = [many.session().unwrap(), many.session().unwrap()];
        let mut at = [0, 0];
        for (x, y) in cuts {
            let ends = [at[0] + x, at[1] + y];
            let given = [0, 1].map(|i| [("input_ids", ids(&all[i][at[i]..ends[i]]))]);
            let mut batch: Vec<_> = Vec::new();
            for (i, session) in sessions.iter_mut().enumerate() {
                if ends[i] > at[i] {
                    batch.push((session, &given[i][..]));
                }
            }
            let outputs = many.run_batch(&mut batch).unwrap();
            let mut outputs = outputs.iter();
            for i in 0..2 {
                if ends[i] > at[i] {
                    let got = bits(outputs.next().unwrap().get("logits").unwrap());
                    prop_assert_eq!(&got[..], rows(&whole[i], at[i]..ends[i]));
                }
            }
            at = ends;
        }
    }
}

/// Weights that stay mapped are computed with as packed ones are, and take no memory of their own.
#[test]
fn mapped_weights_have_the_bits_of_packed_ones() {
    let packed = tiny::backend(2, None);
    let mapped = CpuBackend::with_options(CpuOptions {
        threads: 2,
        keep_mapped: true,
        ..CpuOptions::default()
    });
    let mapped = Arc::new(mapped.unwrap());
    let a = tokens(70, 5);
    for dtype in weight_dtypes() {
        let graph = graph(dtype, &Attention::both());
        let weights = weights(&graph);
        for precision in PRECISIONS {
            let [packed, mapped] = [&packed, &mapped].map(|cpu| {
                let ex = executor(&graph, &weights, cpu, config(precision, DType::F16));
                feed(&mut ex.session().unwrap(), &a, 33)
            });
            check_alive(dtype.name(), &packed);
            assert_eq!(mapped, packed, "{dtype} {precision:?}");
        }
    }
}
