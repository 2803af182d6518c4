//! Tokenizers from `tokenizer.json`: the `tokenizers` library encodes; decoding is by pieces wherever the decoder
//! allows, so that a stream and a batch agree.

use super::error::{Result, TokenizerError, within_library};
use super::special::{SpecialTokens, unguard};
use super::strings::StringList;
use super::vocab::byte_token_value;
use super::{Detokenizer, Encoding, Engine, Parts, Strip, Tokenizer, bytemap, eog, hf_check};
use serde_json::Value;
use std::borrow::Cow;
use tokenizers::{AddedVocabulary, Model, OffsetType, PostProcessor, PreTokenizer};

/// The library's tokenizer and the variants of its added tokens.
#[derive(Debug)]
pub(crate) struct HfEngine {
    inner: tokenizers::Tokenizer,
    /// Added tokens with control tokens read as text.
    plain: AddedVocabulary,
    special: SpecialTokens,
    /// What each id adds to a text.
    pieces: StringList,
    control: Vec<bool>,
}

fn library(e: tokenizers::Error) -> TokenizerError {
    TokenizerError::Library(e.to_string())
}

impl HfEngine {
    pub(crate) fn n_tokens(&self) -> usize {
        self.pieces.len()
    }

    pub(crate) fn piece(&self, id: u32) -> Option<&[u8]> {
        self.pieces.get(id as usize)
    }

    pub(crate) fn is_control(&self, id: u32) -> bool {
        self.control.get(id as usize).copied().unwrap_or(false)
    }

    pub(crate) fn token_text(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    pub(crate) fn token_id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    pub(crate) fn guard<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.special.guard(text)
    }

    pub(crate) fn decode(&self, ids: &[u32]) -> Result<String> {
        within_library(|| self.inner.decode(ids, false))?.map_err(library)
    }

    pub(crate) fn encode(&self, text: &str, add_special: bool, how: Encoding, out: &mut Vec<u32>) -> Result<()> {
        out.extend(within_library(|| self.encode_unguarded(text, add_special, how))??);
        Ok(())
    }

    /// As [`encode`](Self::encode), with the library's own panics.
    pub(crate) fn encode_unguarded(&self, text: &str, add_special: bool, how: Encoding) -> Result<Vec<u32>> {
        let inner = &self.inner;
        let added = if how.parse_special {
            inner.get_added_vocabulary()
        } else {
            &self.plain
        };
        let mut split = added.extract_and_normalize(inner.get_normalizer(), text);
        if how.guarded {
            split
                .normalize(|part| {
                    let clean = unguard(part.get());
                    if clean.len() != part.get().len() {
                        *part = tokenizers::NormalizedString::from(clean.into_owned());
                    }
                    Ok(())
                })
                .map_err(library)?;
        }
        if let Some(pre) = inner.get_pre_tokenizer() {
            pre.pre_tokenize(&mut split).map_err(library)?;
        }
        split
            .tokenize(|part| inner.get_model().tokenize(part.get()))
            .map_err(library)?;
        let encoding = split.into_encoding(None, 0, OffsetType::None).map_err(library)?;
        let encoding = match inner.get_post_processor() {
            Some(post) => post.process(encoding, None, add_special).map_err(library)?,
            None => encoding,
        };
        Ok(encoding.get_ids().to_vec())
    }
}

