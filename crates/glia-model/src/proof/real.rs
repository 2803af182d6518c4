//! Real models: greedy ids of a reference engine, and the perplexity of a text.
//!
//! The cases name a model file; it is looked for in a folder of models. A case whose file is absent is unsupported.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use glia_core::{Backend, Precision};
use serde_json::Value;

use super::{CaseResult, Outcome};
use crate::model::{Model, Options, WantedRows};
use crate::perplexity::Perplexity;

/// Where the reference's own margin is smaller, two right engines may differ.
const MARGIN: f64 = 0.02;
/// Perplexity may differ by this share.
const PERPLEXITY: f64 = 0.005;
/// Runs `greedy_*.json` and `ppl_*.jsonl` of `dir` on the models of `models`.
pub fn run(dir: &Path, models: Option<&Path>, backends: &[Arc<dyn Backend>], filter: &str) -> Vec<CaseResult> {
    let mut files: Vec<PathBuf> = match std::fs::read_dir(dir) {
        Ok(entries) => entries.filter_map(|e| Some(e.ok()?.path())).collect(),
        Err(_) => return Vec::new(),
    };
    files.sort();
    let models = Models { dir: models, backends };
    let mut results = Vec::new();
    for file in files {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if !format!("real/{name}").contains(filter) {
            continue;
        }
        let cases = match file.extension().and_then(|e| e.to_str()) {
            Some("json") => greedy_cases(&file, &name, &models),
            Some("jsonl") => perplexity_cases(&file, &models),
            _ => continue,
        };
        match cases {
            Ok(cases) => results.extend(cases),
            Err(outcome) => results.push(case(&name, outcome)),
        }
    }
    results
}

fn case(name: &str, outcome: Outcome) -> CaseResult {
    CaseResult {
        name: format!("real/{name}"),
        outcome,
    }
}

fn fail(error: impl std::fmt::Display) -> Outcome {
    Outcome::Fail(error.to_string())
}

struct Models<'a> {
    dir: Option<&'a Path>,
    backends: &'a [Arc<dyn Backend>],
}

impl Models<'_> {
    fn find(&self, names: &[&str]) -> Result<PathBuf, Outcome> {
        let Some(dir) = self.dir else {
            return Err(Outcome::Unsupported("no folder of models (GLIA_MODELS)".to_owned()));
        };
        names
            .iter()
            .map(|name| dir.join(name))
            .find(|path| path.is_file())
            .ok_or_else(|| Outcome::Unsupported(format!("no model file {} in the folder of models", names[0])))
    }

    fn open(&self, path: &Path, precision: Precision, context: usize) -> Result<Model, Outcome> {
        let options = Options {
            precision,
            max_context: Some(context),
            backends: Some(self.backends.to_vec()),
            ..Options::default()
        };
        Model::open_with(path, options).map_err(fail)
    }
}

fn greedy_cases(file: &Path, name: &str, models: &Models<'_>) -> Result<Vec<CaseResult>, Outcome> {
    let json: Value = serde_json::from_str(&std::fs::read_to_string(file).map_err(fail)?).map_err(fail)?;
    let (Some(model), Some(cases)) = (json["model"].as_str(), json["cases"].as_array()) else {
        return Err(fail("`model` and `cases` are missing"));
    };
    // Quantised products of the reference quantise the activations too: its ids are not those of exact arithmetic.
    let Some(stem) = model.strip_suffix(".F32.gguf") else {
        return Err(Outcome::Unsupported(format!(
            "{model}: ids of quantised activations; perplexity and divergence decide"
        )));
    };
    // The F32 file is the exact dequantisation of the Q4_1 file.
    let path = models.find(&[&format!("{stem}.Q4_1.gguf"), model])?;
    let model = models.open(&path, Precision::Exact, 2048)?;
    Ok(cases
        .iter()
        .map(|json| {
            let outcome = greedy(&model, json).map_or_else(|o| o, |()| Outcome::Pass);
            case(&format!("{name}/{}", json["name"].as_str().unwrap_or("")), outcome)
        })
        .collect())
}

