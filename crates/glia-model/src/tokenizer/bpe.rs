//! Byte-pair encoding from `tokenizer.ggml.merges`, over the GPT-2 byte alphabet or over UTF-8 with byte fallback.

use super::bytemap;
use super::error::{Result, TokenizerError};
use super::merge::{Merger, NO_TOKEN, Symbol, merge_all};
use super::pre::PreTokenizer;
use super::split::Splitter;
use super::strings::StringList;
use super::vocab::{TokenKind, Vocab};
use foldhash::{HashMap, HashMapExt};

/// What becomes of two symbols side by side: the pairs of each left symbol behind each other, by the right one. A hash table
/// of as many would take half as much again.
#[derive(Debug, Default)]
struct Pairs {
    /// Where the pairs of a left symbol begin; one more than there are left symbols.
    starts: Vec<u32>,
    /// Right symbol, rank and result.
    pairs: Vec<(u32, u32, u32)>,
}

impl Pairs {
    /// From left symbol, right symbol, rank and result; of equal pairs the least rank counts.
    fn new(mut all: Vec<(u32, u32, u32, u32)>) -> Self {
        all.sort_unstable();
        all.dedup_by_key(|pair| (pair.0, pair.1));
        let n = all.last().map_or(0, |last| last.0 as usize + 1);
        let mut starts = vec![0u32; n + 1];
        for pair in &all {
            starts[pair.0 as usize + 1] += 1;
        }
        for i in 0..n {
            starts[i + 1] += starts[i];
        }
        let pairs = all.iter().map(|&(_, right, rank, id)| (right, rank, id)).collect();
        Self { starts, pairs }
    }

    fn get(&self, left: u32, right: u32) -> Option<(u32, u32)> {
        let left = left as usize;
        let (&start, &end) = (self.starts.get(left)?, self.starts.get(left.checked_add(1)?)?);
        let pairs = &self.pairs[start as usize..end as usize];
        let at = pairs.binary_search_by_key(&right, |pair| pair.0).ok()?;
        Some((pairs[at].1, pairs[at].2))
    }
}

/// Merge rules and pre-tokenizer.
#[derive(Debug)]
pub(crate) struct Bpe {
    pre: &'static PreTokenizer,
    splitter: Splitter,
    /// Rank and result of each pair. Ids from `n_tokens` on are texts that only merges mention.
    pairs: Pairs,
    /// Texts of the ids from `n_tokens` on.
    extra: Vec<Vec<u8>>,
    extra_ids: HashMap<Vec<u8>, u32>,
    byte_ids: Vec<u32>,
    unk: Option<u32>,
}

impl Bpe {
    pub(crate) fn new(
        vocab: &Vocab,
        merges: &StringList,
        pre: &'static PreTokenizer,
        unk: Option<u32>,
    ) -> Result<Self> {
        let mut bpe = Self {
            pre,
            splitter: Splitter::new(pre.steps)?,
            pairs: Pairs::default(),
            extra: Vec::new(),
            extra_ids: HashMap::new(),
            byte_ids: Vec::new(),
            unk,
        };
        if !pre.raw_utf8 {
            let mut utf8 = [0; 4];
            bpe.byte_ids = (0..=255)
                .map(|b| bpe.intern(vocab, bytemap::byte_to_char(b).encode_utf8(&mut utf8).as_bytes()))
                .collect();
        }
        let mut pairs = Vec::with_capacity(merges.len());
        let mut joined = Vec::new();
        for (rank, merge) in merges.iter().enumerate() {
            // The first part may itself begin with a blank.
            let cut = merge.iter().skip(1).position(|b| *b == b' ').map(|i| i + 1);
            let Some(cut) = cut.filter(|cut| cut + 1 < merge.len()) else {
                let text = String::from_utf8_lossy(merge);
                let problem = format!("is `{text}`, expected two parts with a blank between them");
                return Err(TokenizerError::vocab(format!("tokenizer.ggml.merges[{rank}]"), problem));
            };
            let (left, right) = (&merge[..cut], &merge[cut + 1..]);
            joined.clear();
            joined.extend_from_slice(left);
            joined.extend_from_slice(right);
            let key = (bpe.intern(vocab, left), bpe.intern(vocab, right));
            let id = bpe.intern(vocab, &joined);
            pairs.push((key.0, key.1, rank as u32, id));
        }
        bpe.pairs = Pairs::new(pairs);
        Ok(bpe)
    }

