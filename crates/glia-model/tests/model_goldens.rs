//! Golden models: the subset in the repository, and the whole set when `GLIA_GOLDENS` names it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use glia_core::Backend;
use glia_model::proof::{Outcome, models};

#[test]
fn every_model_of_a_supported_family_passes() {
    let repo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens");
    let mut folders = vec![repo];
    folders.extend(std::env::var_os("GLIA_GOLDENS").map(PathBuf::from));
    for folder in folders {
        let cpu: Arc<dyn Backend> = Arc::new(glia_backend_cpu::CpuBackend::new().unwrap());
        let results = models::run(&folder.join("models"), &[cpu], "");
        let failed: Vec<String> = results
            .iter()
            .filter_map(|r| match &r.outcome {
                Outcome::Fail(why) => Some(format!("{}: {why}", r.name)),
                _ => None,
            })
            .collect();
        let n_passed = results.iter().filter(|r| r.outcome == Outcome::Pass).count();
        println!("{}: {n_passed} of {} pass", folder.display(), results.len());
        assert!(failed.is_empty(), "{}", failed.join("\n"));
        assert!(n_passed > 0, "no model of a supported family");
    }
}
