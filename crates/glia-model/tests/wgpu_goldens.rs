//! Golden models on a GPU, the CPU behind it: those that the CPU runs, within four times their tolerance,
//! and no node left to the CPU.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use glia_backend_wgpu::{WgpuBackend, WgpuOptions};
use glia_core::Backend;
use glia_model::proof::models::Demands;
use glia_model::proof::{Outcome, models};

#[test]
fn every_model_that_the_cpu_runs() {
    let demands = Demands {
        atol_times: 4.0,
        same_bits: false,
        all_on_first: true,
    };
    let repo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens");
    let mut folders = vec![repo];
    folders.extend(std::env::var_os("GLIA_GOLDENS").map(PathBuf::from));
    let filter = std::env::var("GLIA_GOLDEN_FILTER").unwrap_or_default();
    for folder in folders {
        for baseline in [false, true] {
            let gpu: Arc<dyn Backend> = match WgpuBackend::new(WgpuOptions::default().with_baseline(baseline)) {
                Ok(gpu) => Arc::new(gpu),
                Err(error) => {
                    println!("SKIP: golden models on wgpu: {error}");
                    return;
                }
            };
            let cpu: Arc<dyn Backend> = Arc::new(glia_backend_cpu::CpuBackend::new().unwrap());
            let results = models::run_with(&folder.join("models"), &[gpu, cpu], &filter, demands);
            let failed: Vec<String> = results
                .iter()
                .filter_map(|r| match &r.outcome {
                    Outcome::Fail(why) => Some(format!("{}: {why}", r.name)),
                    _ => None,
                })
                .collect();
            let n_passed = results.iter().filter(|r| r.outcome == Outcome::Pass).count();
            println!(
                "{} (baseline {baseline}): {n_passed} of {} pass",
                folder.display(),
                results.len()
            );
            assert!(failed.is_empty(), "{}", failed.join("\n"));
            assert!(n_passed > 0, "no model of a supported family");
        }
    }
}
