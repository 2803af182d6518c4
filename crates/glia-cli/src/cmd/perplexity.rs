//! `glia perplexity`: how well a model predicts a text, over the windows that llama-perplexity uses, and its
//! divergence from base logits.

use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::Path;

use glia_model::{Model, WantedRows};

use super::engine;
use crate::args::PerplexityArgs;
use crate::exit::CliError;
use crate::ui;

/// Rows of logits held at once: a large vocabulary must not take gigabytes.
const ROWS_AT_ONCE: usize = 64;

/// Scores a file.
pub fn run(args: &PerplexityArgs) -> Result<(), CliError> {
    let base = args.kl_base.as_deref().map(BaseLogits::open).transpose()?;
    let window = match (&base, args.engine.ctx) {
        (Some(base), 0) => base.n_ctx,
        (Some(base), n) if n != base.n_ctx => {
            return Err(CliError::usage(format!(
                "--ctx {n} differs from the {} of the base logits",
                base.n_ctx
            )));
        }
        (_, 0) => 512,
        (_, n) => n,
    };
    if window < 4 {
        return Err(CliError::usage(format!(
            "--ctx {window}: a window needs at least 4 tokens"
        )));
    }
    let text =
        std::fs::read_to_string(&args.file).map_err(|e| CliError::failed(format!("{}: {e}", args.file.display())))?;
    let model = engine::open_model(Some(&args.model), &args.engine, false, Some(window))?;
    let tokens = match &base {
        Some(base) => base.tokens.clone(),
        None => model.tokenizer().encode(&text, true, false)?,
    };
    let all = tokens.len() / window;
    if base.is_none() && tokens.len() < 2 * window {
        return Err(CliError::failed(format!(
            "{}: {} tokens, at least {} are needed for windows of {window}; give a longer text or a smaller --ctx",
            args.file.display(),
            tokens.len(),
            2 * window
        )));
    }
    let n_windows = if args.chunks == 0 { all } else { all.min(args.chunks) };
    let mut scorer = Scorer {
        model: &model,
        window,
        adds_bos: model.adds_bos(),
        base,
        totals: Totals::default(),
    };
    let bar = ui::bar(n_windows as u64, "windows");
    for (index, chunk) in tokens.chunks_exact(window).take(n_windows).enumerate() {
        scorer.window(chunk)?;
        bar.inc(1);
        if !args.json {
            ui_line(index + 1, &scorer.totals)?;
        }
    }
    bar.finish_and_clear();
    print(&scorer.totals, n_windows, args.json)
}

fn ui_line(index: usize, totals: &Totals) -> Result<(), CliError> {
    writeln!(std::io::stderr().lock(), "[{index}] {:.4}", totals.perplexity())?;
    Ok(())
}

fn print(totals: &Totals, n_windows: usize, json: bool) -> Result<(), CliError> {
    let mut out = std::io::stdout().lock();
    let n = totals.count as f64;
    if json {
        let mut object = serde_json::json!({
            "perplexity": totals.perplexity(), "error": totals.error(), "windows": n_windows, "tokens": totals.count,
        });
        if totals.with_base {
            object["mean_kl"] = serde_json::json!(totals.kl / n);
            object["top1_agreement"] = serde_json::json!(totals.same_top as f64 / n);
            object["base_perplexity"] = serde_json::json!((totals.base_nll / n).exp());
        }
        writeln!(out, "{object}")?;
        return Ok(());
    }
    writeln!(
        out,
        "perplexity {:.4} +/- {:.5}  ({n_windows} windows)",
        totals.perplexity(),
        totals.error()
    )?;
    if totals.with_base {
        writeln!(out, "mean KL divergence {:.6}", totals.kl / n)?;
        writeln!(out, "top-1 agreement {:.3} %", 100.0 * totals.same_top as f64 / n)?;
        writeln!(out, "base perplexity {:.4}", (totals.base_nll / n).exp())?;
    }
    Ok(())
}

#[derive(Default)]
struct Totals {
    count: usize,
    nll: f64,
    nll_squared: f64,
    with_base: bool,
    kl: f64,
    base_nll: f64,
    same_top: usize,
}

impl Totals {
    fn perplexity(&self) -> f64 {
        (self.nll / self.count as f64).exp()
    }

    /// Standard error of the perplexity, as llama-perplexity gives it.
    fn error(&self) -> f64 {
        let n = self.count as f64;
        let mean = self.nll / n;
        let variance = (self.nll_squared / n - mean * mean).max(0.0);
        if self.count < 2 {
            0.0
        } else {
            (variance / (n - 1.0)).sqrt() * self.perplexity()
        }
    }
}

struct Scorer<'a> {
    model: &'a Model,
    window: usize,
    adds_bos: bool,
    base: Option<BaseLogits>,
    totals: Totals,
}

