//! Golden models: every folder with a model and the reference's outputs, in full, step by step and in chunks.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use glia_core::{Backend, Precision, Tensor};
use glia_ir::{ExecConfig, GraphExecutor, Outputs, RunOptions, Session, WantedRows};
use serde_json::Value;

use super::{CaseResult, Outcome};
use crate::family::FamilyError;
use crate::family::decoder::Taps;
use crate::model::{ModelError, ModelFile, Options};
use crate::safetensors::SafetensorsFile;

/// What a run must keep beside the reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demands {
    /// Times the tolerance that a case suggests.
    pub atol_times: f32,
    /// Whether chunks give the bits of the full forward, or are held to the tolerance only.
    pub same_bits: bool,
    /// Whether every node must run on the first backend itself.
    pub all_on_first: bool,
}

impl Default for Demands {
    fn default() -> Demands {
        Demands {
            atol_times: 1.0,
            same_bits: true,
            all_on_first: false,
        }
    }
}

/// Runs every case of `dir` (one folder each) whose name contains `filter`.
pub fn run(dir: &Path, backends: &[Arc<dyn Backend>], filter: &str) -> Vec<CaseResult> {
    run_with(dir, backends, filter, Demands::default())
}

/// As [`run`], with other demands.
pub fn run_with(dir: &Path, backends: &[Arc<dyn Backend>], filter: &str, demands: Demands) -> Vec<CaseResult> {
    let mut folders: Vec<PathBuf> = match std::fs::read_dir(dir) {
        Ok(entries) => entries.filter_map(|e| Some(e.ok()?.path())).collect(),
        Err(_) => return Vec::new(),
    };
    folders.retain(|f| f.join("golden.json").is_file());
    folders.sort();
    let mut results = Vec::new();
    for folder in folders {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // A filter that names another kind of case lets no model run.
        if !format!("models/{name}").contains(filter) {
            continue;
        }
        for config in ["config.json", "config_legacy.json"] {
            if !folder.join(config).is_file() {
                continue;
            }
            let legacy = if config == "config.json" {
                ""
            } else {
                " (legacy config)"
            };
            let outcome = case(&folder, config, backends, demands).unwrap_or_else(|o| o);
            results.push(CaseResult {
                name: format!("models/{name}{legacy}"),
                outcome,
            });
        }
    }
    results
}

fn fail(error: impl std::fmt::Display) -> Outcome {
    Outcome::Fail(error.to_string())
}

fn open_outcome(error: ModelError) -> Outcome {
    match &error {
        ModelError::Family {
            source: FamilyError::UnknownFamily { family, .. },
            ..
        } => Outcome::Unsupported(format!("model family `{family}`")),
        _ => fail(error),
    }
}

struct Golden {
    tensors: SafetensorsFile,
    atol: f32,
    hidden: Vec<String>,
    same_bits: bool,
}

impl Golden {
    fn f32(&self, name: &str) -> Result<Tensor, Outcome> {
        self.tensors
            .tensor(name)
            .map_err(fail)?
            .to_owned_aligned()
            .map_err(fail)
    }

    fn ids(&self, name: &str) -> Result<Vec<i32>, Outcome> {
        let tensor = self
            .tensors
            .tensor(name)
            .map_err(fail)?
            .to_owned_aligned()
            .map_err(fail)?;
        Ok(tensor.as_i32().map_err(fail)?.to_vec())
    }
}

