//! Decoding token by token. Every piece handed out is whole characters, and all of them together are the text that
//! decoding the ids at once gives; batch decoding is this stream run to its end.

use super::error::Result;
use super::{Detokenizer, Strip, Tokenizer};
use std::borrow::Borrow;

/// An incremental decoder. `T` is `&Tokenizer`, `Arc<Tokenizer>` or the like.
#[derive(Debug)]
pub struct DecodeStream<T: Borrow<Tokenizer>> {
    tokenizer: T,
    skip_special: bool,
    /// The next token begins the text.
    at_start: bool,
    /// Bytes of a character that is not complete.
    pending: Vec<u8>,
    /// Ids of the window that a context-dependent decoder looks at.
    window: Vec<u32>,
    /// Text of the window that is out already.
    shown: String,
}

/// A context-dependent decoder looks at no more tokens than this.
const WINDOW: usize = 64;

impl<T: Borrow<Tokenizer>> DecodeStream<T> {
    /// A stream at the start of a text. Control tokens are left out when `skip_special`.
    pub fn new(tokenizer: T, skip_special: bool) -> Self {
        Self {
            tokenizer,
            skip_special,
            at_start: true,
            pending: Vec::new(),
            window: Vec::new(),
            shown: String::new(),
        }
    }

    /// The stream goes on from a text before it: the blank that some tokenizers put before a first word is kept.
    pub fn continuing(mut self) -> Self {
        self.at_start = false;
        self
    }

    /// The text that `id` completes; empty while a character is incomplete.
    ///
    /// # Errors
    /// When the id is not in the vocabulary; the stream is unchanged then.
    pub fn push(&mut self, id: u32) -> Result<String> {
        let tokenizer = self.tokenizer.borrow();
        let bytes = tokenizer.token_bytes(id)?;
        if self.skip_special && tokenizer.is_special(id) {
            return Ok(String::new());
        }
        match tokenizer.detokenizer() {
            Detokenizer::Pieces { strip } => {
                let first = std::mem::replace(&mut self.at_start, false);
                match strip {
                    Strip::LeadingBlank if first => {
                        self.pending
                            .extend_from_slice(bytes.strip_prefix(b" ").unwrap_or(&bytes));
                    }
                    Strip::BlanksOfFirst if first => self.pending.extend(bytes.iter().filter(|b| **b != b' ')),
                    _ => self.pending.extend_from_slice(&bytes),
                }
                Ok(take_text(&mut self.pending, false))
            }
            Detokenizer::Library => self.push_window(id),
        }
    }

    fn push_window(&mut self, id: u32) -> Result<String> {
        self.window.push(id);
        let text = self.tokenizer.borrow().library_decode(&self.window)?;
        if text.ends_with('\u{fffd}') && self.window.len() < WINDOW {
            return Ok(String::new());
        }
        let new = text.strip_prefix(self.shown.as_str()).unwrap_or_default().to_string();
        // The last token stays as the context of the next.
        self.window = vec![id];
        self.shown = self.tokenizer.borrow().library_decode(&self.window)?;
        Ok(new)
    }

    /// What is left at the end: bytes that make no character, as U+FFFD.
    pub fn finish(mut self) -> String {
        let mut text = take_text(&mut self.pending, true);
        if let Ok(window) = self.tokenizer.borrow().library_decode(&self.window)
            && let Some(new) = window.strip_prefix(self.shown.as_str())
        {
            text.push_str(new);
        }
        text
    }
}

/// Takes the whole characters off the front. Bytes that cannot begin one become U+FFFD; an incomplete character at
/// the end stays, unless this is the end of the text.
fn take_text(pending: &mut Vec<u8>, at_end: bool) -> String {
    let mut text = String::new();
    let mut kept = 0;
    let mut chunks = pending.utf8_chunks().peekable();
    while let Some(chunk) = chunks.next() {
        text.push_str(chunk.valid());
        if chunk.invalid().is_empty() {
            continue;
        }
        let incomplete =
            chunks.peek().is_none() && std::str::from_utf8(chunk.invalid()).is_err_and(|e| e.error_len().is_none());
        if incomplete && !at_end {
            kept = chunk.invalid().len();
        } else {
            text.push(char::REPLACEMENT_CHARACTER);
        }
    }
    pending.drain(..pending.len() - kept);
    text
}
