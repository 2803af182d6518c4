//! What the GPU backend does for a step: nothing is built, one submission, only what was asked comes back; and what
//! becomes of a session when the device gives up.

use std::sync::Arc;

use glia_backend_wgpu::{Counters, WgpuBackend, WgpuOptions};
use glia_core::{
    Backend, BackendError, CompileOptions, DType, MemoryHints, MemorySpace, NodeView, Op, Precision, Program, Segment,
    Tensor,
};
use glia_model::{Event, GenerateParams, Model, ModelError, Options, SampleParams, WantedRows};

/// The backend, or `None` with the reason printed.
fn gpu(options: WgpuOptions) -> Option<Arc<WgpuBackend>> {
    match WgpuBackend::new(options) {
        Ok(gpu) => Some(Arc::new(gpu)),
        Err(error) => {
            println!("SKIP: wgpu: {error}");
            None
        }
    }
}

fn options(gpu: &Arc<WgpuBackend>) -> Options {
    Options {
        backends: Some(vec![gpu.clone() as Arc<dyn Backend>]),
        kv_dtypes: Some([DType::F16; 2]),
        max_context: Some(1024),
        ..Options::default()
    }
}

/// What each of `n` decoded tokens adds to the counters, once the first has set everything up.
fn decode(model: &Model, gpu: &WgpuBackend, n: usize) -> Vec<Counters> {
    let mut session = model.session().unwrap();
    session.feed(&[1, 2, 3, 4, 5], &WantedRows::Last).unwrap();
    session.feed(&[6], &WantedRows::Last).unwrap();
    let mut before = gpu.counters();
    let mut steps = Vec::new();
    for i in 0..n {
        session.feed(&[7 + i as u32], &WantedRows::Last).unwrap();
        let now = gpu.counters();
        steps.push(now.since(&before));
        before = now;
    }
    steps
}

fn check_steps(model: &Model, gpu: &WgpuBackend, n_layers: usize) {
    for (i, step) in decode(model, gpu, 40).iter().enumerate() {
        assert_eq!(
            (step.buffers, step.bind_groups, step.pipelines),
            (0, 0, 0),
            "step {i}: {step:?}"
        );
        assert_eq!(step.submits, 1, "step {i}: {step:?}");
        assert_eq!(step.read_bytes, 4 * model.n_vocab() as u64, "step {i}: {step:?}");
        // Beside the layers: embedding, rows wanted, last norm, head.
        let per_layer = (step.dispatches as usize).saturating_sub(4).div_ceil(n_layers);
        assert!(per_layer <= 12, "step {i}: {per_layer} dispatches per layer, {step:?}");
    }
}

#[test]
fn a_decode_step_builds_nothing_and_submits_once() {
    for baseline in [false, true] {
        let Some(gpu) = gpu(WgpuOptions::default().with_baseline(baseline)) else {
            return;
        };
        check_steps(&Model::open_demo_with(options(&gpu)).unwrap(), &gpu, 4);
    }
}

/// Memory for keys and values doubles at 1,024 tokens: what was there moves along in the step's own submission.
#[test]
fn a_step_in_which_the_cache_grows_submits_once_too() {
    let Some(gpu) = gpu(WgpuOptions::default()) else { return };
    let longer = Options {
        max_context: Some(2048),
        precision: Precision::Exact,
        ..options(&gpu)
    };
    let model = Model::open_demo_with(longer).unwrap();
    let ids: Vec<u32> = (0..1020).map(|i| i * 7 % 2048).collect();
    let mut session = model.session().unwrap();
    session.feed(&ids, &WantedRows::Last).unwrap();
    session.feed(&[1], &WantedRows::Last).unwrap();
    let mut grown = 0;
    let mut last = Vec::new();
    for id in 2..10 {
        let before = gpu.counters();
        let row = session.feed(&[id], &WantedRows::Last).unwrap();
        let step = gpu.counters().since(&before);
        assert_eq!((step.submits, step.pipelines), (1, 0), "{step:?}");
        grown += usize::from(step.buffers > 0);
        last = row.as_f32().unwrap().to_vec();
    }
    assert_eq!(grown, 1);
    // The same tokens, where the memory was large enough from the step before on.
    let mut session = model.session().unwrap();
    session.feed(&ids, &WantedRows::Last).unwrap();
    let row = session.feed(&(1..10).collect::<Vec<u32>>(), &WantedRows::Last).unwrap();
    for (a, b) in last.iter().zip(row.as_f32().unwrap()) {
        assert!((a - b).abs() < 2e-2, "{a} {b}");
    }
}

