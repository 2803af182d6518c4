//! Tokenizers from GGUF metadata: which algorithm, which special tokens, what goes around a text.

use super::bpe::Bpe;
use super::charsmap::CharsMap;
use super::error::{Result, TokenizerError};
use super::special::{Part, SpecialTokens, unguard};
use super::spm::Spm;
use super::strings::StringList;
use super::unigram::{SpaceOptions, Unigram, normalize};
use super::vocab::{TokenKind, Vocab, byte_token_value};
use super::wordpiece::WordPiece;
use super::{Detokenizer, Encoding, Engine, Parts, Strip, Tokenizer, bytemap, eog, pre};
use std::borrow::Cow;

const MODELS: &str = "llama, gpt2, bert, t5, gemma4";

/// The `tokenizer.ggml.*` metadata of a GGUF file, field by field; `None` and empty mean "not in the file".
#[derive(Clone, Debug, Default)]
pub struct GgufVocab {
    /// `model`: `llama`, `gpt2`, `bert`, `t5` or `gemma4`.
    pub model: String,
    /// `pre`: the text splitter of a `gpt2` model.
    pub pre: Option<String>,
    /// `tokens`: text of each token.
    pub tokens: StringList,
    /// `scores`: one a token, for `llama` and `t5`.
    pub scores: Vec<f32>,
    /// `token_type`: one a token, or empty.
    pub token_types: Vec<i32>,
    /// `merges`: `left right`, best first, for `gpt2`.
    pub merges: StringList,
    /// `bos_token_id`.
    pub bos: Option<u32>,
    /// `eos_token_id`.
    pub eos: Option<u32>,
    /// `eos_token_ids`: further ends, where a file lists several.
    pub eos_ids: Vec<u32>,
    /// `eot_token_id`.
    pub eot: Option<u32>,
    /// `eom_token_id`.
    pub eom: Option<u32>,
    /// `unknown_token_id`.
    pub unk: Option<u32>,
    /// `padding_token_id`.
    pub pad: Option<u32>,
    /// `seperator_token_id` (so spelled in the format).
    pub sep: Option<u32>,
    /// `cls_token_id`.
    pub cls: Option<u32>,
    /// `mask_token_id`.
    pub mask: Option<u32>,
    /// `add_bos_token`.
    pub add_bos: Option<bool>,
    /// `add_eos_token`.
    pub add_eos: Option<bool>,
    /// `add_sep_token`.
    pub add_sep: Option<bool>,
    /// `add_space_prefix`.
    pub add_space_prefix: Option<bool>,
    /// `remove_extra_whitespaces`.
    pub remove_extra_whitespaces: Option<bool>,
    /// `precompiled_charsmap`.
    pub precompiled_charsmap: Vec<u8>,
    /// `normalizer.lowercase`, for `bert`.
    pub lowercase: Option<bool>,
    /// `normalizer.strip_accents`, for `bert`.
    pub strip_accents: Option<bool>,
    /// `general.name`: Phi-3 tokenizers drop blanks behind special tokens, which no other field tells.
    pub model_name: Option<String>,
    /// The blank before the first word is not repeated behind user-defined tokens (SentencePiece's own rule).
    pub prefix_once: bool,
}

#[derive(Debug)]
enum Algorithm {
    Bpe(Bpe),
    Spm {
        spm: Spm,
        options: SpaceOptions,
        charsmap: Option<CharsMap>,
    },
    Unigram(Unigram),
    WordPiece(WordPiece),
}

/// Vocabulary and algorithm of a GGUF tokenizer.
#[derive(Debug)]
pub(crate) struct GgufEngine {
    vocab: Vocab,
    algorithm: Algorithm,
    special: SpecialTokens,
    /// Texts of tokens are over the byte alphabet of GPT-2.
    byte_alphabet: bool,
    /// Tokens that swallow the blanks behind them.
    rstrip: Vec<u32>,
    prefix_once: bool,
}

