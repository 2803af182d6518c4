//! Attention at awkward sizes against the f64 oracle: dense with masks, and over caches of every dtype with several
//! sequences, on all features and on the baseline, with both forms of kernels.

mod parts;

use glia_backend_wgpu::WgpuBackend;
use glia_core::{Backend, DType, Dim, Op, Sdpa, SeqRows, Tensor, ValueType, reference};
use parts::{Act, Build, compare, devices, difference, random};

/// Sums of up to a thousand products in another order.
const BOUND: f32 = 1e-5;

#[derive(Clone, Copy, Debug)]
struct Case {
    rows: usize,
    keys: usize,
    heads: usize,
    groups: usize,
    d: usize,
    dv: usize,
    causal: bool,
    window: Option<usize>,
    softcap: Option<f32>,
    /// Rank of the mask; 0 is none.
    mask: usize,
    sinks: bool,
}

/// A causal case without anything else.
const PLAIN: Case = Case {
    rows: 1,
    keys: 1,
    heads: 2,
    groups: 1,
    d: 64,
    dv: 64,
    causal: true,
    window: None,
    softcap: None,
    mask: 0,
    sinks: false,
};

/// A causal case of rows and keys, with nothing else.
fn of(rows: usize, keys: usize) -> Case {
    Case { rows, keys, ..PLAIN }
}

impl Case {
    fn heads(self, heads: usize, groups: usize) -> Case {
        Case { heads, groups, ..self }
    }

    fn size(self, d: usize, dv: usize) -> Case {
        Case { d, dv, ..self }
    }

    fn window(self, window: usize) -> Case {
        let window = Some(window);
        Case { window, ..self }
    }

    fn capped(self, cap: f32) -> Case {
        let softcap = Some(cap);
        Case { softcap, ..self }
    }

    fn sinks(self) -> Case {
        Case { sinks: true, ..self }
    }

    /// Sees all keys, those under a mask of this rank (0: none) apart.
    fn masked(self, mask: usize) -> Case {
        let causal = false;
        Case { causal, mask, ..self }
    }

    fn sdpa(&self) -> Sdpa {
        Sdpa {
            scale: 0.3 / (self.d.max(1) as f32).sqrt(),
            causal: self.causal,
            window: self.window,
            softcap: self.softcap,
            mask: self.mask > 0,
            sinks: self.sinks,
        }
    }

    fn inputs(&self) -> Vec<Tensor> {
        let mut inputs = vec![
            random(&[self.rows, self.heads, self.d], 1),
            random(&[self.keys, self.groups, self.d], 2),
            random(&[self.keys, self.groups, self.dv], 3),
        ];
        let shape = [self.heads, self.rows, self.keys];
        if self.mask > 0 {
            let shape = &shape[3 - self.mask..];
            let mut mask = parts::noise(shape.iter().product(), 4);
            // A third of the keys is out of sight, and all are for the first query.
            for (i, m) in mask.iter_mut().enumerate() {
                let first = (i / self.keys).is_multiple_of(self.rows) && self.rows > 1;
                if *m > 0.7 || first {
                    *m = f32::NEG_INFINITY;
                }
            }
            inputs.push(Tensor::from_f32(shape, &mask).unwrap());
        }
        if self.sinks {
            inputs.push(random(&[self.heads], 5));
        }
        inputs
    }
}