#[test]
fn tokens_are_chosen_on_the_device() {
    let Some(gpu) = gpu(WgpuOptions::default()) else { return };
    let model = Model::open_demo_with(options(&gpu)).unwrap();
    let cpu = Model::open_demo().unwrap();
    for (temperature, top_k, bytes_per_token) in [(0.0, 0, 12), (0.8, 40, 4 + 8 * 64), (0.8, 0, 4 * 2048)] {
        let params = || GenerateParams {
            max_tokens: Some(12),
            ignore_eos: true,
            sample: SampleParams {
                temperature,
                top_k,
                seed: Some(5),
                ..SampleParams::default()
            },
            ..GenerateParams::default()
        };
        let before = gpu.counters();
        let tokens = |model: &Model| -> Vec<(u32, f32)> {
            let events = model.generate_ids(&[1, 2, 3], params()).unwrap().map(Result::unwrap);
            let token = |e| match e {
                Event::Token { id, logprob, .. } => Some((id, logprob)),
                _ => None,
            };
            events.filter_map(token).collect()
        };
        let on_device = tokens(&model);
        assert_eq!(on_device.len(), 12);
        assert_eq!(gpu.counters().since(&before).read_bytes, 12 * bytes_per_token);
        for (a, b) in on_device.iter().zip(tokens(&cpu)) {
            assert_eq!(a.0, b.0);
            assert!((a.1 - b.1).abs() < 0.05, "{} {}", a.1, b.1);
        }
    }
}

#[test]
fn so_does_one_of_a_real_model() {
    let path = std::env::var_os("GLIA_MODELS").map(std::path::PathBuf::from);
    let path = path
        .map(|dir| dir.join("SmolLM2-135M-Instruct.Q4_1.gguf"))
        .filter(|p| p.is_file());
    let Some(path) = path else {
        println!("SKIP: steps of SmolLM2 on wgpu: GLIA_MODELS names no folder with it");
        return;
    };
    let Some(gpu) = gpu(WgpuOptions::default()) else { return };
    check_steps(&Model::open_with(path, options(&gpu)).unwrap(), &gpu, 30);
}

#[test]
fn the_first_request_compiles_nothing() {
    let Some(gpu) = gpu(WgpuOptions::default()) else { return };
    let model = Model::open_demo_with(options(&gpu)).unwrap();
    let before = gpu.counters();
    model
        .session()
        .unwrap()
        .feed(&(1..40).collect::<Vec<u32>>(), &WantedRows::Last)
        .unwrap();
    assert_eq!(gpu.counters().since(&before).pipelines, 0);
}

#[test]
fn memory_is_flat_over_requests() {
    let Some(gpu) = gpu(WgpuOptions::default()) else { return };
    let model = Model::open_demo_with(options(&gpu)).unwrap();
    let request = || {
        let mut session = model.session().unwrap();
        session.feed(&[1, 2, 3], &WantedRows::Last).unwrap();
    };
    (0..10).for_each(|_| request());
    let before = gpu.counters();
    (0..990).for_each(|_| request());
    let after = gpu.counters();
    assert_eq!(after.buffer_bytes, before.buffer_bytes);
    assert_eq!(after.since(&before).buffers, 0);
}

#[test]
fn steps_have_the_rows_whose_logits_a_binding_holds() {
    // 2048 logits of four bytes: 128 rows.
    let Some(small) = gpu(WgpuOptions::default().with_max_binding_bytes(1 << 20)) else {
        return;
    };
    let Some(whole) = gpu(WgpuOptions::default()) else {
        return;
    };
    let ids: Vec<u32> = (0..300).collect();
    let rows = |gpu: &Arc<WgpuBackend>| {
        let exact = Options {
            precision: Precision::Exact,
            ..options(gpu)
        };
        let model = Model::open_demo_with(exact).unwrap();
        model.session().unwrap().feed(&ids, &WantedRows::All).unwrap()
    };
    let (small, whole) = (rows(&small), rows(&whole));
    assert_eq!(small.shape(), whole.shape());
    for (a, b) in small.as_f32().unwrap().iter().zip(whole.as_f32().unwrap()) {
        assert!((a - b).abs() < 1e-3, "{a} {b}");
    }
}