    fn intern(&mut self, vocab: &Vocab, text: &[u8]) -> u32 {
        if let Some(id) = vocab.table.id(text).or_else(|| self.extra_ids.get(text).copied()) {
            return id;
        }
        let id = (vocab.len() + self.extra.len()) as u32;
        self.extra.push(text.to_vec());
        self.extra_ids.insert(text.to_vec(), id);
        id
    }

    /// Encodes text without special tokens.
    pub(crate) fn encode(&self, vocab: &Vocab, text: &str, out: &mut Vec<u32>) -> Result<()> {
        let escaped;
        let text = if self.pre.raw_utf8 {
            escaped = text.replace(' ', "\u{2581}");
            &escaped
        } else {
            text
        };
        let mut symbols = Vec::new();
        let mut result = Ok(());
        self.splitter.split(text, &mut |piece| {
            if result.is_ok() {
                result = self.encode_piece(vocab, piece, &mut symbols, out);
            }
        });
        result
    }

    fn encode_piece(&self, vocab: &Vocab, piece: &str, symbols: &mut Vec<Symbol>, out: &mut Vec<u32>) -> Result<()> {
        if self.pre.ignore_merges || (self.pre.whole_newlines && piece.starts_with('\n')) {
            let mapped: String = if self.pre.raw_utf8 {
                piece.into()
            } else {
                piece.bytes().map(bytemap::byte_to_char).collect()
            };
            if let Some(id) = vocab.plain_id(mapped.as_bytes()) {
                out.push(id);
                return Ok(());
            }
        }
        symbols.clear();
        if self.pre.raw_utf8 {
            for (start, c) in piece.char_indices() {
                let text = &piece.as_bytes()[start..start + c.len_utf8()];
                let id = vocab
                    .plain_id(text)
                    .or_else(|| self.extra_ids.get(text).copied())
                    .unwrap_or(NO_TOKEN);
                symbols.push(Symbol {
                    start: start as u32,
                    len: text.len() as u32,
                    id,
                });
            }
        } else {
            let symbol = |(i, b): (usize, u8)| Symbol {
                start: i as u32,
                len: 1,
                id: self.byte_ids[b as usize],
            };
            symbols.extend(piece.bytes().enumerate().map(symbol));
        }
        let mut result = Ok(());
        merge_all(symbols, self, |s| {
            if (s.id as usize) < vocab.len() && vocab.kind(s.id) != TokenKind::Control {
                out.push(s.id);
            } else if result.is_ok() {
                let raw = &piece.as_bytes()[s.start as usize..(s.start + s.len) as usize];
                result = self.push_untokened(vocab, raw, out);
            }
        });
        result
    }

    /// A symbol that no token stands for, one character of its text after the other.
    fn push_untokened(&self, vocab: &Vocab, raw: &[u8], out: &mut Vec<u32>) -> Result<()> {
        if self.pre.raw_utf8 {
            return vocab.push_fallback(&String::from_utf8_lossy(raw), self.unk, out);
        }
        for b in raw {
            let id = self.byte_ids[*b as usize];
            match self.unk {
                _ if (id as usize) < vocab.len() => out.push(id),
                Some(unk) => out.push(unk),
                None => {
                    return Err(TokenizerError::NotInVocab {
                        ch: bytemap::byte_to_char(*b),
                    });
                }
            }
        }
        Ok(())
    }
}

impl Merger for Bpe {
    fn pair(&self, left: Symbol, right: Symbol) -> Option<(u32, u32)> {
        self.pairs.get(left.id, right.id)
    }
}

#[cfg(test)]
mod tests {
    use super::Pairs;

    #[test]
    fn pairs_are_found_and_the_best_rank_counts() {
        let pairs = Pairs::new(vec![
            (5, 1, 0, 50),
            (2, 9, 1, 51),
            (5, 0, 2, 52),
            (5, 1, 3, 53),
            (2, 9, 4, 54),
        ]);
        assert_eq!(pairs.get(5, 1), Some((0, 50)));
        assert_eq!(pairs.get(2, 9), Some((1, 51)));
        assert_eq!(pairs.get(5, 0), Some((2, 52)));
        for (left, right) in [(0, 0), (5, 2), (6, 1), (2, 1), (u32::MAX, 1), (9, 2)] {
            assert_eq!(pairs.get(left, right), None, "{left} {right}");
        }
        assert_eq!(Pairs::new(Vec::new()).get(0, 0), None);
        assert_eq!(Pairs::default().get(0, 0), None);
    }
}
