//! Time of one attention over a cache, for decode and prefill: `cargo bench -p glia-backend-wgpu --bench attention`.
//! Layers are chained in one step, so that what a step costs beside them hardly counts.

#[path = "../tests/parts/mod.rs"]
mod parts;

use std::time::Instant;

use glia_backend_wgpu::{Kernels, WgpuBackend, WgpuOptions};
use glia_core::{
    Backend, CompileOptions, DType, Dim, Op, Precision, Sdpa, SeqId, SeqRows, StateOptions, Step, ValueType,
};
use parts::{Build, random};

const LAYERS: usize = 8;

struct Case {
    name: &'static str,
    heads: usize,
    groups: usize,
    d: usize,
    rows: usize,
    past: usize,
}

fn measure(gpu: &WgpuBackend, case: &Case) {
    let mut build = Build::default();
    let rows = |heads| ValueType::new(DType::F32, [Dim::T, Dim::fixed(heads), Dim::fixed(case.d)]);
    let q = build.input("q", rows(case.heads));
    let k = build.input("k", rows(case.groups));
    let v = build.input("v", rows(case.groups));
    let kv = build.op(Op::KvCache, &[k, v]);
    let sdpa = Sdpa {
        scale: 0.125,
        causal: true,
        window: None,
        softcap: None,
        mask: false,
        sinks: false,
    };
    let mut y = q;
    for _ in 0..LAYERS {
        y = build.op(Op::Sdpa(sdpa.clone()), &[y, kv[0], kv[1]])[0];
    }
    build.segment.outputs = vec![y];
    let mut options = CompileOptions::new(&build, Precision::Fast);
    options.kv_dtypes = [DType::F16; 2];
    options.max_context = case.past + case.rows;
    let program = gpu.compile(&build.segment, &options).unwrap().unwrap();
    let mut state = program.open(&StateOptions::default()).unwrap();
    let seq = SeqId(0);
    state.create(seq).unwrap();
    let mut step = |n_rows: usize, pos: usize, keep: bool| {
        let first_row = 0;
        let rows = [SeqRows {
            seq,
            first_row,
            n_rows,
            pos,
        }];
        let shape = |heads| [n_rows, heads, case.d];
        let given = [
            random(&shape(case.heads), 1),
            random(&shape(case.groups), 2),
            random(&shape(case.groups), 3),
        ];
        let started = Instant::now();
        let y = state.run(&Step::new(&rows, &given, &[])).unwrap();
        gpu.download(&y[0]).unwrap();
        let took = started.elapsed();
        if keep {
            state.commit()
        } else {
            state.rollback()
        }
        took
    };
    let mut pos = 0;
    while pos < case.past {
        let n = (case.past - pos).min(256);
        step(n, pos, true);
        pos += n;
    }
    let best = (0..7).map(|_| step(case.rows, pos, false)).min().unwrap_or_default();
    let micros = best.as_secs_f64() * 1e6 / LAYERS as f64;
    println!("{:<24} {micros:>10.1} us per layer", case.name);
}

fn main() {
    let case = |name, heads, groups, d, rows, past| Case {
        name,
        heads,
        groups,
        d,
        rows,
        past,
    };
    let cases = [
        case("decode 9/3 64, 511", 9, 3, 64, 1, 511),
        case("decode 9/3 64, 2047", 9, 3, 64, 1, 2047),
        case("decode 32/8 128, 2047", 32, 8, 128, 1, 2047),
        case("prefill 9/3 64, 256", 9, 3, 64, 256, 0),
        case("prefill 9/3 64, 32+480", 9, 3, 64, 32, 480),
    ];
    let together = std::env::args().any(|arg| arg == "--together");
    let kernels = if together { Kernels::Together } else { Kernels::Auto };
    let gpu = WgpuBackend::new(WgpuOptions::default().with_kernels(kernels)).unwrap();
    println!("{}", gpu.adapter());
    for case in &cases {
        measure(&gpu, case);
    }
}
