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
        let n_tokens = n_ctx.checked_mul(n_windows).filter(|&n| (n as u64) < size / 4);
        let n_tokens = n_tokens.ok_or_else(|| fail("claims more tokens than it holds"))?;
        if n_vocab == 0 || n_vocab as u64 > size || n_ctx < MIN_WINDOW {
            return Err(fail("claims a window or a vocabulary that makes no sense"));
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

    /// Tokens of a window.
    pub fn n_ctx(&self) -> usize {
        self.n_ctx
    }

    pub(super) fn take_tokens(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.tokens)
    }

    /// The next row of a model with `n_vocab` logits.
    ///
    /// # Errors
    /// [`BaseLogitsError`] when the vocabulary differs or the file ends.
    pub fn next_row(&mut self, n_vocab: usize) -> Result<BaseRow<'_>, BaseLogitsError> {
        let fail = |reason: String| BaseLogitsError {
            path: self.path.clone(),
            reason,
        };
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
        let values = self.raw[8..].chunks_exact(2).take(n_vocab);
        self.values.clear();
        self.values
            .extend(values.map(|b| u16::from_le_bytes([b[0], b[1]])));
        Ok(BaseRow {
            scale,
            min,
            values: &self.values,
        })
    }
}
