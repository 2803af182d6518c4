//! What the benches share: small graphs on the CPU backend, and a line after each measurement that sets it beside the
//! machine's ceiling.

#![allow(dead_code)] // Each bench uses a part.

#[path = "../../tests/tiny/mod.rs"]
mod tiny;

use std::cell::{Cell, OnceCell};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, SamplingMode, Throughput};
use glia_backend_cpu::ceiling::{self, Ceiling};
use glia_backend_cpu::{CpuBackend, CpuOptions};
use glia_core::{DType, Op, Tensor};
use glia_ir::{ExecConfig, GraphBuilder, GraphError, GraphExecutor, Passes, Vid};

/// Most rows of a step.
pub const MAX_ROWS: usize = 512;

/// What one iteration moves and computes.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    pub bytes: u64,
    pub ops: u64,
    /// Whether the operations are of int8 kernels.
    pub int8: bool,
}

/// The backend that is measured, and the machine's ceiling for as many threads.
pub struct Lab {
    pub cpu: Arc<CpuBackend>,
    ceiling: OnceCell<Ceiling>,
}

impl Lab {
    /// A backend of so many threads; 0 is as many as the process may use.
    pub fn new(threads: usize) -> Lab {
        let options = CpuOptions {
            threads,
            ..CpuOptions::default()
        };
        Lab {
            cpu: Arc::new(CpuBackend::with_options(options).expect("threads")),
            ceiling: OnceCell::new(),
        }
    }

    /// Short measurements, so that all benches end in minutes.
    pub fn criterion() -> Criterion {
        Criterion::default()
            .sample_size(10)
            .warm_up_time(Duration::from_millis(150))
            .measurement_time(Duration::from_millis(400))
            .configure_from_args()
    }

    /// Measures `run` and prints bytes and operations per second beside the ceiling.
    pub fn measure(&self, group: &mut BenchmarkGroup<'_, WallTime>, name: &str, work: Work, mut run: impl FnMut()) {
        let Work { bytes, ops, int8 } = work;
        // As many iterations in each sample: slow kernels take no longer than they must.
        group.sampling_mode(SamplingMode::Flat);
        group.throughput(match ops {
            0 => Throughput::BytesDecimal(bytes),
            _ => Throughput::ElementsAndBytes { elements: ops, bytes },
        });
        // The last ten are those that criterion counts, the others warm up.
        let (seconds, at) = ([const { Cell::new(0.0f64) }; 10], Cell::new(0));
        group.bench_function(name, |b| {
            b.iter_custom(|n| {
                let started = Instant::now();
                (0..n).for_each(|_| run());
                let time = started.elapsed();
                seconds[at.get() % 10].set(time.as_secs_f64() / n.max(1) as f64);
                at.set(at.get() + 1);
                time
            });
        });
        // Nothing is printed for what a filter leaves out, or what runs once as a test.
        if at.get() < 10 {
            return;
        }
        let mut seconds: Vec<f64> = seconds.iter().map(Cell::get).collect();
        seconds.sort_by(f64::total_cmp);
        let ceiling = self.ceiling();
        let (peak, what) = match int8 {
            true => (ceiling.int8_ops, "int8"),
            false => (ceiling.f32_ops, "f32"),
        };
        let (time, bytes, n_ops) = (seconds[5], bytes as f64, ops as f64);
        let computed = match ops {
            0 => String::new(),
            _ => format!(", {:.1} of {:.0} Gop/s {what}", n_ops / time / 1e9, peak / 1e9),
        };
        println!(
            "    {:.1} of {:.1} GB/s{computed}: {:.0} % of the ceiling\n",
            bytes / time / 1e9,
            ceiling.read() / 1e9,
            100.0 * ceiling.share(time, bytes, n_ops, peak)
        );
    }

    fn ceiling(&self) -> &Ceiling {
        self.ceiling.get_or_init(|| {
            let n = self.cpu.n_threads();
            ceiling::measure(&[n]).expect("memory to read").by_threads[0]
        })
    }

    /// A graph ready to run; `build` makes a value of whose rows only the first is returned, so that results stay in
    /// the arena as those of a model do.
    pub fn executor(
        &self,
        kv: DType,
        weights: HashMap<String, Tensor>,
        build: impl FnOnce(&mut GraphBuilder) -> Result<Vid, GraphError>,
    ) -> GraphExecutor {
        let graph = || -> Result<_, GraphError> {
            let mut b = GraphBuilder::new("bench");
            let y = build(&mut b)?;
            let first = Op::Slice {
                axis: 0,
                start: 0,
                end: Some(1),
            };
            let first = b.node1("first", first, &[y])?;
            b.output("y", first)?;
            b.finish()
        };
        let config = ExecConfig::default()
            .with_passes(Passes::None)
            .with_max_step_tokens(MAX_ROWS)
            .with_kv_dtypes([kv; 2]);
        let backends: Vec<Arc<dyn glia_core::Backend>> = vec![self.cpu.clone()];
        let executor = GraphExecutor::prepare(graph().expect("a graph"), weights, backends, config).expect("a plan");
        assert!(
            executor.describe().iter().all(|d| d.starts_with("compiled")),
            "the graph must be compiled"
        );
        executor
    }
}

/// Every dtype that a weight matrix may have: from the table of dtypes, so that a new one is measured too.
pub fn weight_dtypes() -> Vec<DType> {
    tiny::weight_dtypes()
}

/// Numbers in -1..1 that look random.
pub fn noise(n: usize) -> Vec<f32> {
    (0..n as u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / 8_388_608.0 - 1.0)
        .collect()
}

/// An F32 tensor of noise.
pub fn tensor(shape: &[usize]) -> Tensor {
    Tensor::from_f32(shape, &noise(shape.iter().product())).expect("a tensor")
}

/// `[n, k]` of blocks that repeat: making 64 rows takes long enough.
pub fn weight(dtype: DType, n: usize, k: usize) -> Tensor {
    const N_DISTINCT: usize = 64;
    let rows = tiny::encoded(dtype, N_DISTINCT * k, 7);
    Tensor::from_bytes(dtype, [n, k], &rows.repeat(n / N_DISTINCT)).expect("whole rows")
}
