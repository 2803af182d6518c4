//! `xtask first-token`: what the first requests of a process cost, and what a token of a model reads and computes. Run
//! by `device-check` in a process of its own.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use glia_backend_cpu::CpuBackend;
use glia_backend_wgpu::{WgpuBackend, WgpuOptions};
use glia_core::{Backend, Cost, Sizes};
use glia_ir::StepStats;
use glia_model::{Event, GenerateParams, Model, Options};
use serde_json::json;

use crate::Outcome;

/// What to run.
#[derive(clap::Args)]
pub struct Args {
    /// A file, a folder, or `demo`
    model: OsString,
    /// Where compiled pipelines are kept
    #[arg(long, value_name = "DIR")]
    pipelines: PathBuf,
    /// Tokens of each request
    #[arg(long, default_value_t = 32)]
    tokens: usize,
}

/// Tokens of the prompt whose arithmetic is counted.
const PROMPT: usize = 128;

/// Requests, one after the other.
const N_REQUESTS: usize = 5;

/// Prints one JSON object.
pub fn run(args: &Args) -> Outcome {
    let began = Instant::now();
    let options = WgpuOptions::default().with_pipeline_cache(args.pipelines.clone());
    let gpu = Arc::new(WgpuBackend::new(options).map_err(|e| e.to_string())?);
    let cpu = CpuBackend::new().map_err(|e| e.to_string())?;
    let options = Options {
        backends: Some(vec![gpu.clone() as Arc<dyn Backend>, Arc::new(cpu)]),
        ..Options::default()
    };
    let model = match args.model.to_str() {
        Some("demo") => Model::open_demo_with(options),
        _ => Model::open_with(PathBuf::from(&args.model), options),
    };
    let model = model.map_err(|e| e.to_string())?;
    let load = began.elapsed();
    let counted = gpu.counters();
    let mut requests = Vec::new();
    let mut pipelines = 0;
    for i in 0..N_REQUESTS {
        requests.push(first_token(&model, i, args.tokens)?);
        if i == 0 {
            pipelines = gpu.counters().since(&counted).pipelines;
        }
    }
    let (token, prompt) = (step_cost(&model, 1), step_cost(&model, PROMPT));
    let object = json!({
        "load_ms": load.as_secs_f64() * 1e3,
        "first_token_ms": requests,
        "pipelines_in_first": pipelines,
        "max_context": model.max_context(),
        "weight_bytes": token.weight_bytes,
        "ops": token.ops,
        "prompt_ops": prompt.ops as f64 / PROMPT as f64,
    });
    println!("{object}");
    Ok(())
}

/// Milliseconds from a prompt's ids to the first token of its answer.
fn first_token(model: &Model, request: usize, n: usize) -> Result<f64, String> {
    let n = n.min(model.max_context().saturating_sub(1)).max(1);
    let vocab = model.n_vocab().max(1);
    let ids: Vec<u32> = (0..n)
        .map(|i| ((request * 7919 + i * 104_729) % vocab) as u32)
        .collect();
    let params = GenerateParams {
        max_tokens: Some(1),
        ignore_eos: true,
        ..GenerateParams::default()
    };
    let began = Instant::now();
    for event in model.generate_ids(&ids, params).map_err(|e| e.to_string())? {
        if let Event::Token { .. } = event.map_err(|e| e.to_string())? {
            return Ok(began.elapsed().as_secs_f64() * 1e3);
        }
    }
    Err("no token came".to_owned())
}

/// What a step of so many tokens of an empty sequence reads and computes at least, the logits of the last wanted.
fn step_cost(model: &Model, n_tokens: usize) -> Cost {
    let sizes = Sizes {
        t: n_tokens,
        r: 1,
        n: 1,
        ..Sizes::default()
    };
    let mut step = StepStats::default();
    (step.sizes, step.seqs) = (sizes, vec![sizes]);
    let mut all = Cost::default();
    for (id, _) in model.executor().graph().iter_nodes() {
        all += step.cost(model.plan(), id).unwrap_or_default();
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_reads_the_weights_once() {
        let model = Model::open_demo().unwrap();
        let cost = step_cost(&model, 1);
        let bytes = model.executor().weight_bytes() as u64;
        // The table of embeddings is the head's too, or only a row of it is read; rotations are not read whole either.
        assert!(
            cost.weight_bytes <= bytes + 4096 && cost.weight_bytes > bytes / 2,
            "{cost:?} of {bytes}"
        );
        assert!(cost.ops > cost.weight_bytes);
        // A prompt reads them once too, and computes logits once.
        let prompt = step_cost(&model, PROMPT);
        assert!(prompt.weight_bytes < 2 * cost.weight_bytes, "{prompt:?}");
        assert!(
            prompt.ops > 20 * cost.ops && prompt.ops < PROMPT as u64 * cost.ops,
            "{prompt:?}"
        );
    }

    #[test]
    fn requests_are_timed_on_any_model() {
        let model = Model::open_demo().unwrap();
        assert!(first_token(&model, 0, 4).unwrap() > 0.0);
        // More than the context holds are cut.
        assert!(first_token(&model, 1, usize::MAX).is_ok());
    }
}
