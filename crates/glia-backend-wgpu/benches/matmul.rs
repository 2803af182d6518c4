//! Time of one product with weights, for decode, a few rows and a prefill, and of packing a matrix:
//! `cargo bench -p glia-backend-wgpu --bench matmul [-- --together] [--dots]`. With `--dots`, products in F32 and in bytes
//! take turns, and their times and ratios are those by which the table of adapters is written. Products are chained in one step, so that what a
//! step costs beside them hardly counts.

#[path = "../tests/parts/mod.rs"]
mod parts;

use std::sync::Arc;
use std::time::Instant;

use glia_backend_wgpu::{ByteDots, Kernels, WgpuBackend, WgpuOptions};
use glia_core::{
    Backend, CompileOptions, DType, Dim, Op, Precision, ProgramState, SeqId, SeqRows, StateOptions, Step, Tensor,
    ValueType,
};
use parts::{Build, random};

/// Random blocks: most of their bytes are codes, and scales need not make sense.
fn weight(dtype: DType, n: usize, k: usize) -> Tensor {
    let bytes = dtype.size_bytes(n * k).unwrap();
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 26) as u8
    };
    let bytes: Vec<u8> = (0..bytes).map(|_| next()).collect();
    Tensor::from_bytes(dtype, [n, k], &bytes).unwrap()
}

/// A state over one product, or a chain of them there and back where that is short.
struct Chain {
    gpu: Arc<WgpuBackend>,
    state: Box<dyn ProgramState>,
    n_products: usize,
    k: usize,
}

impl Chain {
    fn new(gpu: &Arc<WgpuBackend>, dtype: DType, n: usize, k: usize) -> Chain {
        let n_products = if n > 10_000 { 1 } else { 16 };
        let mut build = Build::default();
        let mut y = build.input("x", ValueType::new(DType::F32, [Dim::T, Dim::fixed(k)]));
        for i in 0..n_products {
            let (n, k) = if i % 2 == 0 { (n, k) } else { (k, n) };
            let w = build.weight(&format!("w{i}"), weight(dtype, n, k));
            y = build.op(Op::MatMul, &[y, w])[0];
        }
        let few = Op::Slice {
            axis: 1,
            start: 0,
            end: Some(8),
        };
        build.segment.outputs = build.op(few, &[y]);
        let mut options = CompileOptions::new(&build, Precision::Fast);
        options.max_step_tokens = 64;
        // Kernels are there the second time.
        gpu.compile(&build.segment, &options).unwrap();
        let started = Instant::now();
        let program = gpu.compile(&build.segment, &options).unwrap().unwrap();
        let packed = started.elapsed().as_secs_f64();
        let bytes = n_products * dtype.size_bytes(n * k).unwrap();
        println!("{dtype} {n} x {k}: packed at {:.2} GB/s", bytes as f64 / packed / 1e9);
        let mut state = program.open(&StateOptions::default()).unwrap();
        state.create(SeqId(0)).unwrap();
        Chain {
            gpu: gpu.clone(),
            state,
            n_products,
            k,
        }
    }

    /// Seconds of one product of so many rows.
    fn step(&mut self, n_rows: usize) -> f64 {
        let rows = [SeqRows {
            seq: SeqId(0),
            first_row: 0,
            n_rows,
            pos: 0,
        }];
        let given = [random(&[n_rows, self.k], 1)];
        let started = Instant::now();
        let y = self.state.run(&Step::new(&rows, &given, &[])).unwrap();
        self.gpu.download(&y[0]).unwrap();
        self.state.rollback();
        started.elapsed().as_secs_f64() / self.n_products as f64
    }
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Times of every number of rows on each of the devices, in turns; beside those after the first, the ratio to it.
fn measure(gpus: &[Arc<WgpuBackend>], dtype: DType, n: usize, k: usize) {
    let mut chains: Vec<Chain> = gpus.iter().map(|gpu| Chain::new(gpu, dtype, n, k)).collect();
    let bytes = dtype.size_bytes(n * k).unwrap() as f64;
    for n_rows in [1, 2, 4, 8, 64] {
        let mut times = vec![Vec::new(); chains.len()];
        for _ in 0..9 {
            for (times, chain) in times.iter_mut().zip(&mut chains) {
                times.push(chain.step(n_rows));
            }
        }
        let times: Vec<f64> = times.into_iter().map(median).collect();
        for (i, time) in times.iter().enumerate() {
            let ops = 2.0 * (n * k * n_rows) as f64;
            let ratio = if i > 0 {
                format!(" {:.2} of the first", time / times[0])
            } else {
                String::new()
            };
            println!(
                "  {n_rows:>3} rows {:>9.1} us {:>8.2} GB/s {:>8.2} GFLOP/s{ratio}",
                time * 1e6,
                bytes / time / 1e9,
                ops / time / 1e9
            );
        }
    }
}

fn main() {
    let has = |flag: &str| std::env::args().any(|arg| arg == flag);
    let kernels = if has("--together") {
        Kernels::Together
    } else {
        Kernels::Auto
    };
    let dots: &[ByteDots] = if has("--dots") {
        &[ByteDots::Never, ByteDots::Always]
    } else {
        &[ByteDots::Measured]
    };
    let open = |&dots: &ByteDots| {
        let options = WgpuOptions::default().with_kernels(kernels).with_byte_dots(dots);
        Arc::new(WgpuBackend::new(options).unwrap())
    };
    let gpus: Vec<Arc<WgpuBackend>> = dots.iter().map(open).collect();
    println!("{}", gpus[0].adapter());
    for dtype in [DType::Q8_0, DType::Q4_1, DType::Q4_0, DType::Q4_K, DType::F16] {
        let k = if dtype.block_elems() > 32 { 768 } else { 576 };
        measure(&gpus, dtype, 1536, k);
        measure(&gpus, dtype, 2048, 2048);
        measure(&gpus, dtype, 49_152, k);
    }
}