fn ids(json: &Value) -> Result<Vec<u32>, Outcome> {
    let all = json.as_array().ok_or_else(|| fail("ids are missing"))?;
    all.iter()
        .map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok()))
        .collect::<Option<_>>()
        .ok_or_else(|| fail("an id is no u32"))
}

fn greedy(model: &Model, json: &Value) -> Result<(), Outcome> {
    let (prompt, expected) = (ids(&json["prompt_ids"])?, ids(&json["greedy_ids"])?);
    if let Some(text) = json["text"].as_str() {
        let parse_special = json["parse_special"].as_bool().unwrap_or(false);
        let encoded = model.tokenizer().encode(text, true, parse_special).map_err(fail)?;
        if encoded != prompt {
            return Err(fail(format!("the prompt's ids are {encoded:?} instead of {prompt:?}")));
        }
    }
    let mut session = model.session().map_err(fail)?;
    let mut fed = prompt;
    for (step, &id) in expected.iter().enumerate() {
        let logits = session.feed(&fed, &WantedRows::Last).map_err(fail)?;
        let row = logits.as_f32().map_err(fail)?;
        let best = (0..row.len()).fold(0, |best, i| if row[i] > row[best] { i } else { best });
        let margin = json["greedy_logit_and_margin"][step][1].as_f64();
        let margin = margin.ok_or_else(|| fail(format!("step {step}: the margin is missing")))?;
        if best as u32 != id && margin >= MARGIN {
            return Err(fail(format!(
                "step {step}: id {best} instead of {id}, the reference's margin is {margin}"
            )));
        }
        // The reference's id goes on, so that a near tie does not end the comparison.
        fed = vec![id];
    }
    Ok(())
}

fn perplexity_cases(file: &Path, models: &Models<'_>) -> Result<Vec<CaseResult>, Outcome> {
    let text = std::fs::read_to_string(file).map_err(fail)?;
    text.lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| {
            let json: Value = serde_json::from_str(line).map_err(fail)?;
            let model = json["model"].as_str().ok_or_else(|| fail("`model` is missing"))?;
            let outcome = perplexity(&json, model, models).map_or_else(|o| o, |()| Outcome::Pass);
            Ok(case(&format!("perplexity/{model}"), outcome))
        })
        .collect()
}

fn perplexity(json: &Value, model: &str, models: &Models<'_>) -> Result<(), Outcome> {
    let path = models.find(&[model])?;
    let command = json["cmd"].as_str().unwrap_or("");
    let text = command
        .split_whitespace()
        .skip_while(|&word| word != "-f")
        .nth(1)
        .ok_or_else(|| fail("`cmd` names no text (-f)"))?;
    let text = std::fs::read_to_string(text).map_err(|e| Outcome::Unsupported(format!("{text}: {e}")))?;
    let window = json["ctx"]
        .as_u64()
        .and_then(|n| usize::try_from(n).ok())
        .ok_or_else(|| fail("`ctx` is missing"))?;
    let model = models.open(&path, Precision::Fast, window)?;
    let mut perplexity = Perplexity::new(&model, &text, window).map_err(fail)?;
    while perplexity.advance().map_err(fail)? {}
    let expected = json["ppl"].as_f64().ok_or_else(|| fail("`ppl` is missing"))?;
    let got = perplexity.score().perplexity();
    if (got / expected - 1.0).abs() <= PERPLEXITY {
        return Ok(());
    }
    // The reference quantises activations too, and its figure may be the one that is off: exact arithmetic decides.
    let model = models.open(&path, Precision::Exact, window)?;
    let mut exact = Perplexity::new(&model, &text, window).map_err(fail)?;
    while exact.advance().map_err(fail)? {}
    let exact = exact.score().perplexity();
    if (got / exact - 1.0).abs() <= PERPLEXITY {
        return Ok(());
    }
    Err(fail(format!(
        "perplexity {got:.4} instead of {expected:.4}; in exact arithmetic it is {exact:.4}"
    )))
}
