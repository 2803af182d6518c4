//! WordPiece (`tokenizer.ggml.model = bert`): the longest tokens of each word from left to right.
//!
//! GGUF files write `\u{2581}word` for the start of a word and the bare text for what follows; older ones keep `##`.

use super::error::{Result, TokenizerError};
use super::vocab::Vocab;
use tokenizers::normalizers::BertNormalizer;
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;
use tokenizers::{NormalizedString, Normalizer, OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer};

/// Longer words are unknown, as in BERT.
const MAX_WORD_CHARS: usize = 100;

/// Normaliser and prefixes.
#[derive(Debug)]
pub(crate) struct WordPiece {
    normalizer: BertNormalizer,
    first: &'static str,
    next: &'static str,
    unk: Option<u32>,
}

impl WordPiece {
    pub(crate) fn new(vocab: &Vocab, unk: Option<u32>, lowercase: bool, strip_accents: bool) -> Self {
        let phantom = vocab.table.iter().any(|t| t.starts_with("\u{2581}".as_bytes()));
        let (first, next) = if phantom { ("\u{2581}", "") } else { ("", "##") };
        Self {
            normalizer: BertNormalizer::new(true, true, Some(strip_accents), lowercase),
            first,
            next,
            unk,
        }
    }

    /// Encodes text without special tokens.
    pub(crate) fn encode(&self, vocab: &Vocab, text: &str, out: &mut Vec<u32>) -> Result<()> {
        let library = |e: tokenizers::Error| TokenizerError::Library(e.to_string());
        let mut normalized = NormalizedString::from(text);
        self.normalizer.normalize(&mut normalized).map_err(library)?;
        let mut words = PreTokenizedString::from(normalized);
        BertPreTokenizer.pre_tokenize(&mut words).map_err(library)?;
        for (word, _, _) in words.get_splits(OffsetReferential::Normalized, OffsetType::None) {
            self.encode_word(vocab, word, out)?;
        }
        Ok(())
    }

    fn encode_word(&self, vocab: &Vocab, word: &str, out: &mut Vec<u32>) -> Result<()> {
        let Some(ch) = word.chars().next() else { return Ok(()) };
        let n_before = out.len();
        let mut rest = word;
        let mut candidate = String::new();
        if word.chars().count() > MAX_WORD_CHARS {
            rest = "";
        }
        while !rest.is_empty() {
            candidate.clear();
            let prefix = if rest.len() == word.len() {
                self.first
            } else {
                self.next
            };
            candidate.push_str(prefix);
            candidate.push_str(rest);
            let mut len = rest.len();
            let id = loop {
                if len == 0 {
                    break None;
                }
                if let Some(id) = vocab.plain_id(&candidate.as_bytes()[..prefix.len() + len]) {
                    break Some(id);
                }
                len = rest[..len].char_indices().next_back().map_or(0, |(i, _)| i);
            };
            let Some(id) = id else {
                out.truncate(n_before);
                break;
            };
            out.push(id);
            rest = &rest[len..];
        }
        if out.len() == n_before {
            out.push(self.unk.ok_or(TokenizerError::NotInVocab { ch })?);
        }
        Ok(())
    }
}
