//! From an open GGUF file to the tokenizer's own form of its metadata.

use super::error::{Result, TokenizerError};
use super::strings::StringList;
use super::{GgufVocab, Tokenizer};
use crate::gguf::{GgufError, GgufFile};

/// Most tokens, merges or bytes of a table: four times those of the largest vocabularies.
const MAX_ENTRIES: usize = 1 << 22;
/// Prefix of every key here.
const PREFIX: &str = "tokenizer.ggml.";

struct Reader<'a>(&'a GgufFile);

impl Reader<'_> {
    fn field<T>(&self, key: &str, value: std::result::Result<T, GgufError>) -> Result<T> {
        value.map_err(|e| match e {
            GgufError::Key { key, reason, .. } => TokenizerError::vocab(key, reason),
            other => TokenizerError::vocab(format!("{PREFIX}{key}"), other.to_string()),
        })
    }

    fn text(&self, key: &str) -> Result<Option<String>> {
        let value = self.field(key, self.0.opt_str(&format!("{PREFIX}{key}")))?;
        Ok(value.map(str::to_string))
    }

    fn id(&self, key: &str) -> Result<Option<u32>> {
        let key = format!("{key}_token_id");
        // Converters write -1 for "none"; read as unsigned that is out of every range.
        match self.0.get(&format!("{PREFIX}{key}")).and_then(|v| v.as_f64()) {
            Some(v) if v < 0.0 => Ok(None),
            Some(v) if v == f64::from(u32::MAX) => Ok(None),
            _ => self.field(&key, self.0.opt_u32(&format!("{PREFIX}{key}"))),
        }
    }

    /// `KEY_token_ids`: one id or an array of them.
    fn ids(&self, key: &str) -> Result<Vec<u32>> {
        let key = format!("{key}_token_ids");
        if let Some(n) = self.0.get(&format!("{PREFIX}{key}")).and_then(|v| v.as_u64()) {
            return Ok(u32::try_from(n).ok().into_iter().collect());
        }
        let id = |x: f64| {
            let fits = x.fract() == 0.0 && (0.0..f64::from(u32::MAX)).contains(&x);
            fits.then_some(x as u32)
                .ok_or_else(|| TokenizerError::vocab(format!("{PREFIX}{key}"), format!("{x} is no token id")))
        };
        self.numbers(&key, id)?.into_iter().collect()
    }

    fn flag(&self, key: &str) -> Result<Option<bool>> {
        self.field(key, self.0.opt_bool(&format!("{PREFIX}{key}")))
    }

    fn texts(&self, key: &str) -> Result<StringList> {
        let Some(array) = self.field(key, self.0.opt_array(&format!("{PREFIX}{key}")))? else {
            return Ok(StringList::new());
        };
        let not_texts = || TokenizerError::vocab(format!("{PREFIX}{key}"), "is not an array of strings");
        self.check_len(key, array.len())?;
        // Each text has its length before it, of 8 bytes.
        let n_bytes = array.size_bytes().saturating_sub(array.len().saturating_mul(8));
        let mut list = StringList::with_capacity(array.len(), n_bytes);
        array.texts().ok_or_else(not_texts)?.for_each(|text| list.push(text));
        Ok(list)
    }

    fn numbers<T>(&self, key: &str, to: impl Fn(f64) -> T) -> Result<Vec<T>> {
        let Some(array) = self.field(key, self.0.opt_array(&format!("{PREFIX}{key}")))? else {
            return Ok(Vec::new());
        };
        let not_numbers = || TokenizerError::vocab(format!("{PREFIX}{key}"), "is not an array of numbers");
        self.check_len(key, array.len())?;
        let mut list = Vec::with_capacity(array.len());
        list.extend(array.numbers().ok_or_else(not_numbers)?.map(to));
        Ok(list)
    }

    fn check_len(&self, key: &str, len: usize) -> Result<()> {
        if len <= MAX_ENTRIES {
            return Ok(());
        }
        let problem = format!("has {len} entries; no vocabulary has more than {MAX_ENTRIES}");
        Err(TokenizerError::vocab(format!("{PREFIX}{key}"), problem))
    }
}

impl GgufVocab {
    /// Reads the `tokenizer.ggml.*` keys of a file.
    ///
    /// # Errors
    /// A key of the wrong type, or no `tokenizer.ggml.model`.
    pub fn from_file(file: &GgufFile) -> Result<Self> {
        let r = Reader(file);
        let model = r.text("model")?.ok_or_else(|| {
            TokenizerError::vocab(
                "tokenizer.ggml.model",
                "is missing; the file carries no tokenizer, give one beside it",
            )
        })?;
        let name = file.opt_str("general.name").ok().flatten().map(str::to_string);
        Ok(Self {
            model,
            pre: r.text("pre")?,
            tokens: r.texts("tokens")?,
            scores: r.numbers("scores", |s| s as f32)?,
            token_types: r.numbers("token_type", |t| t as i32)?,
            merges: r.texts("merges")?,
            bos: r.id("bos")?,
            eos: r.id("eos")?,
            eos_ids: r.ids("eos")?,
            eot: r.id("eot")?,
            eom: r.id("eom")?,
            unk: r.id("unknown")?,
            pad: r.id("padding")?,
            sep: r.id("seperator")?,
            cls: r.id("cls")?,
            mask: r.id("mask")?,
            add_bos: r.flag("add_bos_token")?,
            add_eos: r.flag("add_eos_token")?,
            add_sep: r.flag("add_sep_token")?,
            add_space_prefix: r.flag("add_space_prefix")?,
            remove_extra_whitespaces: r.flag("remove_extra_whitespaces")?,
            precompiled_charsmap: r.numbers("precompiled_charsmap", |b| (b as i64 & 0xff) as u8)?,
            lowercase: r.flag("normalizer.lowercase")?,
            strip_accents: r.flag("normalizer.strip_accents")?,
            model_name: name,
            prefix_once: false,
        })
    }
}

impl Tokenizer {
    /// The tokenizer of a GGUF file. `pre_override` replaces the file's `tokenizer.ggml.pre`.
    ///
    /// # Errors
    /// Those of [`GgufVocab::from_file`] and [`Tokenizer::from_gguf`].
    pub fn from_gguf_file(file: &GgufFile, pre_override: Option<&str>) -> Result<Self> {
        Self::from_gguf(GgufVocab::from_file(file)?, pre_override)
    }
}
