//! Text to token ids and back, byte-exact with the model's own tokenizer.
//!
//! Sources are GGUF metadata ([`GgufVocab`]), `tokenizer.json` and SentencePiece `.model` files. What a vocabulary
//! claims is checked when it is loaded; after that, only the text or id given can be at fault.

mod bpe;
mod bytemap;
mod charsmap;
mod eog;
mod error;
mod gguf;
mod gguf_file;
mod hf;
mod hf_check;
mod merge;
mod pre;
mod sentencepiece;
mod special;
mod split;
mod spm;
mod stream;
mod strings;
mod unigram;
mod vocab;
mod wordpiece;

pub use error::{Result, TokenizerError};
pub use gguf::GgufVocab;
pub use stream::DecodeStream;
pub use strings::StringList;

use std::borrow::Cow;

/// Longest text that is encoded at once, in bytes: offsets are 32 bits and normalisers may triple a text.
const MAX_TEXT_BYTES: usize = 1 << 30;

/// How a text is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Encoding {
    /// Control tokens are recognised.
    pub(crate) parse_special: bool,
    /// The text carries the marks of [`Tokenizer::guard`].
    pub(crate) guarded: bool,
}

/// The algorithm behind a tokenizer.
#[derive(Debug)]
pub(crate) enum Engine {
    Gguf(Box<gguf::GgufEngine>),
    Hf(Box<hf::HfEngine>),
}

/// How the bytes of tokens become text.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Detokenizer {
    /// End to end.
    Pieces { strip: Strip },
    /// By the library's decoder, which looks at neighbours.
    Library,
}

/// Blanks that are left out at the start of a text.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Strip {
    No,
    /// One blank.
    LeadingBlank,
    /// Every blank of the first token.
    BlanksOfFirst,
}

/// What the sources hand over.
pub(crate) struct Parts {
    pub(crate) engine: Engine,
    pub(crate) detok: Detokenizer,
    pub(crate) prefix: Vec<u32>,
    pub(crate) suffix: Vec<u32>,
    pub(crate) bos: Option<u32>,
    pub(crate) eos: Option<u32>,
    pub(crate) pad: Option<u32>,
    pub(crate) eog: Vec<u32>,
    pub(crate) warnings: Vec<String>,
}

/// A tokenizer. Immutable, so one may serve many threads.
pub struct Tokenizer {
    parts: Parts,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("vocab_size", &self.vocab_size())
            .finish_non_exhaustive()
    }
}

impl Tokenizer {
    pub(crate) fn from_parts(parts: Parts) -> Self {
        Self { parts }
    }

    /// From GGUF metadata. `pre_override` replaces the file's `tokenizer.ggml.pre`.
    ///
    /// # Errors
    /// An unknown `model` or `pre` (which names those that are known), and metadata that contradicts itself.
    pub fn from_gguf(vocab: GgufVocab, pre_override: Option<&str>) -> Result<Self> {
        gguf::build(vocab, pre_override)
    }

    /// From the contents of `tokenizer.json` and, where there is one, `tokenizer_config.json`.
    ///
    /// # Errors
    /// When one of them is not what its name says.
    pub fn from_hf(tokenizer_json: &[u8], tokenizer_config: Option<&[u8]>) -> Result<Self> {
        hf::build(tokenizer_json, tokenizer_config)
    }

    /// From the contents of a SentencePiece `tokenizer.model`, BPE or Unigram.
    ///
    /// # Errors
    /// When it is not such a file, or of another algorithm.
    pub fn from_sentencepiece(model: &[u8]) -> Result<Self> {
        gguf::build(sentencepiece::read(model)?, None)
    }

    /// Ids of a text. `add_special` puts BOS, EOS and the like around it as the model asks; `parse_special` reads
    /// control tokens written in the text as such (user-defined tokens always are).
    ///
    /// # Errors
    /// A character outside a vocabulary without byte or unknown tokens, and texts over 1 GiB.
    pub fn encode(&self, text: &str, add_special: bool, parse_special: bool) -> Result<Vec<u32>> {
        self.encode_with(
            text,
            add_special,
            Encoding {
                parse_special,
                guarded: false,
            },
        )
    }

