//! Tokens that are matched in the text before the algorithm sees it, and the guard that keeps user text from them.
//!
//! Two sets: tokens that every text may contain (user-defined), and control tokens, which only trusted text may
//! produce. A guarded text carries marks inside whatever looks like a control token; they are removed after matching.

use super::error::{Result, TokenizerError};
use aho_corasick::{AhoCorasick, MatchKind};
use std::borrow::Cow;

/// A Unicode noncharacter, so no text in interchange has it; one that does is escaped by doubling.
pub(crate) const MARK: char = '\u{FDD1}';

/// A part of the text.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Part<'t> {
    /// Text for the algorithm.
    Text(&'t str),
    /// A token that was matched.
    Token(u32),
}

/// Matchers over the texts of special tokens; the leftmost match counts, the longest of those.
#[derive(Debug)]
pub(crate) struct SpecialTokens {
    always: Matcher,
    all: Matcher,
    control: Matcher,
}

#[derive(Debug)]
struct Matcher {
    automaton: Option<AhoCorasick>,
    ids: Vec<u32>,
}

impl Matcher {
    fn new<'a>(tokens: impl Iterator<Item = (u32, &'a [u8])>) -> Result<Self> {
        let (ids, texts): (Vec<u32>, Vec<&[u8]>) = tokens.filter(|(_, t)| !t.is_empty()).unzip();
        if ids.is_empty() {
            return Ok(Self { automaton: None, ids });
        }
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(&texts)
            .map_err(|e| TokenizerError::vocab("special tokens", e.to_string()))?;
        Ok(Self {
            automaton: Some(automaton),
            ids,
        })
    }

    fn find(&self, text: &str, mut found: impl FnMut(usize, usize, u32)) {
        let Some(automaton) = &self.automaton else { return };
        for m in automaton.find_iter(text) {
            // A token that is no whole character could cut one in two.
            if text.is_char_boundary(m.start()) && text.is_char_boundary(m.end()) {
                found(m.start(), m.end(), self.ids[m.pattern().as_usize()]);
            }
        }
    }
}

impl SpecialTokens {
    /// From `(id, text, is_control)` triples.
    pub(crate) fn new(tokens: &[(u32, &[u8], bool)]) -> Result<Self> {
        Ok(Self {
            always: Matcher::new(tokens.iter().filter(|t| !t.2).map(|t| (t.0, t.1)))?,
            all: Matcher::new(tokens.iter().map(|t| (t.0, t.1)))?,
            control: Matcher::new(tokens.iter().filter(|t| t.2 && can_guard(t.1)).map(|t| (t.0, t.1)))?,
        })
    }

    /// Cuts the text at special tokens: all of them, or only those that any text may contain.
    pub(crate) fn partition<'t>(&self, text: &'t str, parse_special: bool) -> Vec<Part<'t>> {
        let mut parts = Vec::new();
        let mut at = 0;
        let matcher = if parse_special { &self.all } else { &self.always };
        matcher.find(text, |start, end, id| {
            if start > at {
                parts.push(Part::Text(&text[at..start]));
            }
            parts.push(Part::Token(id));
            at = end;
        });
        if at < text.len() {
            parts.push(Part::Text(&text[at..]));
        }
        parts
    }

    /// Marks everything in the text that reads as a control token, so that it will not be taken for one.
    pub(crate) fn guard<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let escaped = if text.contains(MARK) {
            let doubled: String = [MARK, MARK].iter().collect();
            Cow::Owned(text.replace(MARK, &doubled))
        } else {
            Cow::Borrowed(text)
        };
        // A match can hide another that starts inside it, so go on until nothing matches.
        let mut guarded = escaped;
        loop {
            let mut marked = String::new();
            let mut at = 0;
            self.control.find(&guarded, |start, _, _| {
                let first = guarded[start..].chars().next().map_or(1, char::len_utf8);
                marked.push_str(&guarded[at..start + first]);
                marked.push(MARK);
                at = start + first;
            });
            if at == 0 {
                return guarded;
            }
            marked.push_str(&guarded[at..]);
            guarded = Cow::Owned(marked);
        }
    }
}

/// A mark must fit behind the first character, and make the text another one.
fn can_guard(token: &[u8]) -> bool {
    std::str::from_utf8(token).is_ok_and(|t| t.chars().count() > 1 && !t.contains(MARK))
}

/// Removes the marks of [`SpecialTokens::guard`].
pub(crate) fn unguard(text: &str) -> Cow<'_, str> {
    if !text.contains(MARK) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c != MARK {
            out.push(c);
        } else if chars.peek() == Some(&MARK) {
            out.push(MARK);
            chars.next();
        }
    }
    Cow::Owned(out)
}
