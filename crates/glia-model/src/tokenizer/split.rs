//! Splitting of text into the pieces that BPE may not merge across, in time linear in the text.
//!
//! Published patterns end in `\s+(?!\S)|\s+`, whose look-ahead keeps the last blank of a run for the word behind it.
//! Here the pattern has no look-ahead: a run of blanks is matched whole and given back its last character afterwards.

use super::error::{Result, TokenizerError};
use regex::Regex;

/// One step of a pre-tokenizer: cuts every piece that the steps before it left.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// Matches of a pattern, and what lies between them, become pieces.
    Re(&'static str),
    /// Runs of digits are cut into threes from the right: `12|345|678`.
    DigitsFromRight,
    /// As [`Step::DigitsFromRight`], only where no letter follows the run.
    DigitsFromRightAtBoundary,
}

/// What happens to a run of blanks that a word follows.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Blanks {
    /// The pattern has no look-ahead.
    AsMatched,
    /// All but the last blank make a piece.
    KeepLast,
    /// Pieces of 512, 256 .. 4, 2, 1 blanks, never the last one together with others.
    Cascade,
}

#[derive(Debug)]
enum Compiled {
    Re {
        regex: Regex,
        blanks: Blanks,
        newline_alternative: bool,
    },
    Digits {
        at_boundary: bool,
    },
}

/// A compiled list of steps.
#[derive(Debug)]
pub(crate) struct Splitter {
    steps: Vec<Compiled>,
}

const LOOKAHEAD: &str = r"\s+(?!\S)";
const CASCADE: &str = r"\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}";

impl Splitter {
    /// Compiles the steps of a pre-tokenizer.
    pub(crate) fn new(steps: &[Step]) -> Result<Self> {
        let steps = steps.iter().map(compile).collect::<Result<_>>()?;
        Ok(Self { steps })
    }

    /// Calls `piece` with each piece of the text from left to right; together they are the whole text.
    pub(crate) fn split<'t>(&self, text: &'t str, piece: &mut impl FnMut(&'t str)) {
        split_from(&self.steps, text, piece);
    }
}

fn compile(step: &Step) -> Result<Compiled> {
    let pattern = match step {
        Step::Re(pattern) => *pattern,
        Step::DigitsFromRight => return Ok(Compiled::Digits { at_boundary: false }),
        Step::DigitsFromRightAtBoundary => return Ok(Compiled::Digits { at_boundary: true }),
    };
    let (plain, blanks) = if pattern.contains(CASCADE) {
        (pattern.replace(CASCADE, r"\s+"), Blanks::Cascade)
    } else if pattern.contains(LOOKAHEAD) {
        (
            pattern.replace(r"\s+(?!\S)|\s+", r"\s+").replace(LOOKAHEAD, r"\s+"),
            Blanks::KeepLast,
        )
    } else {
        (pattern.to_string(), Blanks::AsMatched)
    };
    let regex = Regex::new(&plain).map_err(|e| {
        TokenizerError::vocab(
            "tokenizer.ggml.pre",
            format!("pattern `{pattern}` does not compile: {e}"),
        )
    })?;
    Ok(Compiled::Re {
        regex,
        blanks,
        newline_alternative: pattern.contains(r"\s*[\r\n]"),
    })
}

fn split_from<'t>(steps: &[Compiled], text: &'t str, piece: &mut impl FnMut(&'t str)) {
    let Some((step, rest)) = steps.split_first() else {
        if !text.is_empty() {
            piece(text);
        }
        return;
    };
    // A trait object ends the recursion of generic types.
    let mut sub: Box<dyn FnMut(&'t str) + '_> = Box::new(|part| split_from_dyn(rest, part, piece));
    match step {
        Compiled::Re {
            regex,
            blanks,
            newline_alternative,
        } => split_regex(regex, *blanks, *newline_alternative, text, &mut sub),
        Compiled::Digits { at_boundary } => split_digits(*at_boundary, text, &mut sub),
    }
}

fn split_from_dyn<'t>(steps: &[Compiled], text: &'t str, piece: &mut dyn FnMut(&'t str)) {
    split_from(steps, text, &mut |part| piece(part));
}

fn split_regex<'t>(
    regex: &Regex,
    blanks: Blanks,
    newline_alternative: bool,
    text: &'t str,
    piece: &mut dyn FnMut(&'t str),
) {
    let mut at = 0;
    while at < text.len() {
        let Some(found) = regex.find_at(text, at) else { break };
        let (start, mut end) = (found.start(), found.end());
        if end == start {
            break;
        }
        if blanks != Blanks::AsMatched {
            end = start + blanks_to_take(blanks, newline_alternative, &text[start..end], &text[end..]);
        }
        if start > at {
            piece(&text[at..start]);
        }
        piece(&text[start..end]);
        at = end;
    }
    if at < text.len() {
        piece(&text[at..]);
    }
}

/// How many bytes of a match to take, given what follows it.
fn blanks_to_take(blanks: Blanks, newline_alternative: bool, matched: &str, after: &str) -> usize {
    let all = matched.len();
    if !matched.starts_with(char::is_whitespace) || !matched.ends_with(char::is_whitespace) {
        return all;
    }
    if (newline_alternative && matched.ends_with(['\r', '\n'])) || !matched.chars().all(char::is_whitespace) {
        return all;
    }
    let word_follows = after.chars().next().is_some_and(|c| !c.is_whitespace());
    match blanks {
        Blanks::AsMatched => all,
        Blanks::KeepLast if !word_follows => all,
        Blanks::KeepLast => match matched.char_indices().next_back() {
            Some((last, _)) if last > 0 => last,
            _ => all,
        },
        Blanks::Cascade => {
            let n = matched.chars().count() - usize::from(word_follows);
            let take = [512, 256, 128, 64, 32, 16, 8, 4, 2]
                .into_iter()
                .find(|k| *k <= n)
                .unwrap_or(1);
            matched.char_indices().nth(take).map_or(all, |(i, _)| i)
        }
    }
}

fn split_digits<'t>(at_boundary: bool, text: &'t str, piece: &mut dyn FnMut(&'t str)) {
    let is_digit = |c: char| c.is_numeric();
    let (mut from, mut at) = (0, 0);
    while let Some(offset) = text[at..].find(is_digit) {
        let start = at + offset;
        let end = text[start..].find(|c| !is_digit(c)).map_or(text.len(), |n| start + n);
        at = end;
        let word_follows = text[end..]
            .chars()
            .next()
            .is_some_and(|c| c.is_alphanumeric() || c == '_');
        if at_boundary && word_follows {
            continue;
        }
        if start > from {
            piece(&text[from..start]);
        }
        let run = &text[start..end];
        let n = run.chars().count();
        let mut cut = 0;
        for (i, (offset, _)) in run.char_indices().enumerate() {
            if i > 0 && (n - i).is_multiple_of(3) {
                piece(&run[cut..offset]);
                cut = offset;
            }
        }
        piece(&run[cut..]);
        from = end;
    }
    if from < text.len() {
        piece(&text[from..]);
    }
}
