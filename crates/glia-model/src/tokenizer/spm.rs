//! SentencePiece BPE (`tokenizer.ggml.model = llama`): merges by score, byte tokens for what has no piece.

use super::error::Result;
use super::merge::{Merger, NO_TOKEN, Symbol, merge_all};
use super::vocab::Vocab;

/// Merge order of the pieces.
#[derive(Debug)]
pub(crate) struct Spm {
    /// Ascending keys for descending scores, one a token.
    keys: Vec<u32>,
    unk: Option<u32>,
}

/// The smallest key for the greatest score; NaN sorts last.
fn key_of(score: f32) -> u32 {
    if score.is_nan() {
        return u32::MAX;
    }
    // +0.0 makes the two zeros one.
    let bits = (score + 0.0).to_bits();
    !(if bits >> 31 == 1 { !bits } else { bits | 1 << 31 })
}

impl Spm {
    pub(crate) fn new(scores: &[f32], unk: Option<u32>) -> Self {
        Self {
            keys: scores.iter().copied().map(key_of).collect(),
            unk,
        }
    }

    /// Encodes text whose blanks are already `\u{2581}`.
    pub(crate) fn encode(&self, vocab: &Vocab, text: &str, out: &mut Vec<u32>) -> Result<()> {
        let symbol = |(start, c): (usize, char)| {
            let len = c.len_utf8();
            let id = vocab.plain_id(&text.as_bytes()[start..start + len]).unwrap_or(NO_TOKEN);
            Symbol {
                start: start as u32,
                len: len as u32,
                id,
            }
        };
        let mut symbols: Vec<Symbol> = text.char_indices().map(symbol).collect();
        let merger = Pieces {
            spm: self,
            vocab,
            text: text.as_bytes(),
        };
        let mut result = Ok(());
        merge_all(&mut symbols, &merger, |s| {
            if s.id != NO_TOKEN {
                out.push(s.id);
            } else if result.is_ok() {
                let raw = &text[s.start as usize..(s.start + s.len) as usize];
                result = vocab.push_fallback(raw, self.unk, out);
            }
        });
        result
    }
}

struct Pieces<'a> {
    spm: &'a Spm,
    vocab: &'a Vocab,
    text: &'a [u8],
}

impl Merger for Pieces<'_> {
    fn pair(&self, left: Symbol, right: Symbol) -> Option<(u32, u32)> {
        let (start, len) = (left.start as usize, (left.len + right.len) as usize);
        if len > self.vocab.max_len {
            return None;
        }
        let id = self.vocab.plain_id(&self.text[start..start + len])?;
        Some((*self.spm.keys.get(id as usize)?, id))
    }
}

#[cfg(test)]
mod tests {
    use super::key_of;

    #[test]
    fn keys_order_scores_from_great_to_small() {
        let scores = [f32::INFINITY, 3.5, 0.0, -0.5, -1e9, f32::NEG_INFINITY, f32::NAN];
        assert!(scores.windows(2).all(|w| key_of(w[0]) < key_of(w[1])));
        assert_eq!(key_of(0.0), key_of(-0.0));
    }
}
