//! Time of one product with weights, for decode, a few rows and a prefill, and of packing a matrix:
//! `cargo bench -p glia-backend-wgpu --bench matmul [-- --together]`. Products are chained in one step, so that what a
//! step costs beside them hardly counts.

#[path = "../tests/parts/mod.rs"]
mod parts;

use std::time::Instant;

use glia_backend_wgpu::{Kernels, WgpuBackend, WgpuOptions};
use glia_core::{
    Backend, CompileOptions, DType, Dim, Op, Precision, SeqId, SeqRows, StateOptions, Step, Tensor, ValueType,
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

/// One product, or a chain of them there and back where that is short.
fn measure(gpu: &WgpuBackend, dtype: DType, n: usize, k: usize) {
    let chained = if n > 10_000 { 1 } else { 16 };
    let mut build = Build::default();
    let mut y = build.input("x", ValueType::new(DType::F32, [Dim::T, Dim::fixed(k)]));
    for i in 0..chained {
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
    let bytes = chained * dtype.size_bytes(n * k).unwrap();
    // Kernels are there the second time.
    gpu.compile(&build.segment, &options).unwrap();
    let started = Instant::now();
    let program = gpu.compile(&build.segment, &options).unwrap().unwrap();
    let packed = started.elapsed().as_secs_f64();
    println!("{dtype} {n} x {k}: packed at {:.2} GB/s", bytes as f64 / packed / 1e9);
    let mut state = program.open(&StateOptions::default()).unwrap();
    let seq = SeqId(0);
    state.create(seq).unwrap();
    for n_rows in [1, 8, 64] {
        let rows = [SeqRows {
            seq,
            first_row: 0,
            n_rows,
            pos: 0,
        }];
        let given = [random(&[n_rows, k], 1)];
        let mut step = || {
            let started = Instant::now();
            let y = state.run(&Step::new(&rows, &given, &[])).unwrap();
            gpu.download(&y[0]).unwrap();
            state.rollback();
            started.elapsed()
        };
        let best = (0..5).map(|_| step()).min().unwrap_or_default().as_secs_f64();
        let ops = 2.0 * (n * k * chained * n_rows) as f64;
        println!(
            "  {n_rows:>3} rows {:>9.1} us {:>8.2} GB/s {:>8.2} GFLOP/s",
            best * 1e6 / chained as f64,
            bytes as f64 / best / 1e9,
            ops / best / 1e9
        );
    }
}

fn main() {
    let together = std::env::args().any(|arg| arg == "--together");
    let kernels = if together { Kernels::Together } else { Kernels::Auto };
    let gpu = WgpuBackend::new(WgpuOptions::default().with_kernels(kernels)).unwrap();
    println!("{}", gpu.adapter());
    for dtype in [DType::Q8_0, DType::Q4_1, DType::Q4_K, DType::F16] {
        let k = if dtype.block_elems() > 32 { 768 } else { 576 };
        measure(&gpu, dtype, 1536, k);
        measure(&gpu, dtype, 49_152, k);
    }
}