impl GgufEngine {
    pub(crate) fn token_text(&self, id: u32) -> Option<&[u8]> {
        self.vocab.table.get(id)
    }

    /// Number of tokens.
    pub(crate) fn n_tokens(&self) -> usize {
        self.vocab.len()
    }

    /// The bytes that a token adds to a text: made when they are asked for, since a list of them would take as much
    /// memory as the vocabulary.
    pub(crate) fn piece(&self, id: u32) -> Option<Cow<'_, [u8]>> {
        let text = self.vocab.table.get(id)?;
        Some(piece(text, self.vocab.kind(id), self.byte_alphabet))
    }

    pub(crate) fn is_control(&self, id: u32) -> bool {
        matches!(self.vocab.kind(id), TokenKind::Control | TokenKind::Unknown)
    }

    pub(crate) fn token_id(&self, text: &[u8]) -> Option<u32> {
        self.vocab.table.id(text)
    }

    pub(crate) fn guard<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.special.guard(text)
    }

    /// Encodes special tokens and the text between them.
    pub(crate) fn encode(&self, text: &str, how: Encoding, out: &mut Vec<u32>) -> Result<()> {
        let mut after_special = true;
        let mut strip = false;
        for part in self.special.partition(text, how.parse_special) {
            match part {
                Part::Token(id) => {
                    let in_text = self.prefix_once && self.vocab.kind(id) == TokenKind::UserDefined;
                    if in_text && after_special {
                        // The blank before the first word goes before a user-defined piece as well.
                        out.extend(self.blank_prefix());
                    }
                    out.push(id);
                    after_special = !in_text;
                    strip = self.rstrip.contains(&id);
                }
                Part::Text(text) => {
                    let unguarded = if how.guarded { unguard(text) } else { text.into() };
                    let text = if strip { unguarded.trim_start() } else { &unguarded };
                    strip = false;
                    if text.is_empty() {
                        continue;
                    }
                    self.encode_text(text, after_special, out)?;
                    after_special = false;
                }
            }
        }
        Ok(())
    }

    /// The token of the blank that is put before a text.
    fn blank_prefix(&self) -> Option<u32> {
        match &self.algorithm {
            Algorithm::Spm { options, .. } if options.add_prefix => self.vocab.plain_id("\u{2581}".as_bytes()),
            _ => None,
        }
    }

    fn encode_text(&self, text: &str, after_special: bool, out: &mut Vec<u32>) -> Result<()> {
        match &self.algorithm {
            Algorithm::Bpe(bpe) => bpe.encode(&self.vocab, text, out),
            Algorithm::Spm { spm, options, charsmap } => {
                let options = SpaceOptions {
                    add_prefix: options.add_prefix && after_special,
                    ..*options
                };
                spm.encode(&self.vocab, &normalize(text, charsmap.as_ref(), options), out)
            }
            Algorithm::Unigram(unigram) => unigram.encode(&self.vocab, text, out),
            Algorithm::WordPiece(wordpiece) => wordpiece.encode(&self.vocab, text, out),
        }
    }
}

