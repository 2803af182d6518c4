//! `glia perplexity`: how well a model predicts a text, over the windows that llama-perplexity uses, and its
//! divergence from base logits.

use std::io::Write;
use std::path::Path;

use glia_model::perplexity::{BaseLogits, MIN_WINDOW, Perplexity, Score};
use glia_model::{Model, ModelError};

use super::{engine, text};
use crate::args::PerplexityArgs;
use crate::exit::CliError;
use crate::ui;

/// Tokens of a window unless asked otherwise, as llama-perplexity.
const WINDOW: usize = 512;

/// Scores a file, or the text that base logits hold.
pub fn run(args: &PerplexityArgs) -> Result<(), CliError> {
    let window = window(args)?;
    let text = args.file.as_deref().map(text::file).transpose()?;
    let model = engine::open_model(Some(&args.model), &args.engine, false, window)?;
    let mut perplexity = match (&args.kl_base, &text, &args.file) {
        (Some(base), ..) => Perplexity::with_base(&model, base)?,
        (None, Some(text), Some(file)) => {
            Perplexity::new(&model, text, window).map_err(|e| CliError::from(e).of_file(file))?
        }
        _ => return Err(CliError::usage("no text: give --file FILE")),
    };
    if let (Some(base), Some(file), Some(text)) = (&args.kl_base, &args.file, &text) {
        compare(&model, text, &perplexity, file, base)?;
    }
    let all = perplexity.n_windows();
    let n_windows = if args.chunks == 0 { all } else { all.min(args.chunks) };
    let bar = ui::bar(n_windows as u64, "windows");
    for index in 1..=n_windows {
        perplexity.advance()?;
        bar.inc(1);
        if !args.json {
            ui::line(format!("[{index}] {:.4}", perplexity.score().perplexity()));
        }
    }
    bar.finish_and_clear();
    print(perplexity.score(), n_windows, args.json)
}

/// Tokens of a window: the base's where there is one.
fn window(args: &PerplexityArgs) -> Result<usize, CliError> {
    let asked = args.ctx.filter(|&n| n > 0);
    let window = match &args.kl_base {
        Some(path) => {
            let n_ctx = BaseLogits::open(path)?.n_ctx();
            if let Some(asked) = asked.filter(|&n| n != n_ctx) {
                return Err(CliError::usage(format!(
                    "--ctx {asked} differs from the {n_ctx} of the base logits in {}: leave it out",
                    path.display()
                )));
            }
            n_ctx
        }
        None => asked.unwrap_or(WINDOW),
    };
    if window < MIN_WINDOW {
        return Err(CliError::usage(format!(
            "--ctx {window}: a window needs at least {MIN_WINDOW} tokens"
        )));
    }
    Ok(window)
}

/// Says so when the base was made of another text: it is the base's that is scored.
fn compare(model: &Model, text: &str, perplexity: &Perplexity<'_>, file: &Path, base: &Path) -> Result<(), CliError> {
    let given = model.tokenizer().encode(text, true, false).map_err(ModelError::from)?;
    let of_base = perplexity.tokens();
    let at = of_base.iter().zip(&given).take_while(|(a, b)| a == b).count();
    if at < of_base.len() {
        ui::note(format!(
            "{} is another text than the one of {} (from token {at} on): the figures are of the latter, as without \
             --file",
            file.display(),
            base.display()
        ));
    }
    Ok(())
}

fn print(score: &Score, n_windows: usize, json: bool) -> Result<(), CliError> {
    let mut out = ui::stdout();
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
        return Ok(out.finish()?);
    }
    writeln!(out, "perplexity {perplexity:.4} +/- {error:.5}  ({n_windows} windows)")?;
    if let Some(base) = score.divergence() {
        writeln!(out, "mean KL divergence {:.6}", base.mean_kl)?;
        writeln!(out, "top-1 agreement {:.3} %", 100.0 * base.top1_agreement)?;
        writeln!(out, "base perplexity {:.4}", base.base_perplexity)?;
    }
    Ok(out.finish()?)
}
