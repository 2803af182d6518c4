//! How well a model predicts a text: the windows and the half-window scoring of llama-perplexity, so that figures
//! compare, and the divergence from base logits.
//!
//! The text is cut into windows of equal length, each begins with the BOS token where the model adds one, and only the
//! second half of a window is scored: every scored token has at least half a window of context.

mod base;

use std::path::Path;

pub use base::{BaseLogits, BaseLogitsError, BaseRow};

use crate::model::{Model, ModelError, WantedRows};

/// Rows of logits held at once: a large vocabulary must not take gigabytes.
const ROWS_AT_ONCE: usize = 64;

/// Shortest window that scores a token.
pub const MIN_WINDOW: usize = 4;

/// Why a text could not be scored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PerplexityError {
    /// The model.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The base logits.
    #[error(transparent)]
    Base(#[from] BaseLogitsError),
    /// A window too short.
    #[error("a window of {window} tokens scores nothing: give at least {MIN_WINDOW}")]
    Window {
        /// Tokens of a window.
        window: usize,
    },
    /// A text too short.
    #[error(
        "the text has {n_tokens} tokens, windows of {window} need at least {needed}: give a longer text or a shorter window"
    )]
    TextTooShort {
        /// Tokens of the text.
        n_tokens: usize,
        /// Tokens of a window.
        window: usize,
        /// Tokens needed.
        needed: usize,
    },
    /// A token outside the vocabulary.
    #[error("token {token} is outside the vocabulary of {n_vocab}: the base logits are of another model")]
    Token {
        /// The token.
        token: u32,
        /// Columns of the logits.
        n_vocab: usize,
    },
}

/// Sums over the scored tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Score {
    /// Scored tokens.
    pub count: usize,
    nll: f64,
    nll_squared: f64,
    kl: f64,
    base_nll: f64,
    same_top: usize,
    with_base: bool,
}

/// Comparison with base logits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Divergence {
    /// Mean KL divergence from the base distribution, in nats.
    pub mean_kl: f64,
    /// Share of tokens whose likeliest successor is the base's, 0 to 1.
    pub top1_agreement: f64,
    /// The base's own perplexity.
    pub base_perplexity: f64,
}

impl Score {
    /// exp of the mean negative log likelihood.
    pub fn perplexity(&self) -> f64 {
        (self.nll / self.count as f64).exp()
    }

    /// Standard error of [`Score::perplexity`].
    pub fn error(&self) -> f64 {
        if self.count < 2 {
            return 0.0;
        }
        let n = self.count as f64;
        let mean = self.nll / n;
        let variance = (self.nll_squared / n - mean * mean).max(0.0);
        (variance / (n - 1.0)).sqrt() * self.perplexity()
    }

    /// The comparison with base logits, where there were any.
    pub fn divergence(&self) -> Option<Divergence> {
        let n = self.count as f64;
        self.with_base.then(|| Divergence {
            mean_kl: self.kl / n,
            top1_agreement: self.same_top as f64 / n,
            base_perplexity: (self.base_nll / n).exp(),
        })
    }

    /// Adds one row of logits that predicts `target`; `base` is the same row of the base.
    fn add(&mut self, logits: &[f32], target: u32, base: Option<BaseRow<'_>>) -> Result<(), PerplexityError> {
        let (top, max) = logits.iter().enumerate().fold(
            (0, f32::NEG_INFINITY),
            |best, (i, &x)| if x > best.1 { (i, x) } else { best },
        );
        let log_sum = f64::from(max) + logits.iter().map(|&x| f64::from((x - max).exp())).sum::<f64>().ln();
        let logit = logits.get(target as usize).ok_or(PerplexityError::Token {
            token: target,
            n_vocab: logits.len(),
        })?;
        let nll = log_sum - f64::from(*logit);
        self.count += 1;
        self.nll += nll;
        self.nll_squared += nll * nll;
        if let Some(base) = base {
            let mut base_top = (0, f32::NEG_INFINITY);
            let mut kl = 0.0f64;
            for (i, &x) in logits.iter().enumerate() {
                let p = base.log_prob(i);
                if p > base_top.1 {
                    base_top = (i, p);
                }
                if p > BaseRow::FLOOR {
                    kl += f64::from(p.exp()) * (f64::from(p) - f64::from(x) + log_sum);
                }
            }
            self.with_base = true;
            self.kl += kl;
            self.base_nll -= f64::from(base.log_prob(target as usize));
            self.same_top += usize::from(base_top.0 == top);
        }
        Ok(())
    }
}