    /// As [`encode`](Self::encode) with special tokens around, but a BOS that the text itself begins with, or a final
    /// EOS, is not doubled: what a prompt needs, whether or not its template wrote them.
    ///
    /// # Errors
    /// Those of [`encode`](Self::encode).
    pub fn encode_prompt(&self, text: &str, parse_special: bool) -> Result<Vec<u32>> {
        self.prompt(
            text,
            Encoding {
                parse_special,
                guarded: false,
            },
        )
    }

    /// As [`encode_prompt`](Self::encode_prompt) for a text that [`guard`](Self::guard) has been over in parts: control
    /// tokens in the guarded parts are plain text.
    ///
    /// # Errors
    /// Those of [`encode`](Self::encode).
    pub fn encode_guarded(&self, text: &str) -> Result<Vec<u32>> {
        self.prompt(
            text,
            Encoding {
                parse_special: true,
                guarded: true,
            },
        )
    }

    fn prompt(&self, text: &str, how: Encoding) -> Result<Vec<u32>> {
        let mut ids = self.encode_with(text, true, how)?;
        if let Some(bos) = self.parts.bos
            && ids.len() > 1
            && ids[0] == bos
            && ids[1] == bos
        {
            ids.remove(0);
        }
        // A template that ends in EOS closes a turn; the tokenizer's own would close it again.
        let n = ids.len();
        if let Some(eos) = self.parts.eos
            && n > 1
            && ids[n - 1] == eos
            && ids[n - 2] == eos
        {
            ids.pop();
        }
        Ok(ids)
    }