impl Scorer<'_> {
    fn window(&mut self, chunk: &[u32]) -> Result<(), CliError> {
        let mut ids = chunk.to_vec();
        if let (true, Some(bos)) = (self.adds_bos, self.model.tokenizer().bos()) {
            ids[0] = bos;
        }
        let first = self.window / 2;
        let mut session = self.model.session()?;
        session.feed(&ids[..first], &WantedRows::Rows(Vec::new()))?;
        let mut at = first;
        while at < self.window {
            let end = (at + ROWS_AT_ONCE).min(self.window);
            // The last row predicts a token of the next window, which is not scored.
            let wanted = (0..end.min(self.window - 1) - at).collect();
            let logits = session.feed(&ids[at..end], &WantedRows::Rows(wanted))?;
            let vocab = logits.shape().last_dim();
            for (row, logits) in logits.as_f32()?.chunks_exact(vocab).enumerate() {
                self.score(logits, chunk[at + row + 1])?;
            }
            at = end;
        }
        Ok(())
    }

    fn score(&mut self, logits: &[f32], target: u32) -> Result<(), CliError> {
        let (top, max) = logits.iter().enumerate().fold(
            (0, f32::NEG_INFINITY),
            |best, (i, &x)| if x > best.1 { (i, x) } else { best },
        );
        let log_sum = f64::from(max) + logits.iter().map(|&x| f64::from((x - max).exp())).sum::<f64>().ln();
        let logit = logits.get(target as usize).copied().ok_or_else(|| {
            CliError::failed(format!(
                "token {target} is outside the vocabulary of {} logits",
                logits.len()
            ))
        })?;
        let nll = log_sum - f64::from(logit);
        self.totals.count += 1;
        self.totals.nll += nll;
        self.totals.nll_squared += nll * nll;
        if let Some(base) = &mut self.base {
            let row = base.next_row(logits.len())?;
            let log_prob = |i: usize| row.scale * f32::from(row.values[i]) + row.min;
            let mut base_top = (0, f32::NEG_INFINITY);
            let mut kl = 0.0f64;
            for (i, &x) in logits.iter().enumerate() {
                let p = log_prob(i);
                if p > base_top.1 {
                    base_top = (i, p);
                }
                // llama-perplexity stores no difference below e^-16.
                if p > -16.0 {
                    kl += f64::from(p.exp()) * (f64::from(p) - f64::from(x) + log_sum);
                }
            }
            self.totals.with_base = true;
            self.totals.kl += kl;
            self.totals.base_nll -= f64::from(log_prob(target as usize));
            self.totals.same_top += usize::from(base_top.0 == top);
        }
        Ok(())
    }
}

/// The file of `llama-perplexity --kl-divergence-base`: magic, sizes, tokens, then 16-bit log-probabilities per scored
/// row, with a scale and a minimum.
struct BaseLogits {
    file: BufReader<File>,
    path: String,
    n_ctx: usize,
    n_vocab: usize,
    tokens: Vec<u32>,
    raw: Vec<u8>,
    values: Vec<u16>,
}

struct BaseRow<'a> {
    scale: f32,
    min: f32,
    values: &'a [u16],
}

impl BaseLogits {
    fn open(path: &Path) -> Result<BaseLogits, CliError> {
        let name = path.display().to_string();
        let fail = |reason: &str| CliError::failed(format!("{name}: {reason}"));
        let file = File::open(path).map_err(|e| fail(&e.to_string()))?;
        let size = file.metadata().map_err(|e| fail(&e.to_string()))?.len();
        let mut file = BufReader::with_capacity(1 << 20, file);
        let mut head = [0u8; 20];
        file.read_exact(&mut head)
            .map_err(|_| fail("too short for base logits"))?;
        if &head[..8] != b"_logits_" {
            return Err(fail(
                "is no file of base logits (made by llama-perplexity --kl-divergence-base)",
            ));
        }
        let int = |i: usize| u32::from_le_bytes([head[i], head[i + 1], head[i + 2], head[i + 3]]) as usize;
        let (n_ctx, n_vocab, n_chunk) = (int(8), int(12), int(16));
        let n_tokens = n_ctx.checked_mul(n_chunk).filter(|&n| (n as u64) < size / 4);
        let n_tokens = n_tokens.ok_or_else(|| fail("claims more tokens than the file holds"))?;
        if n_vocab == 0 || n_vocab as u64 > size || n_ctx < 4 {
            return Err(fail("claims sizes that make no sense"));
        }
        let mut raw = vec![0u8; n_tokens * 4];
        file.read_exact(&mut raw).map_err(|_| fail("ends within its tokens"))?;
        let tokens = raw
            .chunks_exact(4)
            .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect();
        Ok(BaseLogits {
            file,
            path: name,
            n_ctx,
            n_vocab,
            tokens,
            raw: Vec::new(),
            values: Vec::new(),
        })
    }

    fn next_row(&mut self, n_vocab: usize) -> Result<BaseRow<'_>, CliError> {
        let fail = |reason: String| CliError::failed(format!("{}: {reason}", self.path));
        if n_vocab != self.n_vocab {
            return Err(fail(format!(
                "is for a vocabulary of {}, the model has {n_vocab}",
                self.n_vocab
            )));
        }
        // Two floats, then the values, padded to an even count.
        self.raw.resize(8 + n_vocab.next_multiple_of(2) * 2, 0);
        self.file
            .read_exact(&mut self.raw)
            .map_err(|_| fail("ends before its last row".to_owned()))?;
        let float = |i: usize| f32::from_le_bytes([self.raw[i], self.raw[i + 1], self.raw[i + 2], self.raw[i + 3]]);
        let (scale, min) = (float(0), float(4));
        self.values.clear();
        self.values.extend(
            self.raw[8..]
                .chunks_exact(2)
                .take(n_vocab)
                .map(|b| u16::from_le_bytes([b[0], b[1]])),
        );
        Ok(BaseRow {
            scale,
            min,
            values: &self.values,
        })
    }
}
