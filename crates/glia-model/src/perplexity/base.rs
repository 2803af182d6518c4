//! The file of `llama-perplexity --kl-divergence-base`: magic, sizes, tokens, then per scored row the log probabilities
//! in 16 bits, with a scale and a minimum.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use super::MIN_WINDOW;

const MAGIC: &[u8; 8] = b"_logits_";

/// Why base logits cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct BaseLogitsError {
    /// The file.
    pub path: String,
    /// What is wrong with it.
    pub reason: String,
}

/// Base logits, read row by row.
pub struct BaseLogits {
    file: BufReader<File>,
    path: String,
    n_ctx: usize,
    n_vocab: usize,
    tokens: Vec<u32>,
    raw: Vec<u8>,
    values: Vec<u16>,
    n_read: usize,
}

/// Rows of a window of `n_ctx` tokens that are scored: the second half, without the last, which predicts the next window.
fn scored_rows(n_ctx: usize) -> usize {
    n_ctx - n_ctx / 2 - 1
}

/// One row: log probabilities over the vocabulary.
pub struct BaseRow<'a> {
    scale: f32,
    min: f32,
    values: &'a [u16],
}

impl BaseRow<'_> {
    /// llama-perplexity keeps no log probability below this; such tokens do not count.
    pub const FLOOR: f32 = -16.0;

    /// Log probability of token `i`, which must be in the vocabulary.
    pub fn log_prob(&self, i: usize) -> f32 {
        self.scale * f32::from(self.values[i]) + self.min
    }
}

impl BaseLogits {
    /// Reads the head and the tokens.
    ///
    /// # Errors
    /// [`BaseLogitsError`] when the file is none or claims more than it holds.
    pub fn open(path: &Path) -> Result<BaseLogits, BaseLogitsError> {
        let name = path.display().to_string();
        let fail = |reason: &str| BaseLogitsError {
            path: name.clone(),
            reason: reason.to_owned(),
        };
        let file = File::open(path).map_err(|e| fail(&e.to_string()))?;
        let metadata = file.metadata().map_err(|e| fail(&e.to_string()))?;
        if !metadata.is_file() {
            return Err(fail("is no regular file"));
        }
        let size = metadata.len();
        let mut file = BufReader::with_capacity(1 << 20, file);
        let mut head = [0u8; 20];
        file.read_exact(&mut head)
            .map_err(|_| fail("is too short for base logits"))?;
        if &head[..8] != MAGIC {
            return Err(fail(
                "is no file of base logits (made by llama-perplexity --kl-divergence-base)",
            ));
        }
        let int = |i: usize| u32::from_le_bytes([head[i], head[i + 1], head[i + 2], head[i + 3]]) as usize;
        let (n_ctx, n_vocab, n_windows) = (int(8), int(12), int(16));
        if n_windows == 0 {
            return Err(fail(
                "holds no windows: make it again from a text of at least two windows",
            ));
        }
        let n_tokens = n_ctx.checked_mul(n_windows).filter(|&n| (n as u64) < size / 4);
        let n_tokens = n_tokens.ok_or_else(|| fail("claims more tokens than it holds"))?;
        if n_vocab == 0 || n_vocab as u64 > size || n_ctx < MIN_WINDOW {
            return Err(fail("claims a window or a vocabulary that makes no sense"));
        }
        // Per scored row two floats and 16 bits a value, padded to an even count.
        let row_bytes = 8 + 2 * n_vocab.next_multiple_of(2) as u64;
        let rows = (n_windows as u64).saturating_mul(scored_rows(n_ctx) as u64);
        let needed = rows.saturating_mul(row_bytes).saturating_add(20 + 4 * n_tokens as u64);
        if size < needed {
            return Err(fail(&format!(
                "is incomplete: {n_windows} windows of {n_ctx} tokens and a vocabulary of {n_vocab} take {needed} bytes, \
                 it has {size}; make or copy it again"
            )));
        }
        let mut raw = vec![0u8; n_tokens * 4];
        file.read_exact(&mut raw).map_err(|_| fail("ends within its tokens"))?;
        let tokens: Vec<u32> = raw
            .chunks_exact(4)
            .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect();
        if let Some(at) = tokens.iter().position(|&t| t as usize >= n_vocab) {
            return Err(fail(&format!(
                "is damaged: token {at} is {}, outside its own vocabulary of {n_vocab}; make or copy it again",
                tokens[at]
            )));
        }
        Ok(BaseLogits {
            file,
            path: name,
            n_ctx,
            n_vocab,
            tokens,
            raw: Vec::new(),
            values: Vec::new(),
            n_read: 0,
        })
    }

    /// Tokens of a window.
    pub fn n_ctx(&self) -> usize {
        self.n_ctx
    }

    pub(super) fn take_tokens(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.tokens)
    }

    /// Refuses a model of another vocabulary.
    ///
    /// # Errors
    /// [`BaseLogitsError`] with both sizes.
    pub fn check_vocab(&self, n_vocab: usize) -> Result<(), BaseLogitsError> {
        if n_vocab == self.n_vocab {
            return Ok(());
        }
        Err(BaseLogitsError {
            path: self.path.clone(),
            reason: format!(
                "is for a vocabulary of {}, the model has {n_vocab}: make it with a model of the same vocabulary",
                self.n_vocab
            ),
        })
    }

    /// The next row of a model with `n_vocab` logits.
    ///
    /// # Errors
    /// [`BaseLogitsError`] when the vocabulary differs, the file ends or a row holds no numbers.
    pub fn next_row(&mut self, n_vocab: usize) -> Result<BaseRow<'_>, BaseLogitsError> {
        self.check_vocab(n_vocab)?;
        let fail = |reason: String| BaseLogitsError {
            path: self.path.clone(),
            reason,
        };
        // Two floats, then the values, padded to an even count.
        self.raw.resize(8 + n_vocab.next_multiple_of(2) * 2, 0);
        self.file
            .read_exact(&mut self.raw)
            .map_err(|_| fail("ends before its last row".to_owned()))?;
        let float = |i: usize| f32::from_le_bytes([self.raw[i], self.raw[i + 1], self.raw[i + 2], self.raw[i + 3]]);
        let (scale, min) = (float(0), float(4));
        if !(scale.is_finite() && min.is_finite()) {
            return Err(fail(format!(
                "is damaged: row {} has the scale {scale} and the minimum {min}; make or copy it again",
                self.n_read
            )));
        }
        self.n_read += 1;
        let values = self.raw[8..].chunks_exact(2).take(n_vocab);
        self.values.clear();
        self.values.extend(values.map(|b| u16::from_le_bytes([b[0], b[1]])));
        Ok(BaseRow {
            scale,
            min,
            values: &self.values,
        })
    }
}