    fn encode_with(&self, text: &str, add_special: bool, how: Encoding) -> Result<Vec<u32>> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(TokenizerError::TextTooLong {
                len_bytes: text.len(),
                limit_bytes: MAX_TEXT_BYTES,
            });
        }
        let mut ids = Vec::new();
        match &self.parts.engine {
            Engine::Gguf(engine) => {
                if add_special {
                    ids.extend_from_slice(&self.parts.prefix);
                }
                engine.encode(text, how, &mut ids)?;
                if add_special {
                    ids.extend_from_slice(&self.parts.suffix);
                }
            }
            Engine::Hf(engine) => engine.encode(text, add_special, how, &mut ids)?,
        }
        Ok(ids)
    }

    /// Marks whatever reads as a control token in a text that is not trusted, so that
    /// [`encode_guarded`](Self::encode_guarded) takes it for plain text. The marks survive a chat template.
    pub fn guard<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match &self.parts.engine {
            Engine::Gguf(engine) => engine.guard(text),
            Engine::Hf(engine) => engine.guard(text),
        }
    }

    /// [`guard`](Self::guard) over every string of a JSON value, keys excepted.
    pub fn guard_json(&self, value: &serde_json::Value) -> serde_json::Value {
        use serde_json::Value;
        match value {
            Value::String(s) => Value::String(self.guard(s).into_owned()),
            Value::Array(items) => Value::Array(items.iter().map(|v| self.guard_json(v)).collect()),
            Value::Object(map) => Value::Object(map.iter().map(|(k, v)| (k.clone(), self.guard_json(v))).collect()),
            other => other.clone(),
        }
    }

    /// Removes the marks of [`guard`](Self::guard), to show a rendered prompt.
    pub fn unguard(text: &str) -> Cow<'_, str> {
        special::unguard(text)
    }

    /// The text of ids; control tokens are left out when `skip_special`. Bytes that are no UTF-8 become U+FFFD.
    ///
    /// # Errors
    /// An id outside the vocabulary.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String> {
        if self.parts.detok == Detokenizer::Library {
            ids.iter().try_for_each(|id| self.token_bytes(*id).map(drop))?;
            let ids: Vec<u32> = ids
                .iter()
                .copied()
                .filter(|id| !(skip_special && self.is_special(*id)))
                .collect();
            return self.library_decode(&ids);
        }
        let mut stream = DecodeStream::new(self, skip_special);
        let mut text = String::new();
        for id in ids {
            text.push_str(&stream.push(*id)?);
        }
        text.push_str(&stream.finish());
        Ok(text)
    }

    /// A decoder for ids that come one by one.
    pub fn decode_stream(&self, skip_special: bool) -> DecodeStream<&Self> {
        DecodeStream::new(self, skip_special)
    }

    /// The bytes that a token adds to a text, which may be a part of a character.
    ///
    /// # Errors
    /// An id outside the vocabulary.
    pub fn token_bytes(&self, id: u32) -> Result<Cow<'_, [u8]>> {
        let piece = match &self.parts.engine {
            Engine::Gguf(engine) => engine.piece(id),
            Engine::Hf(engine) => engine.piece(id).map(Cow::Borrowed),
        };
        piece.ok_or_else(|| TokenizerError::IdOutOfRange {
            id: id.into(),
            n_tokens: self.vocab_size(),
        })
    }

    /// Number of ids: every id below it can be decoded.
    pub fn vocab_size(&self) -> usize {
        match &self.parts.engine {
            Engine::Gguf(engine) => engine.n_tokens(),
            Engine::Hf(engine) => engine.n_tokens(),
        }
    }

    /// The token's text as the vocabulary has it (`Ġthe`, `▁the`, `<0x0A>`).
    pub fn id_to_token(&self, id: u32) -> Option<Cow<'_, str>> {
        match &self.parts.engine {
            Engine::Gguf(engine) => engine.token_text(id).map(String::from_utf8_lossy),
            Engine::Hf(engine) => engine.token_text(id).map(Cow::Owned),
        }
    }

    /// The id of a token given as the vocabulary has it.
    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        match &self.parts.engine {
            Engine::Gguf(engine) => engine.token_id(token.as_bytes()),
            Engine::Hf(engine) => engine.token_id(token),
        }
    }

    /// The token that begins a text.
    pub fn bos(&self) -> Option<u32> {
        self.parts.bos
    }

    /// The token that ends a text.
    pub fn eos(&self) -> Option<u32> {
        self.parts.eos
    }

    /// The token that fills up a batch.
    pub fn pad(&self) -> Option<u32> {
        self.parts.pad
    }

    /// True when generation ends at this token: EOS, end of turn and their like.
    pub fn is_eog(&self, id: u32) -> bool {
        self.parts.eog.binary_search(&id).is_ok()
    }

    /// The ids for which [`is_eog`](Self::is_eog) holds, in order.
    pub fn eog_ids(&self) -> &[u32] {
        &self.parts.eog
    }

    /// Also ends generation at these ids; those outside the vocabulary are never generated and are left out.
    pub fn add_eog(&mut self, ids: &[u32]) {
        let n = self.vocab_size();
        let eog = &mut self.parts.eog;
        eog.extend(ids.iter().filter(|id| (**id as usize) < n));
        eog.sort_unstable();
        eog.dedup();
    }

    /// True for control tokens, which `skip_special` leaves out.
    pub fn is_special(&self, id: u32) -> bool {
        match &self.parts.engine {
            Engine::Gguf(engine) => engine.is_control(id),
            Engine::Hf(engine) => engine.is_control(id),
        }
    }

    /// What is doubtful about the vocabulary though it can be used.
    pub fn warnings(&self) -> &[String] {
        &self.parts.warnings
    }

    pub(crate) fn warn(&mut self, warning: String) {
        self.parts.warnings.push(warning);
    }

    pub(crate) fn detokenizer(&self) -> Detokenizer {
        self.parts.detok
    }

    pub(crate) fn library_decode(&self, ids: &[u32]) -> Result<String> {
        match &self.parts.engine {
            Engine::Hf(engine) => engine.decode(ids),
            Engine::Gguf(_) => Ok(String::new()),
        }
    }
}