fn dense_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    // Head sizes, one query and several.
    for (d, dv) in [
        (1, 1),
        (3, 20),
        (20, 64),
        (64, 65),
        (65, 64),
        (80, 96),
        (128, 128),
        (256, 256),
        (512, 512),
    ] {
        cases.extend([of(1, 37).size(d, dv), of(5, 70).size(d, dv)]);
    }
    // Lengths around those of splits and tiles.
    for keys in [1, 31, 32, 33, 64, 127, 129, 600] {
        cases.extend([of(1, keys), of(keys.min(9), keys), of(3, keys).masked(0)]);
    }
    // Heads that share keys.
    for (heads, groups) in [(1, 1), (8, 1), (6, 3), (9, 3), (18, 2), (5, 5)] {
        cases.extend([1, 7].map(|rows| of(rows, 45).heads(heads, groups).size(24, 16)));
    }
    // Windows, caps, sinks and masks.
    for window in [1, 3, 33, 65, 1000] {
        cases.extend([of(1, 300).window(window), of(40, 300).window(window).sinks()]);
    }
    for case in [of(1, 500), of(6, 70)] {
        cases.extend([case.sinks(), case.capped(1.5), case.capped(1.5).sinks()]);
        cases.extend([2, 3].map(|rank| case.masked(rank)));
        cases.extend([2, 3].map(|rank| case.masked(rank).sinks().capped(0.7)));
    }
    // More queries than keys, as in cross attention.
    cases.extend([of(50, 7).masked(0), of(50, 7).masked(0).window(3)]);
    cases
}

fn dense(gpu: &WgpuBackend, case: &Case) -> Option<String> {
    let op = Op::Sdpa(case.sdpa());
    let inputs = case.inputs();
    let inputs: Vec<&Tensor> = inputs.iter().collect();
    let expected = reference::execute(&op, &inputs).unwrap();
    match gpu.execute(&op, &inputs) {
        Ok(got) => difference(&got[0], &expected[0], BOUND),
        Err(e) => Some(e.to_string()),
    }
}

