//! `glia perplexity`: how well a model predicts a text, over the windows that llama-perplexity uses, and its
//! divergence from base logits.

use std::io::Write;

use glia_model::perplexity::{BaseLogits, MIN_WINDOW, Perplexity, Score};

use super::engine;
use crate::args::PerplexityArgs;
use crate::exit::CliError;
use crate::ui;

/// Tokens of a window unless asked otherwise, as llama-perplexity.
const WINDOW: usize = 512;

/// Scores a file.
pub fn run(args: &PerplexityArgs) -> Result<(), CliError> {
    let asked = args.engine.ctx;
    let window = match &args.kl_base {
        Some(path) => {
            let n_ctx = BaseLogits::open(path)?.n_ctx();
            if asked != 0 && asked != n_ctx {
                return Err(CliError::usage(format!(
                    "--ctx {asked} differs from the {n_ctx} of the base logits in {}: leave it out",
                    path.display()
                )));
            }
            n_ctx
        }
        None if asked == 0 => WINDOW,
        None => asked,
    };
    if window < MIN_WINDOW {
        return Err(CliError::usage(format!(
            "--ctx {window}: a window needs at least {MIN_WINDOW} tokens"
        )));
    }
    let fail = |e: &dyn std::fmt::Display| CliError::failed(format!("{}: {e}", args.file.display()));
    let text = std::fs::read_to_string(&args.file).map_err(|e| fail(&e))?;
    let model = engine::open_model(Some(&args.model), &args.engine, false, Some(window))?;
    let mut perplexity = match &args.kl_base {
        Some(path) => Perplexity::with_base(&model, path)?,
        None => Perplexity::new(&model, &text, window).map_err(|e| fail(&e))?,
    };
    let all = perplexity.n_windows();
    let n_windows = if args.chunks == 0 { all } else { all.min(args.chunks) };
    let bar = ui::bar(n_windows as u64, "windows");
    for index in 1..=n_windows {
        perplexity.advance()?;
        bar.inc(1);
        if !args.json {
            writeln!(
                std::io::stderr().lock(),
                "[{index}] {:.4}",
                perplexity.score().perplexity()
            )?;
        }
    }
    bar.finish_and_clear();
    print(perplexity.score(), n_windows, args.json)
}

fn print(score: &Score, n_windows: usize, json: bool) -> Result<(), CliError> {
    let mut out = std::io::stdout().lock();
    let (perplexity, error) = (score.perplexity(), score.error());
    if json {
        let mut object = serde_json::json!({
            "perplexity": perplexity, "error": error, "windows": n_windows, "tokens": score.count,
        });
        if let Some(base) = score.divergence() {
            object["mean_kl"] = serde_json::json!(base.mean_kl);
            object["top1_agreement"] = serde_json::json!(base.top1_agreement);
            object["base_perplexity"] = serde_json::json!(base.base_perplexity);
        }
        writeln!(out, "{object}")?;
        return Ok(());
    }
    writeln!(out, "perplexity {perplexity:.4} +/- {error:.5}  ({n_windows} windows)")?;
    if let Some(base) = score.divergence() {
        writeln!(out, "mean KL divergence {:.6}", base.mean_kl)?;
        writeln!(out, "top-1 agreement {:.3} %", 100.0 * base.top1_agreement)?;
        writeln!(out, "base perplexity {:.4}", base.base_perplexity)?;
    }
    Ok(())
}