/// Builds the tokenizer; `pre_override` replaces the file's `pre`.
pub(crate) fn build(v: GgufVocab, pre_override: Option<&str>) -> Result<Tokenizer> {
    let mut vocab = Vocab::new(v.tokens, &v.token_types)?;
    let n = vocab.len();
    let mut warnings = Vec::new();
    let checked = |field: &str, id: Option<u32>| match id {
        Some(id) if id as usize >= n => Err(TokenizerError::vocab(
            format!("tokenizer.ggml.{field}"),
            format!("is {id}, out of range 0..{n}"),
        )),
        id => Ok(id),
    };
    // Files leave out the ids that are the same in every model of the kind.
    let usual = |id: u32| Some(id).filter(|id| (*id as usize) < n);
    let (d_bos, d_eos, d_unk, d_sep) = match v.model.as_str() {
        "llama" => (usual(1), usual(2), usual(0), None),
        "bert" => (usual(101), None, usual(100), usual(102)),
        "t5" => (None, usual(1), usual(2), None),
        _ => (None, None, None, None),
    };
    let mut bos = checked("bos_token_id", v.bos)?;
    if v.model == "bert" {
        bos = checked("cls_token_id", v.cls)?.or(bos);
    }
    bos = bos.or(d_bos);
    let eos = checked("eos_token_id", v.eos)?.or(d_eos);
    let unk = checked("unknown_token_id", v.unk)?.or(d_unk);
    let sep = checked("seperator_token_id", v.sep)?.or(d_sep);
    let pad = checked("padding_token_id", v.pad)?;
    checked("mask_token_id", v.mask)?;
    let eot = checked("eot_token_id", v.eot)?;
    let eom = checked("eom_token_id", v.eom)?;
    if matches!(v.model.as_str(), "llama" | "t5") && v.scores.len() != n {
        let problem = format!("has {} entries for {n} tokens", v.scores.len());
        return Err(TokenizerError::vocab("tokenizer.ggml.scores", problem));
    }

    let add_prefix = |default: bool| v.add_space_prefix.unwrap_or(default);
    let merge = v.remove_extra_whitespaces.unwrap_or(false);
    let mut detok = Detokenizer::Pieces { strip: Strip::No };
    let mut byte_alphabet = false;
    // Defaults for BOS, EOS and SEP around a text.
    let mut around = (false, false, false);
    let algorithm = match v.model.as_str() {
        "llama" => {
            let options = SpaceOptions {
                add_prefix: add_prefix(true),
                merge,
            };
            if options.add_prefix {
                detok = Detokenizer::Pieces {
                    strip: Strip::LeadingBlank,
                };
            }
            around.0 = true;
            let charsmap = CharsMap::parse(&v.precompiled_charsmap)?;
            Algorithm::Spm {
                spm: Spm::new(&v.scores, unk),
                options,
                charsmap,
            }
        }
        "t5" => {
            let options = SpaceOptions {
                add_prefix: add_prefix(false),
                merge,
            };
            if options.add_prefix {
                detok = Detokenizer::Pieces {
                    strip: Strip::LeadingBlank,
                };
            }
            around.1 = true;
            let charsmap = CharsMap::parse(&v.precompiled_charsmap)?;
            Algorithm::Unigram(Unigram::new(&vocab, &v.scores, unk, charsmap, options))
        }
        "bert" => {
            around = (true, false, true);
            detok = Detokenizer::Pieces {
                strip: Strip::LeadingBlank,
            };
            let lowercase = v.lowercase.unwrap_or(true);
            let wordpiece = WordPiece::new(&vocab, unk, lowercase, v.strip_accents.unwrap_or(lowercase));
            Algorithm::WordPiece(wordpiece)
        }
        "gpt2" | "gemma4" => {
            let named = if v.model == "gemma4" {
                Some("gemma4")
            } else {
                v.pre.as_deref()
            };
            let name = pre_override.or(named).unwrap_or_else(|| {
                warnings.push(
                    "the file has no tokenizer.ggml.pre; text is split as `default`, which may not be the model's way"
                        .into(),
                );
                "default"
            });
            let pre = pre::find(name).ok_or_else(|| TokenizerError::UnknownPre {
                value: name.into(),
                supported: pre::supported(),
            })?;
            around = (pre.add_bos, false, pre.add_sep);
            if pre.no_bos && v.bos.is_none() {
                bos = None;
            }
            byte_alphabet = !pre.raw_utf8;
            // Freed here: they take as much as the tokens.
            let merges = v.merges;
            if merges.is_empty() {
                need_no_merges(&vocab)?;
            }
            Algorithm::Bpe(Bpe::new(&vocab, &merges, pre, unk)?)
        }
        other => {
            return Err(TokenizerError::UnknownModel {
                value: other.into(),
                supported: MODELS,
            });
        }
    };

    for id in &v.eos_ids {
        checked("eos_token_ids", Some(*id))?;
    }
    let named = [eos, eot, eom].into_iter().flatten().chain(v.eos_ids);
    let eog = eog::find(&mut vocab, named);
    let special: Vec<(u32, &[u8], bool)> = (0..n as u32)
        .filter_map(|id| {
            let control = match vocab.kind(id) {
                TokenKind::Control | TokenKind::Unknown => true,
                TokenKind::UserDefined => false,
                _ => return None,
            };
            Some((id, vocab.table.get(id)?, control))
        })
        .collect();
    let phi3 = v
        .model_name
        .as_deref()
        .map(str::to_lowercase)
        .is_some_and(|n| n.contains("phi-3") || n.contains("phi3"));
    let keeps_blanks = |t: &[u8]| matches!(t, b"<unk>" | b"<s>" | b"<|endoftext|>");
    let rstrip = if phi3 {
        special.iter().filter(|t| !keeps_blanks(t.1)).map(|t| t.0).collect()
    } else {
        Vec::new()
    };
    let special_tokens = SpecialTokens::new(&special)?;

    let (add_bos, add_eos, add_sep) = (
        v.add_bos.unwrap_or(around.0),
        v.add_eos.unwrap_or(around.1),
        v.add_sep.unwrap_or(around.2),
    );
    for (wanted, id, field, id_field) in [
        (add_bos, bos, "add_bos_token", "bos_token_id"),
        (add_eos, eos, "add_eos_token", "eos_token_id"),
    ] {
        if wanted && id.is_none() {
            warnings.push(format!(
                "tokenizer.ggml.{field} asks for a token, but there is no tokenizer.ggml.{id_field}"
            ));
        }
    }
    let engine = GgufEngine {
        vocab,
        algorithm,
        special: special_tokens,
        byte_alphabet,
        rstrip,
        prefix_once: v.prefix_once,
    };
    Ok(Tokenizer::from_parts(Parts {
        engine: Engine::Gguf(Box::new(engine)),
        detok,
        prefix: bos.filter(|_| add_bos).into_iter().collect(),
        suffix: eos
            .filter(|_| add_eos)
            .into_iter()
            .chain(sep.filter(|_| add_sep))
            .collect(),
        bos,
        eos,
        pad,
        eog,
        warnings,
    }))
}