#[test]
fn dense_attention_agrees_with_the_oracle() {
    for (device, gpu) in devices() {
        // The kernels of the baseline differ in how they get their constants only: a part of the cases will do.
        let each = if device.starts_with("baseline") { 5 } else { 1 };
        let faults = dense_cases().into_iter().step_by(each);
        let faults = faults.filter_map(|case| Some(format!("{device}: {case:?}: {}", dense(&gpu, &case)?)));
        let faults: Vec<String> = faults.collect();
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
}

/// Values that no query sees do not count, whatever they are.
#[test]
fn what_is_out_of_sight_does_not_count() {
    for (device, gpu) in devices() {
        let op = Op::Sdpa(of(2, 2).sdpa());
        let mut v = vec![1.0; 2 * 64];
        v[64..].fill(f32::INFINITY);
        let inputs = [
            random(&[2, 2, 64], 1),
            random(&[2, 1, 64], 2),
            Tensor::from_f32([2, 1, 64], &v).unwrap(),
        ];
        let got = gpu.execute(&op, &inputs.each_ref()).unwrap().remove(0);
        let (first, second) = got.as_f32().unwrap().split_at(128);
        assert!(first.iter().all(|&y| y == 1.0), "{device}: {first:?}");
        assert!(second.iter().all(|&y| y == f32::INFINITY), "{device}: {second:?}");
    }
}

/// More keys than one thread takes: software devices end its loops silently when there are too many.
#[test]
fn long_pasts_are_whole() {
    for (device, gpu) in devices() {
        let case = of(2, 70_001).heads(1, 1).size(4, 4);
        assert_eq!(dense(&gpu, &case), None, "{device}");
    }
}

/// A cache and an attention over it.
fn cached(case: &Case) -> Build {
    let mut build = Build::default();
    let rows = |heads, d| ValueType::new(DType::F32, [Dim::T, Dim::fixed(heads), Dim::fixed(d)]);
    let q = build.input("q", rows(case.heads, case.d));
    let k = build.input("k", rows(case.groups, case.d));
    let v = build.input("v", rows(case.groups, case.dv));
    let mut inputs = vec![q];
    inputs.extend(build.op(Op::KvCache, &[k, v]));
    if case.sinks {
        inputs.push(build.weight("sinks", random(&[case.heads], 5)));
    }
    let y = build.op(Op::Sdpa(case.sdpa()), &inputs);
    build.segment.outputs = y;
    build
}

fn rows_of(case: Case) -> impl Fn(usize, &[SeqRows]) -> Vec<Tensor> {
    move |i, rows| {
        let n = rows.iter().map(|r| r.n_rows).sum();
        let seed = 10 * i as u32;
        vec![
            random(&[n, case.heads, case.d], seed),
            random(&[n, case.groups, case.d], seed + 1),
            random(&[n, case.groups, case.dv], seed + 2),
        ]
    }
}

/// Prompts in chunks, several sequences in a step, forks that part ways, steps taken back.
fn acts() -> Vec<Act> {
    vec![
        Act::Create(0),
        Act::Run(vec![(0, 70, 0)]),
        Act::Run(vec![(0, 1, 70)]),
        Act::Create(1),
        Act::Run(vec![(1, 5, 0), (0, 1, 71)]),
        Act::Fork(0, 2, 40),
        Act::Run(vec![(2, 1, 40), (0, 1, 72), (1, 1, 5)]),
        Act::Undo(vec![(2, 30, 41), (1, 2, 6)]),
        Act::Run(vec![(1, 30, 6), (2, 9, 41)]),
        Act::Truncate(0, 33),
        Act::Run(vec![(0, 100, 33)]),
        Act::Free(1),
        Act::Create(3),
        Act::Run(vec![(3, 1, 0), (0, 1, 133), (2, 1, 50)]),
        Act::Run(vec![(3, 12, 1), (2, 12, 51)]),
    ]
}

#[test]
fn cached_attention_agrees_with_the_oracle() {
    let group = PLAIN.heads(9, 3);
    let cases = [
        (group, DType::F16),
        (group, DType::F32),
        (group, DType::BF16),
        (group, DType::Q8_0),
        (PLAIN.heads(4, 1).size(128, 64).window(37), DType::F16),
        (PLAIN.heads(8, 4).size(80, 80).sinks().capped(2.0), DType::BF16),
        (PLAIN.heads(2, 2).size(20, 12), DType::F16),
        (PLAIN.heads(2, 2).size(32, 64).window(64).sinks(), DType::Q8_0),
    ];
    for (device, gpu) in devices() {
        // As above.
        let each = if device.starts_with("baseline") { 4 } else { 1 };
        let mut faults = Vec::new();
        for &(case, kv) in cases.iter().step_by(each) {
            let fault = compare(&gpu, &cached(&case), kv, &acts(), &rows_of(case), BOUND);
            faults.extend(fault.map(|fault| format!("{device}: {kv} {case:?}: {fault}")));
        }
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
}

/// A prompt in one step and the same in chunks.
#[test]
fn chunks_agree_with_the_whole() {
    let case = PLAIN.heads(9, 3).window(200);
    let build = cached(&case);
    for (device, gpu) in devices() {
        let mut acts = vec![Act::Create(0)];
        let mut pos = 0;
        for n in [300, 1, 64, 33, 1, 1, 202] {
            acts.push(Act::Run(vec![(0, n, pos)]));
            pos += n;
        }
        let fault = compare(&gpu, &build, DType::F16, &acts, &rows_of(case), BOUND);
        assert_eq!(fault, None, "{device}");
    }
}

/// One split needs no second kernel, several need one more; every step uses what the first has made.
#[test]
fn steps_make_at_most_two_dispatches_for_attention() {
    let case = PLAIN.heads(9, 3);
    let gpu = devices().remove(0).1;
    let build = cached(&case);
    let mut options = glia_core::CompileOptions::new(&build, glia_core::Precision::Exact);
    options.kv_dtypes = [DType::F16; 2];
    let program = gpu.compile(&build.segment, &options).unwrap().unwrap();
    let mut state = program.open(&glia_core::StateOptions::default()).unwrap();
    let seq = glia_core::SeqId(0);
    state.create(seq).unwrap();
    let appends = 2;
    for (n_rows, pos, expected) in [(20, 0, 1), (1, 20, 1), (200, 21, 1), (1, 221, 2), (1, 222, 2)] {
        let rows = [SeqRows {
            seq,
            first_row: 0,
            n_rows,
            pos,
        }];
        let given = rows_of(case)(0, &rows);
        let before = gpu.counters();
        state.run(&glia_core::Step::new(&rows, &given, &[])).unwrap();
        state.commit();
        let made = gpu.counters().since(&before);
        assert_eq!(made.dispatches, appends + expected, "at {pos}: {made:?}");
        assert_eq!(made.pipelines, 0);
    }
}