/// Builds the tokenizer.
pub(crate) fn build(tokenizer_json: &[u8], tokenizer_config: Option<&[u8]>) -> Result<Tokenizer> {
    let bad = |e: String| TokenizerError::BadFile {
        file: "tokenizer.json",
        problem: e,
    };
    hf_check::references(tokenizer_json)?;
    let read = within_library(|| tokenizers::Tokenizer::from_bytes(tokenizer_json));
    let mut inner = read.map_err(|e| bad(e.to_string()))?.map_err(|e| bad(e.to_string()))?;
    inner.with_truncation(None).map_err(|e| bad(e.to_string()))?;
    inner.with_padding(None);
    let config: Value = match tokenizer_config {
        None => Value::Null,
        Some(bytes) => serde_json::from_slice(bytes).map_err(|e| TokenizerError::BadFile {
            file: "tokenizer_config.json",
            problem: e.to_string(),
        })?,
    };
    let decoder = match inner.get_decoder() {
        None => Value::Null,
        Some(decoder) => serde_json::to_value(decoder).map_err(|e| bad(e.to_string()))?,
    };
    let style = Style::of(&decoder);

    let vocab = inner.get_vocab(true);
    let added = inner.get_added_tokens_decoder();
    let n = vocab
        .values()
        .chain(added.keys())
        .max()
        .map_or(0, |id| *id as usize + 1);
    // Ids are dense but for a few holes; a far larger one is a claim the vocabulary does not bear out.
    if n > vocab.len().saturating_mul(4).saturating_add(1 << 16) {
        return Err(bad(format!(
            "the largest token id is {}, with {} tokens",
            n - 1,
            vocab.len()
        )));
    }
    if n == 0 {
        return Err(bad("the vocabulary is empty".into()));
    }
    let mut texts: Vec<Option<&str>> = vec![None; n];
    for (text, id) in &vocab {
        texts[*id as usize] = Some(text);
    }
    let mut pieces = StringList::new();
    let mut control = vec![false; n];
    for (id, text) in texts.iter().enumerate() {
        let is_added = added.get(&(id as u32));
        control[id] = is_added.is_some_and(|t| t.special);
        pieces.push(&text.map_or_else(Vec::new, |t| style.piece(t)));
    }
    let special: Vec<(u32, &[u8], bool)> = added
        .iter()
        .filter(|(_, t)| t.special)
        .map(|(id, t)| (*id, t.content.as_bytes(), true))
        .collect();
    let special = SpecialTokens::new(&special)?;
    let mut plain = inner.get_added_vocabulary().clone();
    plain.set_encode_special_tokens(true);

    let named = |key: &str| {
        let value = &config[key];
        value
            .as_str()
            .or_else(|| value["content"].as_str())
            .and_then(|t| inner.token_to_id(t))
    };
    let (bos, eos, pad) = (named("bos_token"), named("eos_token"), named("pad_token"));
    let mut ends = eog::from_texts(|t| inner.token_to_id(t).filter(|id| added.contains_key(id)));
    ends.extend(eos);
    let ends = eog::settle(ends, |t| inner.token_to_id(t));
    let engine = HfEngine {
        inner,
        plain,
        special,
        pieces,
        control,
    };
    hf_check::probe(&engine)?;
    Ok(Tokenizer::from_parts(Parts {
        detok: style.detokenizer(),
        engine: Engine::Hf(Box::new(engine)),
        prefix: Vec::new(),
        suffix: Vec::new(),
        bos,
        eos,
        pad,
        eog: ends,
        warnings: Vec::new(),
    }))
}

/// The decoders that work token by token, and the rest.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Style {
    ByteAlphabet,
    Meta { bytes: bool, strip: Strip },
    Library,
}

impl Style {
    fn of(decoder: &Value) -> Self {
        match decoder["type"].as_str() {
            Some("ByteLevel") => Self::ByteAlphabet,
            Some("Metaspace") if decoder["replacement"] == "\u{2581}" => {
                let strip = if decoder["prepend_scheme"] == "never" {
                    Strip::No
                } else {
                    Strip::BlanksOfFirst
                };
                Self::Meta { bytes: false, strip }
            }
            Some("Sequence") => Self::of_sequence(decoder["decoders"].as_array().map_or(&[], Vec::as_slice)),
            _ => Self::Library,
        }
    }

    fn of_sequence(steps: &[Value]) -> Self {
        let mut strip = Strip::No;
        let mut bytes = false;
        let mut replaces = false;
        for step in steps {
            match step["type"].as_str() {
                Some("ByteLevel") if steps.len() == 1 => return Self::ByteAlphabet,
                Some("Replace") if step["pattern"]["String"] == "\u{2581}" && step["content"] == " " => {
                    replaces = true;
                }
                Some("ByteFallback") => bytes = true,
                Some("Fuse") => {}
                Some("Strip") if step["content"] == " " && step["start"] == 1 && step["stop"] == 0 => {
                    strip = Strip::LeadingBlank;
                }
                _ => return Self::Library,
            }
        }
        if replaces {
            Self::Meta { bytes, strip }
        } else {
            Self::Library
        }
    }

    fn detokenizer(self) -> Detokenizer {
        match self {
            Self::ByteAlphabet => Detokenizer::Pieces { strip: Strip::No },
            Self::Meta { strip, .. } => Detokenizer::Pieces { strip },
            Self::Library => Detokenizer::Library,
        }
    }

    fn piece(self, text: &str) -> Vec<u8> {
        match self {
            Self::ByteAlphabet => {
                let mut bytes = Vec::with_capacity(text.len());
                match bytemap::decode(text, &mut bytes) {
                    true => bytes,
                    false => text.into(),
                }
            }
            Self::Meta { bytes: true, .. } if byte_token_value(text.as_bytes()).is_some() => {
                byte_token_value(text.as_bytes()).into_iter().collect()
            }
            Self::Meta { .. } => text.replace('\u{2581}', " ").into_bytes(),
            Self::Library => text.into(),
        }
    }
}