/// Refuses a vocabulary without merges that has tokens which only merges make: every text would come out in other ids than
/// the model was trained on.
fn need_no_merges(vocab: &Vocab) -> Result<()> {
    let longer = |text: &[u8]| std::str::from_utf8(text).is_ok_and(|t| t.chars().nth(1).is_some());
    let mut tokens = vocab.table.iter().zip(&vocab.kinds);
    match tokens.find(|(text, kind)| **kind == TokenKind::Normal && longer(text)) {
        None => Ok(()),
        Some((text, _)) => Err(TokenizerError::vocab(
            "tokenizer.ggml.merges",
            format!(
                "is missing or empty, but only merges make tokens such as `{}`: the file was converted wrongly, convert \
                 the model again",
                String::from_utf8_lossy(text)
            ),
        )),
    }
}

/// The bytes that a token adds to a text.
fn piece(text: &[u8], kind: TokenKind, byte_alphabet: bool) -> Cow<'_, [u8]> {
    match kind {
        TokenKind::Byte => byte_token_value(text).map_or(text.into(), |b| vec![b].into()),
        TokenKind::Control | TokenKind::Unknown | TokenKind::UserDefined => text.into(),
        _ => match std::str::from_utf8(text) {
            Err(_) => text.into(),
            Ok(plain) if byte_alphabet => {
                let mut bytes = Vec::with_capacity(text.len());
                match bytemap::decode(plain, &mut bytes) {
                    true => bytes.into(),
                    false => text.into(),
                }
            }
            Ok(plain) if plain.contains('\u{2581}') => plain.replace('\u{2581}', " ").into_bytes().into(),
            Ok(_) => text.into(),
        },
    }
}
