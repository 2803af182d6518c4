//! `cargo xtask goldens`: runs whatever cases a folder of golden files holds and prints a table of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use glia_backend_cpu::CpuBackend;
use glia_backend_wgpu::{WgpuBackend, WgpuOptions};
use glia_core::reference::ReferenceBackend;
use glia_core::{Backend, MemorySpace};
use glia_model::proof::models::Demands;
use glia_model::proof::{self, CaseResult, Outcome as Case};

use crate::Outcome;

/// Which cases, on what.
#[derive(clap::Args)]
pub struct Args {
    /// A folder with any of models, ops, quants, tokenizers, real
    dir: PathBuf,
    /// Backends that run models, in order of preference, with commas; the first runs ops: cpu, reference, wgpu,
    /// wgpu:baseline
    #[arg(long, default_value = "cpu")]
    backend: String,
    /// Cases that are not supported yet fail too
    #[arg(long)]
    strict: bool,
    /// Only cases whose name contains this
    #[arg(long, default_value = "")]
    filter: String,
    /// Folder of the real models that the cases of `real` name
    #[arg(long, env = MODELS_VAR)]
    models: Option<PathBuf>,
}

/// Names the folder of real models.
const MODELS_VAR: &str = "GLIA_MODELS";

/// Runs, prints, and fails if a case failed.
pub fn run(args: &Args) -> Outcome {
    if !args.dir.is_dir() {
        return Err(format!("{}: no such folder", args.dir.display()));
    }
    let results: Vec<CaseResult> = cases(
        &args.dir,
        &backends(&args.backend)?,
        &args.filter,
        args.models.as_deref(),
    )
    .into_iter()
    .filter(|c| c.name.contains(&args.filter))
    .collect();
    report(&args.dir, &results, args.strict)
}

/// All cases of a folder, as `cargo xtask test` runs them.
///
/// The second result says why cases were not run.
pub fn run_folder(dir: &Path) -> (Outcome, Vec<String>) {
    let mut left_out = Vec::new();
    let outcome = checked_folder(dir, &mut left_out);
    (outcome, left_out)
}

fn checked_folder(dir: &Path, left_out: &mut Vec<String>) -> Outcome {
    if !dir.is_dir() {
        return Err(format!("{}: no such folder", dir.display()));
    }
    let models = std::env::var_os(MODELS_VAR).map(PathBuf::from);
    let results = cases(dir, &backends("cpu")?, "", models.as_deref());
    left_out.extend(results.iter().filter_map(|case| match &case.outcome {
        Case::Unsupported(why) => Some(format!("golden case: {why}")),
        _ => None,
    }));
    report(dir, &results, false)
}

fn backends(list: &str) -> Result<Vec<Arc<dyn Backend>>, String> {
    list.split(',').map(backend).collect()
}

fn backend(name: &str) -> Result<Arc<dyn Backend>, String> {
    match name {
        "cpu" => Ok(Arc::new(CpuBackend::new().map_err(|e| e.to_string())?)),
        "reference" => Ok(Arc::new(ReferenceBackend)),
        "wgpu" | "wgpu:baseline" => {
            let options = WgpuOptions::default().with_baseline(name != "wgpu");
            Ok(Arc::new(WgpuBackend::new(options).map_err(|e| e.to_string())?))
        }
        other => Err(format!(
            "--backend {other}: not in this build; available: cpu, reference, wgpu, wgpu:baseline"
        )),
    }
}

/// A device rounds and orders sums as it likes; the main processor is held to the bits.
fn demands(backends: &[Arc<dyn Backend>]) -> Demands {
    match backends.first().map(|b| b.space()) {
        Some(MemorySpace::HOST) | None => Demands::default(),
        Some(_) => Demands {
            atol_times: 4.0,
            same_bits: false,
            all_on_first: true,
        },
    }
}

fn cases(dir: &Path, backends: &[Arc<dyn Backend>], filter: &str, models: Option<&Path>) -> Vec<CaseResult> {
    let mut results = Vec::new();
    let tokenizers = dir.join("tokenizers");
    if tokenizers.is_dir() {
        // Vocabularies of real models are too large for a folder of goldens.
        let extra = std::env::var_os("GLIA_TOKENIZERS").map(PathBuf::from);
        let ran = proof::tokenizers::run(&tokenizers, extra.as_deref());
        results.extend(ran.into_iter().map(|c| named("tokenizers", c)));
        results.extend(
            proof::templates::run(&tokenizers)
                .into_iter()
                .map(|c| named("templates", c)),
        );
    }
    let quants = dir.join("quants");
    if quants.is_dir() {
        results.extend(proof::quants::run(&quants));
    }
    let ops = dir.join("ops");
    if let (true, Some(first)) = (ops.is_dir(), backends.first()) {
        results.extend(proof::ops::run(&ops, &**first));
    }
    results.extend(proof::models::run_with(
        &dir.join("models"),
        backends,
        filter,
        demands(backends),
    ));
    results.extend(proof::real::run(&dir.join("real"), models, backends, filter));
    results
}

/// A case under the name of its kind.
fn named(kind: &str, case: CaseResult) -> CaseResult {
    CaseResult {
        name: format!("{kind}/{}", case.name),
        outcome: case.outcome,
    }
}

fn report(dir: &Path, results: &[CaseResult], strict: bool) -> Outcome {
    // Per kind: passed, failed, unsupported.
    let mut kinds: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    println!("\ngolden cases of {}", dir.display());
    for case in results {
        let kind = case.name.split('/').next().unwrap_or("");
        let (column, word, why) = match &case.outcome {
            Case::Pass => (0, "pass", ""),
            Case::Fail(why) => (1, "FAIL", why.as_str()),
            Case::Unsupported(why) => (2, "unsupported", why.as_str()),
        };
        kinds.entry(kind).or_default()[column] += 1;
        println!("{word:<12} {:<52} {why}", case.name);
    }
    println!("\n{:<14} {:>6} {:>6} {:>12}", "kind", "pass", "fail", "unsupported");
    let mut sum = [0; 3];
    for (kind, counts) in &kinds {
        println!("{kind:<14} {:>6} {:>6} {:>12}", counts[0], counts[1], counts[2]);
        sum.iter_mut().zip(counts).for_each(|(s, n)| *s += n);
    }
    println!("{:<14} {:>6} {:>6} {:>12}", "all", sum[0], sum[1], sum[2]);
    let bad = sum[1] + if strict { sum[2] } else { 0 };
    if results.is_empty() {
        return Err(format!("{}: holds no golden case", dir.display()));
    }
    if bad == 0 {
        Ok(())
    } else {
        Err(format!("{}: {bad} golden cases did not pass", dir.display()))
    }
}
