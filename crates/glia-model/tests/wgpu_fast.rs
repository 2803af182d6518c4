//! Fast arithmetic on the GPU backend, where it has any: the next tokens are as likely as in exact arithmetic, for a
//! prompt (cooperative matrices) and step by step (dots of bytes).

use std::sync::Arc;

use glia_backend_wgpu::{ByteDots, Kernels, WgpuBackend, WgpuOptions};
use glia_core::{Backend, DType, Precision};
use glia_model::{Model, Options, WantedRows};

fn probabilities(logits: &[f32]) -> Vec<f64> {
    let top = logits.iter().fold(f32::NEG_INFINITY, |top, &v| top.max(v));
    let all: Vec<f64> = logits.iter().map(|&v| f64::from(v - top).exp()).collect();
    let sum: f64 = all.iter().sum();
    all.iter().map(|v| v / sum).collect()
}

/// Kullback-Leibler divergence, the mean over rows.
fn divergence(expected: &[f32], got: &[f32], n_vocab: usize) -> f64 {
    let rows = expected.chunks(n_vocab).zip(got.chunks(n_vocab));
    let each = rows.map(|(a, b)| {
        let pairs = probabilities(a).into_iter().zip(probabilities(b));
        pairs
            .filter(|(p, _)| *p > 0.0)
            .map(|(p, q)| p * (p / q).ln())
            .sum::<f64>()
    });
    let all: Vec<f64> = each.collect();
    all.iter().sum::<f64>() / all.len() as f64
}

/// Logits of a prompt in one step, and of the same tokens one by one.
fn logits(model: &Model, ids: &[u32]) -> [Vec<f32>; 2] {
    let at_once = model.session().unwrap().feed(ids, &WantedRows::All).unwrap();
    let mut session = model.session().unwrap();
    let mut one_by_one = Vec::new();
    for id in ids {
        let row = session.feed(&[*id], &WantedRows::Last).unwrap();
        one_by_one.extend_from_slice(row.as_f32().unwrap());
    }
    [at_once.as_f32().unwrap().to_vec(), one_by_one]
}

#[test]
fn fast_arithmetic_hardly_changes_what_is_likely() {
    let exact = Options {
        precision: Precision::Exact,
        ..Options::default()
    };
    let ids: Vec<u32> = (0..48).map(|i| (i * 37 + 5) % 2048).collect();
    let exact = logits(&Model::open_demo_with(exact).unwrap(), &ids);
    for kernels in [Kernels::Auto, Kernels::Together] {
        for dots in [ByteDots::Never, ByteDots::Always] {
            let options = WgpuOptions::default().with_kernels(kernels).with_byte_dots(dots);
            let gpu = match WgpuBackend::new(options) {
                Ok(gpu) => Arc::new(gpu),
                Err(error) => {
                    println!("SKIP: wgpu: {error}");
                    return;
                }
            };
            let fast = Options {
                backends: Some(vec![gpu as Arc<dyn Backend>]),
                kv_dtypes: Some([DType::F16; 2]),
                max_context: Some(256),
                ..Options::default()
            };
            let model = Model::open_demo_with(fast).unwrap();
            for (what, (a, b)) in ["at once", "one by one"]
                .iter()
                .zip(exact.iter().zip(&logits(&model, &ids)))
            {
                let kl = divergence(a, b, model.n_vocab());
                println!("{kernels:?}, {dots:?}, {what}: {kl:.2e}");
                assert!(kl < 1e-3, "{kernels:?}, {dots:?}, {what}: KL divergence {kl}");
            }
        }
    }
}
