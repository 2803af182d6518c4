//! Proof from outside: the node tests of the `onnx` package, translated to graphs, on the oracle and on every backend.
//!
//! All of them run when `GLIA_ONNX` names the archive that `cargo xtask onnx` makes; a part that is kept in the
//! repository runs always. `docs/onnx-coverage.md` is the list of what is covered; with `GLIA_ONNX_BLESS` it is rewritten.

mod array;
mod case;
mod coverage;
mod exceptions;
mod proto;
mod run;
mod translate;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use glia_backend_cpu::CpuBackend;
use glia_backend_wgpu::{WgpuBackend, WgpuOptions};
use glia_core::Backend;
use glia_core::reference::ReferenceBackend;

use case::Case;
use coverage::Entry;
use translate::{Stop, Weights, translate};

/// Backends as an executor is given them: first choice first.
type Priority = Vec<Arc<dyn Backend>>;

/// What every covered case runs on. A backend joins by a line, with those that do what it does not behind it.
fn backends() -> Vec<Priority> {
    let cpu = Arc::new(CpuBackend::new().expect("this machine has a CPU"));
    let mut all: Vec<Priority> = vec![vec![Arc::new(ReferenceBackend)], vec![cpu.clone()]];
    match WgpuBackend::new(WgpuOptions::default()) {
        Ok(gpu) => all.push(vec![Arc::new(gpu), cpu]),
        Err(error) => println!("SKIP: node tests on wgpu: {error}"),
    }
    all
}

/// What became of each case, and what is wrong.
#[derive(Default)]
struct Outcome {
    entries: Vec<Entry>,
    failures: Vec<String>,
    n_runs: usize,
}

fn run_all(cases: &[Case]) -> Outcome {
    let backends = backends();
    let mut outcome = Outcome::default();
    for case in cases {
        let reason = match guarded(|| translate(case, Weights::None)).unwrap_or_else(|why| Err(Stop::Broken(why))) {
            Ok(_) => match run_one(case, &backends, &mut outcome.n_runs) {
                Ok(reason) => reason,
                Err(failures) => {
                    outcome.failures.extend(failures);
                    None
                }
            },
            Err(Stop::NotCovered(reason)) => Some(reason.to_string()),
            Err(Stop::Broken(what)) => {
                outcome.failures.push(format!("{}: translation: {what}", case.name));
                None
            }
        };
        outcome.entries.push(Entry {
            name: case.name.clone(),
            op: coverage::op_of(case, cases),
            reason,
        });
    }
    outcome
}

/// A panic becomes a failure of its case, and the others still run.
fn guarded<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    let text = |panic: Box<dyn std::any::Any + Send>| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        format!("panics: {}", text.unwrap_or("without a text"))
    };
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).map_err(text)
}

/// Runs a case on every backend, its inputs given with the run or held as weights. A declared exception must fail.
fn run_one(case: &Case, backends: &[Priority], n_runs: &mut usize) -> Result<Option<String>, Vec<String>> {
    let mut failures = Vec::new();
    for priority in backends {
        let names: Vec<&str> = priority.iter().map(|b| b.name()).collect();
        for weights in [Weights::None, Weights::AllButFirst] {
            *n_runs += 1;
            let once = || {
                let translated = translate(case, weights).map_err(|stop| format!("{stop:?}"))?;
                run::check(case, translated, priority)
            };
            if let Err(why) = guarded(once).unwrap_or_else(Err) {
                failures.push(format!("{} on {} ({weights:?}): {why}", case.name, names.join(",")));
            }
        }
    }
    match (exceptions::of(&case.name), failures.is_empty()) {
        (None, true) => Ok(None),
        (None, false) => Err(failures),
        (Some(reason), false) => Ok(Some(reason.to_owned())),
        (Some(_), true) => Err(vec![format!("{}: passes now; take it off the exceptions", case.name)]),
    }
}

fn report(what: &Path, outcome: &Outcome) {
    let n_covered = outcome.entries.iter().filter(|e| e.reason.is_none()).count();
    println!(
        "{}: {n_covered} of {} cases covered, {} runs",
        what.display(),
        outcome.entries.len(),
        outcome.n_runs
    );
    let shown = outcome.failures.iter().take(200).cloned().collect::<Vec<_>>();
    assert!(
        outcome.failures.is_empty(),
        "{} failures:\n{}",
        outcome.failures.len(),
        shown.join("\n")
    );
}

#[test]
fn cases_in_the_repository() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens/onnx/cases.zip");
    let cases = case::load(&path).unwrap();
    let outcome = run_all(&cases);
    report(&path, &outcome);
    let list = std::fs::read_to_string(coverage::path()).unwrap();
    let covered = coverage::covered(&list);
    for entry in &outcome.entries {
        assert!(entry.reason.is_none(), "{}: {:?}", entry.name, entry.reason);
        assert!(
            covered.contains(&entry.name.as_str()),
            "{} is not on the list",
            entry.name
        );
    }
}

#[test]
fn every_case_of_the_package() {
    let Some(path) = std::env::var_os("GLIA_ONNX").map(PathBuf::from) else {
        println!("SKIP: GLIA_ONNX is not set (cargo xtask onnx makes the archive)");
        return;
    };
    let cases = case::load(&path).unwrap();
    let outcome = run_all(&cases);
    let text = coverage::print(&outcome.entries);
    if std::env::var_os("GLIA_ONNX_BLESS").is_some() {
        std::fs::write(coverage::path(), &text).unwrap();
    }
    report(&path, &outcome);
    let kept = std::fs::read_to_string(coverage::path()).unwrap();
    assert!(kept == text, "docs/onnx-coverage.md is stale: cargo xtask onnx --bless");
}