fn case(folder: &Path, config: &str, backends: &[Arc<dyn Backend>], demands: Demands) -> Result<Outcome, Outcome> {
    let text = std::fs::read_to_string(folder.join("golden.json")).map_err(fail)?;
    let json: Value = serde_json::from_str(&text).map_err(fail)?;
    let kind = json["kind"].as_str().unwrap_or("of no kind");
    // A decoder without its head embeds texts.
    let headless = kind == "encoder" && is_decoder(folder, config);
    if kind != "decoder" && !headless {
        return Err(Outcome::Unsupported(format!("model kind `{kind}`")));
    }
    let atol = json["suggested_atol"]
        .as_f64()
        .ok_or_else(|| fail("golden.json: suggested_atol is missing"))? as f32;
    let hidden = json["hidden"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|v| v.as_str().map(str::to_owned))
        .collect();
    let tensors = SafetensorsFile::open(&folder.join("golden.safetensors"), true).map_err(fail)?;
    let golden = Golden {
        tensors,
        atol: atol * demands.atol_times,
        hidden,
        same_bits: demands.same_bits,
    };
    let file = ModelFile::open_config(folder, config, &Options::default()).map_err(open_outcome)?;
    let taps = if headless { Taps::Headless } else { Taps::Hidden };
    let graph = file.graph_with(taps).map_err(open_outcome)?;
    let exec = ExecConfig::default()
        .with_precision(Precision::Exact)
        .with_max_context(file.spec().max_positions)
        .with_max_step_tokens(32);
    let executor = GraphExecutor::prepare(graph, file.weights(), backends.to_vec(), exec).map_err(fail)?;
    if let (true, Some(node)) = (demands.all_on_first, executor.plan().fallbacks.first()) {
        let n = executor.plan().fallbacks.len();
        return Err(fail(format!(
            "{n} nodes do not run on the first backend, the first is {node:?}"
        )));
    }
    let checked = if headless {
        check_headless(&executor, &golden)
    } else {
        check(&executor, &golden)
    };
    checked.map(|()| Outcome::Pass)
}

/// Whether a configuration is one of a decoder family, whatever is made of its outputs.
fn is_decoder(folder: &Path, config: &str) -> bool {
    let map = crate::config::read_object(&folder.join(config));
    map.is_ok_and(|map| crate::family::hf::spec(&map).is_ok())
}

/// The last hidden states in full, step by step, in chunks, of one token, and of the rows of a padded batch.
fn check_headless(executor: &GraphExecutor, golden: &Golden) -> Result<(), Outcome> {
    let run = |ids: &[i32], chunk: usize| -> Result<Tensor, Outcome> {
        let mut session = executor.session().map_err(fail)?;
        let (mut rows, mut width) = (Vec::new(), 0);
        for part in ids.chunks(chunk) {
            let outputs = feed(&mut session, part)?;
            let last = outputs.get("hidden.final").ok_or_else(|| fail("no hidden states"))?;
            width = last.shape().last_dim();
            rows.extend_from_slice(last.as_f32().map_err(fail)?);
        }
        Tensor::from_f32([ids.len(), width], &rows).map_err(fail)
    };
    let ids = golden.ids("input_ids")?;
    let expected = golden.f32("last_hidden_state")?;
    let full = run(&ids, ids.len())?;
    compare(&full, &expected, golden.atol).map_err(|d| fail(format!("full forward: {d}")))?;
    for chunk in [1, 7] {
        let chunked = run(&ids, chunk)?;
        compare(&chunked, &expected, golden.atol).map_err(|d| fail(format!("chunks of {chunk}: {d}")))?;
        if golden.same_bits && chunked.bytes().map_err(fail)? != full.bytes().map_err(fail)? {
            return Err(fail(format!(
                "chunks of {chunk}: the bits differ from the full forward"
            )));
        }
    }
    let one = golden.f32("one.last_hidden_state")?;
    let tokens = one.shape().first().copied().unwrap_or(0);
    if let Some(first) = ids.get(..tokens) {
        compare(&run(first, tokens.max(1))?, &one, golden.atol).map_err(|d| fail(format!("one token: {d}")))?;
    }
    Ok(())
}

fn feed(session: &mut Session, ids: &[i32]) -> Result<Outputs, Outcome> {
    let input = Tensor::from_i32([ids.len()], ids).map_err(fail)?;
    let options = RunOptions::default().with_wanted_rows(WantedRows::All);
    session.run_with(&[("input_ids", input)], &options).map_err(fail)
}

