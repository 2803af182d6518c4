//! Speed of packing and of packed products, one thread: the widths of a small model, one row and many.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use glia_backend_cpu::isa::Isa;
use glia_backend_cpu::pack::PackedMatrix;
use glia_core::quant::quantize;
use glia_core::{DType, Precision, Tensor};

fn weight(dtype: DType, n: usize, k: usize) -> Tensor {
    let values: Vec<f32> = (0..n * k).map(|i| ((i * 7919) % 2003) as f32 / 1001.0 - 1.0).collect();
    let mut bytes = vec![0u8; dtype.size_bytes(n * k).expect("whole blocks")];
    match dtype {
        // No encoder: blocks of arbitrary codes; scales and units as F16 far from the odd values.
        DType::Q4_K | DType::Q5_K | DType::Q6_K => {
            bytes.iter_mut().enumerate().for_each(|(i, b)| *b = (i * 37 % 59) as u8);
        }
        _ => quantize(dtype, &values, &mut bytes).expect("a dtype with an encoder"),
    }
    Tensor::from_bytes(dtype, [n, k], &bytes).expect("the right length")
}

fn products(c: &mut Criterion) {
    let isa = Isa::detect();
    for dtype in [
        DType::Q4_0,
        DType::Q4_1,
        DType::Q5_0,
        DType::Q8_0,
        DType::Q4_K,
        DType::Q6_K,
        DType::F16,
        DType::F32,
    ] {
        // 16 MiB or more, so that one row reads beyond the second-level cache.
        let (n, k) = (16384, 2048);
        let w = weight(dtype, n, k);
        let packed = PackedMatrix::pack(&w, Precision::Fast, isa).expect("packs");
        let mut group = c.benchmark_group(dtype.name());
        group.sample_size(10);
        group.throughput(Throughput::Bytes(w.size_bytes() as u64));
        group.bench_function("pack", |b| {
            b.iter(|| PackedMatrix::pack(&w, Precision::Fast, isa).expect("packs"))
        });
        for m in [1, 8, 16, 96] {
            let x: Vec<f32> = (0..m * k).map(|i| ((i * 31) % 199) as f32 / 99.0 - 1.0).collect();
            let mut acts = vec![0u8; m * packed.act_row_bytes()];
            packed.prepare(&x, m, &mut acts);
            let mut out = vec![0f32; m * n];
            if m == 1 {
                group.throughput(Throughput::Bytes(packed.size_bytes() as u64));
            } else {
                group.throughput(Throughput::Elements((2 * m * n * k) as u64));
            }
            group.bench_function(format!("rows-{m}"), |b| {
                // SAFETY: `out` holds `m` rows of `n` and nobody else touches it.
                b.iter(|| unsafe {
                    packed.run(black_box(&acts), m, 0..packed.n_tiles(), None, out.as_mut_ptr(), n);
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, products);
criterion_main!(benches);