#[test]
fn a_lost_device_is_said_and_the_session_is_as_before() {
    let Some(gpu) = gpu(WgpuOptions::default()) else { return };
    let model = Model::open_demo_with(options(&gpu)).unwrap();
    let mut session = model.session().unwrap();
    let expected = session.feed(&[1, 2, 3], &WantedRows::Last).unwrap();
    gpu.lose_device();
    let error = session.feed(&[4], &WantedRows::Last).unwrap_err();
    assert!(error.to_string().contains("the device was lost"), "{error}");
    assert_eq!(session.pos(), 3);
    // The next session of the same model, and whoever opens the model again, gets a new device.
    let again = model.session().unwrap().feed(&[1, 2, 3], &WantedRows::Last).unwrap();
    assert_eq!(again.as_f32().unwrap(), expected.as_f32().unwrap());
    assert!(session.feed(&[4], &WantedRows::Last).is_err(), "its tokens are gone");
    session.reset();
    let again = session.feed(&[1, 2, 3], &WantedRows::Last).unwrap();
    assert_eq!(again.as_f32().unwrap(), expected.as_f32().unwrap());
    let model = Model::open_demo_with(options(&gpu)).unwrap();
    let again = model.session().unwrap().feed(&[1, 2, 3], &WantedRows::Last).unwrap();
    assert_eq!(again.as_f32().unwrap(), expected.as_f32().unwrap());
}

#[test]
fn a_device_lost_in_the_middle_of_a_generation_ends_it_and_the_next_one_is_whole() {
    let Some(gpu) = gpu(WgpuOptions::default()) else { return };
    let cpu: Arc<dyn Backend> = Arc::new(glia_backend_cpu::CpuBackend::new().unwrap());
    let file = std::env::temp_dir().join(format!("glia-lost-{}.gguf", std::process::id()));
    let demo = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../assets/bard-3.7m-q8_0.gguf");
    std::fs::copy(demo, &file).unwrap();
    let only: Vec<Arc<dyn Backend>> = vec![gpu.clone()];
    // From a file that is mapped, one that was read, and with some of the model on the CPU.
    for (mmap, backends) in [
        (true, only.clone()),
        (false, only),
        (true, vec![Arc::new(NoNorm(gpu.clone())), cpu]),
    ] {
        let options = Options {
            mmap,
            backends: Some(backends),
            ..options(&gpu)
        };
        let model = Model::open_with(&file, options).unwrap();
        let (expected, error) = generate(&model, |_| {});
        assert!(expected.len() == 20 && error.is_none(), "{error:?}");
        for _ in 0..2 {
            let lose_at_third = |n: usize| {
                if n == 3 {
                    gpu.lose_device();
                }
            };
            let (ids, error) = generate(&model, lose_at_third);
            let error = error.expect("the device is gone");
            assert!(error.contains("the device was lost"), "{error}");
            assert!((3..20).contains(&ids.len()) && expected.starts_with(&ids), "{ids:?}");
            let (ids, error) = generate(&model, |_| {});
            assert!(ids == expected && error.is_none(), "{ids:?} {expected:?} {error:?}");
        }
    }
    // A file that is not the one that was read is not taken for it.
    let options = Options {
        mmap: false,
        ..options(&gpu)
    };
    let model = Model::open_with(&file, options).unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    bytes.extend([0; 64]);
    std::fs::write(&file, bytes).unwrap();
    gpu.lose_device();
    let error = model.session().err().expect("another file").to_string();
    assert!(error.contains("has changed since it was read"), "{error}");
    std::fs::remove_file(&file).unwrap();
}

/// The GPU without norms, which a backend after it runs.
struct NoNorm(Arc<WgpuBackend>);

impl Backend for NoNorm {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn supports(&self, op: &Op) -> bool {
        self.0.supports(op)
    }

