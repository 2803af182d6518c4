//! Single ops and block formats against the reference's results, on the oracle: the sets in the repository, and the
//! whole ones when `GLIA_GOLDENS` names them.

use std::path::{Path, PathBuf};

use glia_core::reference::ReferenceBackend;
use glia_model::proof::{CaseResult, Outcome, ops, quants};

/// The folders, and how many cases must pass in each.
fn folders(kind: &str, in_repo: usize) -> Vec<(PathBuf, usize)> {
    let repo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens").join(kind);
    let whole = std::env::var_os("GLIA_GOLDENS").map(|root| (PathBuf::from(root).join(kind), 1));
    if whole.is_none() {
        println!("skipped: GLIA_GOLDENS is not set");
    }
    [(repo, in_repo)].into_iter().chain(whole).collect()
}

/// Nothing fails; the number of cases that pass.
fn check(dir: &Path, results: &[CaseResult]) -> usize {
    let (mut n_passed, mut failed) = (0, Vec::new());
    for result in results {
        match &result.outcome {
            Outcome::Pass => n_passed += 1,
            Outcome::Fail(why) => failed.push(format!("{}: {why}", result.name)),
            Outcome::Unsupported(why) => println!("skipped {}: {why}", result.name),
        }
    }
    println!("{}: {n_passed} of {} cases pass", dir.display(), results.len());
    assert!(failed.is_empty(), "{}:\n{}", dir.display(), failed.join("\n"));
    n_passed
}

/// Cases in the repository whose op exists; the others are printed. Raise it with the vocabulary.
const N_OPS: usize = 74;

#[test]
fn block_formats() {
    for (dir, least) in folders("quants", 26) {
        assert!(check(&dir, &quants::run(&dir)) >= least);
    }
}

#[test]
fn ops_on_the_oracle() {
    for (dir, least) in folders("ops", N_OPS) {
        assert!(check(&dir, &ops::run(&dir, &ReferenceBackend)) >= least);
    }
}

#[cfg(feature = "cpu")]
#[test]
fn ops_on_the_cpu() {
    let cpu = glia_backend_cpu::CpuBackend::new().unwrap();
    for (dir, least) in folders("ops", N_OPS) {
        assert!(check(&dir, &ops::run(&dir, &cpu)) >= least);
    }
}
