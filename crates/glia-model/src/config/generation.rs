//! What a model says of its own generation: the tokens that end it, and how tokens are chosen unless asked otherwise.
//!
//! From a folder's `generation_config.json` and `config.json`, or a GGUF file's `general.sampling.*` keys.

use std::path::Path;

use serde_json::{Map, Value};

use super::{ConfigError, object_if_there};
use crate::gguf::{GgufError, GgufFile, Value as GgufValue};
use crate::sample::SampleParams;

/// More ends than any model has.
const MAX_ENDS: usize = 1024;

/// A model's own defaults of generation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationConfig {
    /// Ids that end a generation, beside those that the tokenizer knows. Not checked against the vocabulary.
    pub eos: Vec<u32>,
    /// The id that begins a text.
    pub bos: Option<u32>,
    /// How to choose tokens: greedy unless the model asks for sampling.
    pub sample: SampleParams,
}

/// A configuration object and its file, for messages.
struct Source<'a> {
    file: String,
    map: &'a Map<String, Value>,
}

impl Source<'_> {
    fn error(&self, key: &str, reason: String) -> ConfigError {
        ConfigError {
            file: self.file.clone(),
            reason: format!("{key} {reason}"),
        }
    }

    fn get(&self, key: &str) -> Option<&Value> {
        self.map.get(key).filter(|v| !v.is_null())
    }

    /// One id; a negative one is how some files say that there is none.
    fn id(&self, key: &str, value: &Value) -> Result<Option<u32>, ConfigError> {
        match value.as_i64() {
            Some(n) if n < 0 => Ok(None),
            Some(n) if n < i64::from(u32::MAX) => Ok(Some(n as u32)),
            _ => Err(self.error(key, format!("must be a token id, not {value}"))),
        }
    }

    fn ids(&self, key: &str) -> Result<Vec<u32>, ConfigError> {
        let mut ids = Vec::new();
        match self.get(key) {
            None => {}
            Some(Value::Array(list)) if list.len() > MAX_ENDS => {
                return Err(self.error(key, format!("has {} entries, more than {MAX_ENDS}", list.len())));
            }
            Some(Value::Array(list)) => {
                for value in list {
                    ids.extend(self.id(key, value)?);
                }
            }
            Some(value) => ids.extend(self.id(key, value)?),
        }
        Ok(ids)
    }

    fn number(&self, key: &str) -> Result<Option<f32>, ConfigError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let number = value.as_f64().map(|x| x as f32).filter(|x| x.is_finite());
        number
            .map(Some)
            .ok_or_else(|| self.error(key, format!("must be a number, not {value}")))
    }

    fn sampling(&self) -> Result<SampleParams, ConfigError> {
        let mut sample = SampleParams::default();
        let sampled = match self.get("do_sample") {
            None => false,
            Some(Value::Bool(b)) => *b,
            Some(other) => return Err(self.error("do_sample", format!("must be true or false, not {other}"))),
        };
        // What the file says is checked in any case, and used when it asks for sampling.
        let temperature = self.number("temperature")?.unwrap_or(1.0);
        let top_k = match self.number("top_k")? {
            // Transformers keeps 50 unless told otherwise.
            None => 50,
            Some(k) if k >= 0.0 && k.fract() == 0.0 => k as usize,
            Some(-1.0) => 0,
            Some(k) => return Err(self.error("top_k", format!("must be a whole number, at least 0, not {k}"))),
        };
        let (top_p, min_p) = (
            self.number("top_p")?.unwrap_or(1.0),
            self.number("min_p")?.unwrap_or(0.0),
        );
        let repeat_penalty = self.number("repetition_penalty")?.unwrap_or(1.0);
        if sampled {
            (sample.temperature, sample.top_k) = (temperature, top_k);
            (sample.top_p, sample.min_p) = (top_p, min_p);
        }
        sample.repeat_penalty = repeat_penalty;
        sample.check().map_err(|e| ConfigError {
            file: self.file.clone(),
            reason: e.to_string(),
        })?;
        Ok(sample)
    }
}

impl GenerationConfig {
    /// Reads a folder's `generation_config.json`; the ids fall back on `config`, the model's configuration.
    ///
    /// # Errors
    /// [`ConfigError`] naming file and field.
    pub fn from_folder(folder: &Path, config: &Map<String, Value>) -> Result<GenerationConfig, ConfigError> {
        let base = Source {
            file: folder.join("config.json").display().to_string(),
            map: config,
        };
        let path = folder.join("generation_config.json");
        let map = object_if_there(&path)?;
        let own = Source {
            file: path.display().to_string(),
            map: &map,
        };
        let ids = |key: &str| {
            let (own, base) = (own.ids(key)?, base.ids(key)?);
            Ok(if own.is_empty() { base } else { own })
        };
        Ok(GenerationConfig {
            eos: ids("eos_token_id")?,
            bos: ids("bos_token_id")?.first().copied(),
            sample: own.sampling()?,
        })
    }

    /// Reads a GGUF file's keys. Its tokens are the tokenizer's matter.
    ///
    /// # Errors
    /// [`GgufError::Key`].
    pub fn from_gguf(file: &GgufFile) -> Result<GenerationConfig, GgufError> {
        let number = |key: &str| {
            let key = format!("general.sampling.{key}");
            match file.get(&key) {
                None => Ok(None),
                Some(value @ (GgufValue::Uint(_) | GgufValue::Int(_) | GgufValue::Float(_))) => Ok(value.as_f64()),
                Some(other) => Err(file.key_error(&key, "a number", other)),
            }
        };
        let mut sample = SampleParams::default();
        let set = |key: &str, field: &mut f32| -> Result<(), GgufError> {
            if let Some(x) = number(key)? {
                *field = x as f32;
            }
            Ok(())
        };
        set("temp", &mut sample.temperature)?;
        set("top_p", &mut sample.top_p)?;
        set("min_p", &mut sample.min_p)?;
        set("penalty_repeat", &mut sample.repeat_penalty)?;
        if let Some(k) = number("top_k")? {
            // llama.cpp takes every k below 1 for "off".
            sample.top_k = k.clamp(0.0, f64::from(u32::MAX)) as usize;
        }
        sample.check().map_err(|e| GgufError::Key {
            file: file.path().to_owned(),
            key: "general.sampling".to_owned(),
            reason: e.to_string(),
        })?;
        Ok(GenerationConfig {
            sample,
            ..GenerationConfig::default()
        })
    }
}
