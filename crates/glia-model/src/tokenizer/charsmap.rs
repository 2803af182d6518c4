//! The compiled character map of SentencePiece (`precompiled_charsmap`): a double-array trie of replacements.
//!
//! Layout: `u32` size of the trie in bytes, the trie as `u32` units, then replacements that end in NUL.

use super::error::{Result, TokenizerError};

/// Rules that replace the longest prefix they know.
#[derive(Debug)]
pub(crate) struct CharsMap {
    units: Vec<u32>,
    replacements: Vec<u8>,
}

impl CharsMap {
    /// Reads the blob; an empty one is no map.
    pub(crate) fn parse(blob: &[u8]) -> Result<Option<Self>> {
        if blob.is_empty() {
            return Ok(None);
        }
        let bad = |problem: String| TokenizerError::vocab("precompiled_charsmap", problem);
        let (head, rest) = blob
            .split_first_chunk::<4>()
            .ok_or_else(|| bad(format!("has {} bytes", blob.len())))?;
        let trie_bytes = u32::from_le_bytes(*head) as usize;
        if trie_bytes > rest.len() || !trie_bytes.is_multiple_of(4) || trie_bytes == 0 {
            return Err(bad(format!(
                "claims a trie of {trie_bytes} bytes, {} follow",
                rest.len()
            )));
        }
        let (trie, replacements) = rest.split_at(trie_bytes);
        if replacements.last().is_some_and(|b| *b != 0) {
            return Err(bad("its last replacement has no end".into()));
        }
        let units = trie
            .chunks_exact(4)
            .map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]]))
            .collect();
        Ok(Some(Self {
            units,
            replacements: replacements.to_vec(),
        }))
    }

    /// Replaces from left to right.
    pub(crate) fn apply(&self, text: &str) -> String {
        let mut out = Vec::with_capacity(text.len());
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let (len, replacement) = self.longest_prefix(rest.as_bytes()).unwrap_or((0, 0));
            let end = self
                .replacements
                .get(replacement..)
                .and_then(|r| r.iter().position(|b| *b == 0));
            match end {
                Some(end) if len > 0 && rest.is_char_boundary(len) => {
                    out.extend_from_slice(&self.replacements[replacement..replacement + end]);
                    rest = &rest[len..];
                }
                _ => {
                    out.extend_from_slice(&rest.as_bytes()[..c.len_utf8()]);
                    rest = &rest[c.len_utf8()..];
                }
            }
        }
        String::from_utf8_lossy(&out).into_owned()
    }

    /// Length of the longest known prefix and where its replacement starts.
    fn longest_prefix(&self, text: &[u8]) -> Option<(usize, usize)> {
        let offset = |unit: u32| (unit >> 10) << ((unit & (1 << 9)) >> 6);
        let mut found = None;
        let mut node = offset(*self.units.first()?);
        for (i, b) in text.iter().enumerate() {
            if *b == 0 {
                break;
            }
            node ^= u32::from(*b);
            let Some(unit) = self.units.get(node as usize) else {
                break;
            };
            if unit & ((1 << 31) | 0xff) != u32::from(*b) {
                break;
            }
            node ^= offset(*unit);
            if unit & (1 << 8) != 0
                && let Some(leaf) = self.units.get(node as usize)
            {
                found = Some((i + 1, (leaf & 0x7fff_ffff) as usize));
            }
        }
        found
    }
}