/// A text in windows, scored one after the other.
pub struct Perplexity<'m> {
    model: &'m Model,
    window: usize,
    tokens: Vec<u32>,
    base: Option<BaseLogits>,
    done: usize,
    score: Score,
}

impl<'m> Perplexity<'m> {
    /// Cuts `text` into windows of `window` tokens.
    ///
    /// # Errors
    /// [`PerplexityError`] when the window or the text is too short or the tokenizer refuses.
    pub fn new(model: &'m Model, text: &str, window: usize) -> Result<Perplexity<'m>, PerplexityError> {
        let tokens = model.tokenizer().encode(text, true, false).map_err(ModelError::from)?;
        // As llama-perplexity: with fewer than two windows the figure means little.
        let needed = window.saturating_mul(2);
        if tokens.len() < needed {
            return Err(PerplexityError::TextTooShort {
                n_tokens: tokens.len(),
                window,
                needed,
            });
        }
        Perplexity::over(model, tokens, window, None)
    }

    /// The text and the windows that `path` holds base logits of.
    ///
    /// # Errors
    /// [`PerplexityError`] when the file is no such file.
    pub fn with_base(model: &'m Model, path: &Path) -> Result<Perplexity<'m>, PerplexityError> {
        let mut base = BaseLogits::open(path)?;
        base.check_vocab(model.n_vocab())?;
        let (tokens, window) = (base.take_tokens(), base.n_ctx());
        Perplexity::over(model, tokens, window, Some(base))
    }

    fn over(
        model: &'m Model,
        tokens: Vec<u32>,
        window: usize,
        base: Option<BaseLogits>,
    ) -> Result<Perplexity<'m>, PerplexityError> {
        if window < MIN_WINDOW {
            return Err(PerplexityError::Window { window });
        }
        Ok(Perplexity {
            model,
            window,
            tokens,
            base,
            done: 0,
            score: Score::default(),
        })
    }

    /// The tokens of the text; windows are cut from them in order.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Windows of the text.
    pub fn n_windows(&self) -> usize {
        self.tokens.len() / self.window
    }

    /// What has been scored so far.
    pub fn score(&self) -> &Score {
        &self.score
    }

    /// Scores the next window; false when there is none.
    ///
    /// # Errors
    /// [`PerplexityError`].
    pub fn advance(&mut self) -> Result<bool, PerplexityError> {
        if self.done == self.n_windows() {
            return Ok(false);
        }
        let chunk = &self.tokens[self.done * self.window..][..self.window];
        let mut ids = chunk.to_vec();
        if let (true, Some(bos)) = (self.model.adds_bos(), self.model.tokenizer().bos()) {
            ids[0] = bos;
        }
        let mut session = self.model.session()?;
        let mut at = self.window / 2;
        session.feed(&ids[..at], &WantedRows::Rows(Vec::new()))?;
        while at < self.window {
            let end = (at + ROWS_AT_ONCE).min(self.window);
            // The last row predicts a token of the next window, which is not scored.
            let wanted = (0..end.min(self.window - 1) - at).collect();
            let logits = session.feed(&ids[at..end], &WantedRows::Rows(wanted))?;
            let n_vocab = logits.shape().last_dim();
            let rows = logits.as_f32().map_err(ModelError::from)?.chunks_exact(n_vocab.max(1));
            for (row, logits) in rows.enumerate() {
                let base = self.base.as_mut().map(|b| b.next_row(n_vocab)).transpose()?;
                self.score.add(logits, chunk[at + row + 1], base)?;
            }
            at = end;
        }
        self.done += 1;
        Ok(true)
    }
}
