//! Unigram (`tokenizer.ggml.model = t5`): the most probable segmentation, by Viterbi over the characters.

use super::charsmap::CharsMap;
use super::error::Result;
use super::vocab::{TokenKind, Vocab};

/// How much worse than the worst piece an unknown character is.
const UNKNOWN_PENALTY: f64 = 10.0;

/// Scores, the sorted token table and the normaliser.
#[derive(Debug)]
pub(crate) struct Unigram {
    scores: Vec<f64>,
    /// Ids of the tokens that may match, in order of their texts.
    sorted: Vec<u32>,
    unk_score: f64,
    unk: Option<u32>,
    charsmap: Option<CharsMap>,
    options: SpaceOptions,
}

/// What the SentencePiece normaliser does with blanks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpaceOptions {
    /// A blank goes before the first word.
    pub(crate) add_prefix: bool,
    /// Runs of blanks become one, at the ends none.
    pub(crate) merge: bool,
}

/// The best way to reach a position.
#[derive(Clone, Copy)]
struct Best {
    score: f64,
    from: u32,
    id: Option<u32>,
}

impl Unigram {
    pub(crate) fn new(
        vocab: &Vocab,
        scores: &[f32],
        unk: Option<u32>,
        charsmap: Option<CharsMap>,
        options: SpaceOptions,
    ) -> Self {
        let score = |id: usize| {
            if vocab.kinds[id] == TokenKind::UserDefined {
                0.0
            } else {
                f64::from(scores[id])
            }
        };
        let matches = |id: &u32| {
            matches!(
                vocab.kind(*id),
                TokenKind::Normal | TokenKind::UserDefined | TokenKind::Unused
            )
        };
        let mut sorted: Vec<u32> = (0..vocab.len() as u32).filter(matches).collect();
        sorted.sort_unstable_by_key(|id| vocab.table.get(*id));
        let normal = (0..vocab.len()).filter(|i| vocab.kinds[*i] == TokenKind::Normal);
        let worst = normal.map(|i| f64::from(scores[i])).fold(f64::INFINITY, f64::min);
        let worst = if worst.is_finite() { worst } else { 0.0 };
        Self {
            scores: (0..vocab.len()).map(score).collect(),
            sorted,
            unk_score: worst - UNKNOWN_PENALTY,
            unk,
            charsmap,
            options,
        }
    }

    /// Encodes text without special tokens.
    pub(crate) fn encode(&self, vocab: &Vocab, text: &str, out: &mut Vec<u32>) -> Result<()> {
        let text = normalize(text, self.charsmap.as_ref(), self.options);
        if text.is_empty() {
            return Ok(());
        }
        let mut best = vec![
            Best {
                score: f64::NEG_INFINITY,
                from: 0,
                id: None
            };
            text.len() + 1
        ];
        best[0].score = 0.0;
        for (at, c) in text.char_indices() {
            let here = best[at].score;
            let mut whole_char = false;
            self.prefixes(vocab, &text.as_bytes()[at..], |id, len| {
                whole_char |= len == c.len_utf8();
                offer(&mut best[at + len], here + self.scores[id as usize], at, Some(id));
            });
            if !whole_char {
                offer(&mut best[at + c.len_utf8()], here + self.unk_score, at, None);
            }
        }
        let mut path = Vec::new();
        let mut at = text.len();
        while at > 0 {
            let from = best[at].from as usize;
            path.push((from, at, best[at].id));
            at = from;
        }
        let mut unknown: Option<(usize, usize)> = None;
        for (from, to, id) in path.into_iter().rev() {
            match id {
                Some(id) => {
                    self.push_unknown(vocab, &text, unknown.take(), out)?;
                    out.push(id);
                }
                None => unknown = Some((unknown.map_or(from, |u| u.0), to)),
            }
        }
        self.push_unknown(vocab, &text, unknown, out)
    }

    /// A run of unknown characters is one unknown token, or its bytes.
    fn push_unknown(&self, vocab: &Vocab, text: &str, run: Option<(usize, usize)>, out: &mut Vec<u32>) -> Result<()> {
        run.map_or(Ok(()), |(from, to)| vocab.push_fallback(&text[from..to], self.unk, out))
    }

    /// Every token that the text begins with, from short to long: the range of candidates narrows byte by byte.
    fn prefixes(&self, vocab: &Vocab, text: &[u8], mut found: impl FnMut(u32, usize)) {
        let mut range = &self.sorted[..];
        for (i, b) in text.iter().enumerate() {
            let byte_at = |id: &u32| vocab.table.get(*id).and_then(|t| t.get(i)).copied();
            let lo = range.partition_point(|id| byte_at(id) < Some(*b));
            let hi = range.partition_point(|id| byte_at(id) <= Some(*b));
            range = &range[lo..hi];
            match range.first() {
                None => return,
                Some(id) if vocab.table.get(*id).is_some_and(|t| t.len() == i + 1) => found(*id, i + 1),
                Some(_) => {}
            }
        }
    }
}

fn offer(best: &mut Best, score: f64, from: usize, id: Option<u32>) {
    if score > best.score || best.score == f64::NEG_INFINITY {
        *best = Best {
            score,
            from: from as u32,
            id,
        };
    }
}

/// Character map and blanks, as SentencePiece does before it segments.
pub(crate) fn normalize(text: &str, charsmap: Option<&CharsMap>, options: SpaceOptions) -> String {
    let mapped = charsmap.map(|m| m.apply(text));
    let text = mapped.as_deref().unwrap_or(text);
    const SPACE: &str = "\u{2581}";
    let mut out = String::with_capacity(text.len() + 3);
    if options.merge {
        for (i, word) in text.split(' ').filter(|w| !w.is_empty()).enumerate() {
            if i > 0 || options.add_prefix {
                out.push_str(SPACE);
            }
            out.push_str(word);
        }
    } else if !text.is_empty() {
        if options.add_prefix {
            out.push_str(SPACE);
        }
        out.push_str(&text.replace(' ', SPACE));
    }
    out
}
