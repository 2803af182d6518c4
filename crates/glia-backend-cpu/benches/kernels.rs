//! Packed matrices on one thread, without a program around them: packing, preparing rows, and products of some rows.

mod common;

use std::cell::OnceCell;
use std::hint::black_box;

use common::{Lab, Work};
use criterion::Criterion;
use glia_backend_cpu::isa::Isa;
use glia_backend_cpu::pack::PackedMatrix;
use glia_core::{DType, Precision, Tensor};

/// 16 MiB or more of every dtype, so that one row reads beyond the second-level cache.
const N: usize = 16384;
const K: usize = 2048;

fn pack(w: &Tensor) -> PackedMatrix {
    PackedMatrix::pack(w, Precision::Fast, Isa::detect()).expect("packs")
}

fn moved(bytes: usize) -> Work {
    Work {
        bytes: bytes as u64,
        ops: 0,
        int8: false,
    }
}

fn kernels(c: &mut Criterion, lab: &Lab) {
    for dtype in [
        DType::Q4_0,
        DType::Q4_1,
        DType::Q5_0,
        DType::Q8_0,
        DType::Q4_K,
        DType::Q6_K,
        DType::F16,
        DType::BF16,
        DType::F32,
    ] {
        let mut group = c.benchmark_group(format!("one-thread-{dtype}"));
        let stored = dtype.size_bytes(N * K).expect("whole blocks");
        // Made when the first bench that is not filtered out runs.
        let (weight, packed) = (OnceCell::new(), OnceCell::new());
        let weight = || weight.get_or_init(|| common::weight(dtype, N, K));
        let packed = || packed.get_or_init(|| pack(weight()));
        lab.measure(&mut group, "pack", moved(stored), || {
            black_box(pack(weight()));
        });
        for m in [1, 8, 16, 96] {
            let x = common::noise(m * K);
            let (mut acts, mut out) = (Vec::new(), vec![0f32; m * N]);
            lab.measure(&mut group, &format!("prepare-{m}"), moved(4 * m * K), || {
                acts.resize(m * packed().act_row_bytes(), 0u8);
                packed().prepare(black_box(&x), m, &mut acts);
            });
            let work = Work {
                bytes: stored as u64,
                ops: (2 * m * N * K) as u64,
                int8: dtype.is_quantized(),
            };
            let mut prepared = false;
            lab.measure(&mut group, &format!("rows-{m}"), work, || {
                let packed = packed();
                if !prepared {
                    acts.resize(m * packed.act_row_bytes(), 0u8);
                    packed.prepare(&x, m, &mut acts);
                    prepared = true;
                }
                // SAFETY: `out` holds `m` rows of `N` and nobody else touches it.
                unsafe {
                    packed.run(black_box(&acts), m, 0..packed.n_tiles(), None, out.as_mut_ptr(), N);
                }
            });
        }
        group.finish();
    }
}

fn main() {
    let mut criterion = Lab::criterion();
    kernels(&mut criterion, &Lab::new(1));
    criterion.final_summary();
}
