//! The token table that the GGUF algorithms share: texts, kinds and byte tokens, checked once at load.

use super::error::{Result, TokenizerError};
use super::strings::{StringList, StringTable};

/// What a token is for (`tokenizer.ggml.token_type`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TokenKind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

impl TokenKind {
    fn from_code(code: i32) -> Option<Self> {
        Some(match code {
            // 0 is "undefined", which converters write for plain tokens of some vocabularies.
            0 | 1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => return None,
        })
    }
}

/// Texts and kinds of all tokens.
#[derive(Debug)]
pub(crate) struct Vocab {
    pub(crate) table: StringTable,
    pub(crate) kinds: Vec<TokenKind>,
    /// The `<0xXX>` token of each byte.
    pub(crate) byte_ids: Vec<Option<u32>>,
    /// Length of the longest token in bytes.
    pub(crate) max_len: usize,
}

impl Vocab {
    /// Checks and indexes the tokens. Empty texts become `[EMPTY_id]`.
    pub(crate) fn new(tokens: StringList, types: &[i32]) -> Result<Self> {
        let n = tokens.len();
        if n == 0 {
            return Err(TokenizerError::vocab(
                "tokenizer.ggml.tokens",
                "is empty; the file has no vocabulary",
            ));
        }
        if n > i32::MAX as usize {
            return Err(TokenizerError::vocab(
                "tokenizer.ggml.tokens",
                format!("has {n} entries, more than 2^31 - 1"),
            ));
        }
        let kinds = if types.is_empty() {
            vec![TokenKind::Normal; n]
        } else if types.len() != n {
            let problem = format!("has {} entries for {n} tokens", types.len());
            return Err(TokenizerError::vocab("tokenizer.ggml.token_type", problem));
        } else {
            let kind = |(i, code): (usize, &i32)| {
                TokenKind::from_code(*code).ok_or_else(|| {
                    TokenizerError::vocab(
                        format!("tokenizer.ggml.token_type[{i}]"),
                        format!("is {code}, expected 0..=6"),
                    )
                })
            };
            types.iter().enumerate().map(kind).collect::<Result<_>>()?
        };
        let tokens = if tokens.iter().any(<[u8]>::is_empty) {
            let named = |(i, t): (usize, &[u8])| {
                if t.is_empty() {
                    format!("[EMPTY_{i}]").into_bytes()
                } else {
                    t.to_vec()
                }
            };
            tokens.iter().enumerate().map(named).collect()
        } else {
            tokens
        };
        let max_len = tokens.iter().map(<[u8]>::len).max().unwrap_or(0);
        let table = StringTable::new(tokens).map_err(|(a, b)| {
            TokenizerError::vocab(
                format!("tokenizer.ggml.tokens[{b}]"),
                format!("is the same text as tokens[{a}]"),
            )
        })?;
        let byte_ids = (0..=255u8)
            .map(|b| table.id(format!("<0x{b:02X}>").as_bytes()))
            .collect();
        Ok(Self {
            table,
            kinds,
            byte_ids,
            max_len,
        })
    }

    /// Number of tokens.
    pub(crate) fn len(&self) -> usize {
        self.kinds.len()
    }

    /// The kind of a token in range, `Normal` beyond.
    pub(crate) fn kind(&self, id: u32) -> TokenKind {
        self.kinds.get(id as usize).copied().unwrap_or(TokenKind::Normal)
    }

    /// The token of a text, unless it is one that plain text must not produce.
    pub(crate) fn plain_id(&self, text: &[u8]) -> Option<u32> {
        let id = self.table.id(text)?;
        (!matches!(self.kind(id), TokenKind::Control | TokenKind::Unknown | TokenKind::Byte)).then_some(id)
    }

    /// Emits the byte tokens of a text that has no token, else the unknown token once.
    pub(crate) fn push_fallback(&self, text: &str, unk: Option<u32>, out: &mut Vec<u32>) -> Result<()> {
        if text.bytes().all(|b| self.byte_ids[b as usize].is_some()) {
            out.extend(text.bytes().filter_map(|b| self.byte_ids[b as usize]));
            return Ok(());
        }
        match (unk, text.chars().next()) {
            (Some(unk), _) => out.push(unk),
            (None, Some(ch)) => return Err(TokenizerError::NotInVocab { ch }),
            (None, None) => {}
        }
        Ok(())
    }
}

/// The value of a `<0xXX>` text.
pub(crate) fn byte_token_value(text: &[u8]) -> Option<u8> {
    let hex = std::str::from_utf8(text.strip_prefix(b"<0x")?.strip_suffix(b">")?).ok()?;
    if hex.len() == 2 {
        u8::from_str_radix(hex, 16).ok()
    } else {
        None
    }
}