    fn execute(&self, op: &Op, inputs: &[&Tensor]) -> Result<Vec<Tensor>, BackendError> {
        self.0.execute(op, inputs)
    }

    fn supports_node(&self, node: &NodeView<'_>) -> bool {
        node.op.kind() != "rms_norm" && self.0.supports_node(node)
    }

    fn space(&self) -> MemorySpace {
        self.0.space()
    }

    fn upload(&self, host: &Tensor) -> Result<Tensor, BackendError> {
        self.0.upload(host)
    }

    fn download(&self, tensor: &Tensor) -> Result<Tensor, BackendError> {
        self.0.download(tensor)
    }

    fn memory_hints(&self) -> MemoryHints {
        self.0.memory_hints()
    }

    fn compile(
        &self,
        segment: &Segment,
        options: &CompileOptions<'_>,
    ) -> Result<Option<Arc<dyn Program>>, BackendError> {
        self.0.compile(segment, options)
    }
}

/// Greedy ids, and the error that ended them; `after` sees how many there are.
fn generate(model: &Model, after: impl Fn(usize)) -> (Vec<u32>, Option<String>) {
    let params = GenerateParams {
        max_tokens: Some(20),
        ignore_eos: true,
        ..GenerateParams::default()
    };
    let (mut ids, mut error) = (Vec::new(), None);
    for event in model.generate_ids(&[1, 2, 3], params).unwrap() {
        match event {
            Ok(Event::Token { id, .. }) => {
                ids.push(id);
                after(ids.len());
            }
            Ok(_) => {}
            Err(e) => {
                assert!(error.is_none(), "nothing comes after an error");
                error = Some(e.to_string());
            }
        }
    }
    (ids, error)
}

#[test]
fn memory_that_is_not_there_is_an_error_with_figures() {
    let limited = |bytes| gpu(WgpuOptions::default().with_max_memory_bytes(bytes));
    let Some(small) = limited(1 << 20) else { return };
    let error = Model::open_demo_with(options(&small))
        .err()
        .expect("too little memory")
        .to_string();
    assert!(error.contains("out of memory") && error.contains("1048576"), "{error}");
    // What fails while it runs leaves the session as it was.
    let Some(some) = limited(16 << 20) else { return };
    let model = Model::open_demo_with(options(&some)).unwrap();
    let mut session = model.session().unwrap();
    let ids: Vec<u32> = (0..512).collect();
    let mut error = None;
    let mut pos = 0;
    for _ in 0..2 {
        pos = session.pos();
        error = session.feed(&ids, &WantedRows::All).err();
        if error.is_some() {
            break;
        }
    }
    let Some(error) = error else {
        panic!("512 rows of logits fit in 16 MiB")
    };
    assert!(out_of_memory(&error), "{error}");
    assert_eq!(session.pos(), pos);
    session.feed(&[1, 2], &WantedRows::Last).unwrap();
}

fn out_of_memory(error: &ModelError) -> bool {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(e) = source {
        if matches!(e.downcast_ref(), Some(BackendError::OutOfMemory { .. })) {
            return true;
        }
        source = e.source();
    }
    error.to_string().contains("out of memory")
}

#[test]
fn a_long_prompt_is_many_short_submissions() {
    let Some(gpu) = gpu(WgpuOptions::default().with_max_submit_ops(100_000_000)) else {
        return;
    };
    let model = Model::open_demo_with(options(&gpu)).unwrap();
    let mut session = model.session().unwrap();
    let ids: Vec<u32> = (0..1000).map(|i| i % 2048).collect();
    let before = gpu.counters();
    let cut = session.feed(&ids, &WantedRows::Last).unwrap();
    let work = gpu.counters().since(&before);
    // Seven million operations per token and more for attention.
    assert!(work.submits >= 70, "{work:?}");
    let whole = Arc::new(WgpuBackend::new(WgpuOptions::default().with_max_submit_ops(u64::MAX)).unwrap());
    let model = Model::open_demo_with(options(&whole)).unwrap();
    let before = whole.counters();
    let once = model.session().unwrap().feed(&ids, &WantedRows::Last).unwrap();
    assert_eq!(whole.counters().since(&before).submits, 2);
    assert_eq!(cut.as_f32().unwrap(), once.as_f32().unwrap());
}
