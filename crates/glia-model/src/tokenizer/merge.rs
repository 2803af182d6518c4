//! Merging of adjacent symbols by priority, shared by byte-pair encoding and SentencePiece BPE.
//!
//! A heap holds the candidate pairs, so a text of `n` symbols costs `O(n log n)` however it is made up.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A piece of the text that no token covers as yet.
pub(crate) const NO_TOKEN: u32 = u32::MAX;

/// A run of the text and the token that stands for it ([`NO_TOKEN`] when there is none).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Symbol {
    /// First byte in the text.
    pub(crate) start: u32,
    /// Length in bytes; 0 once merged into its left neighbour.
    pub(crate) len: u32,
    /// The token.
    pub(crate) id: u32,
}

/// Says which neighbours may merge. The smallest key merges first, the leftmost of equals.
pub(crate) trait Merger {
    /// Key and merged token of a pair, or none when it may not merge.
    fn pair(&self, left: Symbol, right: Symbol) -> Option<(u32, u32)>;
}

/// Merges until no pair is left and hands the surviving symbols to `emit` from left to right.
pub(crate) fn merge_all(symbols: &mut [Symbol], merger: &impl Merger, mut emit: impl FnMut(Symbol)) {
    if symbols.len() <= 16 {
        merge_few(symbols, merger, &mut emit);
    } else {
        merge_many(symbols, merger, &mut emit);
    }
}

/// For words: look at every pair each time, which beats a heap while the count is small.
fn merge_few(symbols: &mut [Symbol], merger: &impl Merger, emit: &mut impl FnMut(Symbol)) {
    let mut n = symbols.len();
    let mut keys = [None; 16];
    for i in 1..n {
        keys[i - 1] = merger.pair(symbols[i - 1], symbols[i]);
    }
    loop {
        let mut best: Option<(u32, usize, u32)> = None;
        for (i, key) in keys.iter().enumerate().take(n.saturating_sub(1)) {
            if let Some((key, id)) = *key
                && best.is_none_or(|(k, _, _)| key < k)
            {
                best = Some((key, i, id));
            }
        }
        let Some((_, at, id)) = best else { break };
        symbols[at] = Symbol {
            start: symbols[at].start,
            len: symbols[at].len + symbols[at + 1].len,
            id,
        };
        symbols.copy_within(at + 2..n, at + 1);
        keys.copy_within((at + 1).min(n - 1)..n - 1, at);
        n -= 1;
        if at > 0 {
            keys[at - 1] = merger.pair(symbols[at - 1], symbols[at]);
        }
        keys[at] = if at + 1 < n {
            merger.pair(symbols[at], symbols[at + 1])
        } else {
            None
        };
    }
    symbols[..n].iter().for_each(|s| emit(*s));
}

fn merge_many(symbols: &mut [Symbol], merger: &impl Merger, emit: &mut impl FnMut(Symbol)) {
    const NONE: u32 = u32::MAX;
    let n = symbols.len();
    let mut next: Vec<u32> = (1..=n as u32).map(|i| if i as usize == n { NONE } else { i }).collect();
    let mut prev: Vec<u32> = (0..n as u32).map(|i| i.wrapping_sub(1)).collect();
    // Entries: (key, left, right, length of both, merged token).
    let mut pairs = Vec::with_capacity(n);
    for i in 1..n {
        if let Some((key, id)) = merger.pair(symbols[i - 1], symbols[i]) {
            pairs.push(Reverse((
                key,
                i as u32 - 1,
                i as u32,
                symbols[i - 1].len + symbols[i].len,
                id,
            )));
        }
    }
    let mut heap = BinaryHeap::from(pairs);
    while let Some(Reverse((_, left, right, len, id))) = heap.pop() {
        let (l, r) = (left as usize, right as usize);
        // A side that has merged since is either gone or longer, so the lengths tell a stale entry.
        if symbols[l].len == 0 || symbols[r].len == 0 || symbols[l].len + symbols[r].len != len || next[l] != right {
            continue;
        }
        symbols[l].len = len;
        symbols[l].id = id;
        symbols[r].len = 0;
        next[l] = next[r];
        if next[r] != NONE {
            prev[next[r] as usize] = left;
        }
        if prev[l] != NONE
            && let Some((key, id)) = merger.pair(symbols[prev[l] as usize], symbols[l])
        {
            heap.push(Reverse((key, prev[l], left, symbols[prev[l] as usize].len + len, id)));
        }
        if next[l] != NONE
            && let Some((key, id)) = merger.pair(symbols[l], symbols[next[l] as usize])
        {
            heap.push(Reverse((key, left, next[l], len + symbols[next[l] as usize].len, id)));
        }
    }
    let mut i = 0;
    while i != NONE && (i as usize) < n {
        emit(symbols[i as usize]);
        i = next[i as usize];
    }
}