fn check(executor: &GraphExecutor, golden: &Golden) -> Result<(), Outcome> {
    let ids = golden.ids("input_ids")?;
    let logits = golden.f32("logits")?;
    let mut session = executor.session().map_err(fail)?;
    let full = feed(&mut session, &ids)?;
    let got = full
        .get("logits")
        .ok_or_else(|| fail("the graph has no output `logits`"))?;
    if let Err(difference) = compare(got, &logits, golden.atol) {
        let layer = first_divergence(&full, golden)?;
        return Err(Outcome::Fail(format!("full forward: {difference}; {layer}")));
    }
    for chunk in [1, 7] {
        let mut session = executor.session().map_err(fail)?;
        let mut rows = Vec::new();
        for part in ids.chunks(chunk) {
            let outputs = feed(&mut session, part)?;
            let part = outputs.get("logits").ok_or_else(|| fail("no logits"))?;
            rows.extend_from_slice(part.as_f32().map_err(fail)?);
        }
        let joined = Tensor::from_f32(*logits.shape(), &rows).map_err(fail)?;
        compare(&joined, &logits, golden.atol).map_err(|d| fail(format!("chunks of {chunk}: {d}")))?;
        if golden.same_bits && joined.bytes().map_err(fail)? != got.bytes().map_err(fail)? {
            return Err(fail(format!(
                "chunks of {chunk}: the bits differ from the full forward"
            )));
        }
    }
    let mut one = executor.session().map_err(fail)?;
    let outputs = feed(&mut one, &golden.ids("input_ids_1")?)?;
    let got = outputs.get("logits").ok_or_else(|| fail("no logits"))?;
    compare(got, &golden.f32("logits_1")?, golden.atol).map_err(|d| fail(format!("one token: {d}")))?;
    greedy(&mut session, golden, full)
}

/// Decodes greedily after the full sequence: row `i` of the golden logits chose id `i`.
fn greedy(session: &mut Session, golden: &Golden, full: Outputs) -> Result<(), Outcome> {
    let (ids, logits) = (golden.ids("greedy_ids")?, golden.f32("greedy_logits")?);
    let vocab = logits.shape().last_dim();
    let mut outputs = full;
    for (step, (&id, expected)) in ids
        .iter()
        .zip(logits.as_f32().map_err(fail)?.chunks_exact(vocab.max(1)))
        .enumerate()
    {
        let got = outputs.get("logits").ok_or_else(|| fail("no logits"))?;
        let all = got.as_f32().map_err(fail)?;
        let row = Tensor::from_f32([vocab], &all[all.len() - vocab..]).map_err(fail)?;
        let expected = Tensor::from_f32([vocab], expected).map_err(fail)?;
        compare(&row, &expected, golden.atol).map_err(|d| fail(format!("greedy step {step}: {d}")))?;
        let row = row.as_f32().map_err(fail)?;
        let best = row
            .iter()
            .enumerate()
            .fold(0, |best, (i, &x)| if x > row[best] { i } else { best });
        if best as i32 != id {
            return Err(fail(format!("greedy step {step}: id {best} instead of {id}")));
        }
        outputs = feed(session, &[id])?;
    }
    Ok(())
}

fn first_divergence(outputs: &Outputs, golden: &Golden) -> Result<String, Outcome> {
    for name in &golden.hidden {
        let Some(got) = outputs.get(name) else { continue };
        if let Err(difference) = compare(got, &golden.f32(name)?, golden.atol) {
            return Ok(format!("first diverging: {name} ({difference})"));
        }
    }
    Ok("no hidden state diverges before the head".to_owned())
}

/// Largest absolute difference against a tolerance.
fn compare(got: &Tensor, expected: &Tensor, atol: f32) -> Result<(), String> {
    if got.n_elems() != expected.n_elems() {
        return Err(format!("shape {} instead of {}", got.shape(), expected.shape()));
    }
    let (a, b) = (
        got.as_f32().map_err(|e| e.to_string())?,
        expected.as_f32().map_err(|e| e.to_string())?,
    );
    let mut worst = (0, 0.0f32);
    for (i, (x, y)) in a.iter().zip(b).enumerate() {
        let difference = (x - y).abs();
        if !(difference <= worst.1) {
            worst = (i, difference);
        }
    }
    // A NaN anywhere fails the comparison.
    if worst.1 <= atol {
        Ok(())
    } else {
        Err(format!("off by {:e} at element {}, allowed {atol:e}", worst.1, worst.0))
    }
}
