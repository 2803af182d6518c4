//! The tokenizer and the chat templates that a model's files bring.

use std::path::Path;

use serde_json::{Map, Value};

use super::source::Files;
use super::{ModelError, ModelFile, Options};
use crate::config::{self, ConfigError};
use crate::template::{ChatTemplate, Clock, TemplateError};
use crate::tokenizer::{Tokenizer, TokenizerError};

/// The key of a GGUF file's template; others have a dot and their name behind it.
const TEMPLATE_KEY: &str = "tokenizer.chat_template";
/// More templates than any model has.
const MAX_TEMPLATES: usize = 64;
/// The template that is used unless another is asked for.
const DEFAULT: &str = "default";

/// A chat template's source and where it stands.
struct Source {
    name: String,
    place: String,
    text: String,
}

impl ModelFile {
    /// The tokenizer.
    ///
    /// # Errors
    /// [`ModelError::InFile`] around what is wrong with it; [`ModelError::Config`].
    pub fn tokenizer(&self, options: &Options) -> Result<Tokenizer, ModelError> {
        let mut tokenizer = self.plain_tokenizer(options)?;
        let (n_tokens, n_rows) = (tokenizer.vocab_size(), self.spec().vocab);
        // Tokens beyond the embeddings are usual where only their own text, as of an image, makes them.
        if let Some(id) = (n_rows..n_tokens).find(|&id| !tokenizer.is_special(id as u32)) {
            let token = tokenizer.id_to_token(id as u32).unwrap_or_default().into_owned();
            return Err(ModelError::Path {
                path: self.path().to_owned(),
                reason: format!(
                    "the tokenizer has {n_tokens} tokens, the embedding {n_rows} rows: token {id} `{token}` has none; \
                     tokenizer and weights are of different models"
                ),
            });
        }
        let ends = &self.generation_config().eos;
        tokenizer.add_eog(ends);
        for id in ends.iter().filter(|&&id| id as usize >= n_tokens) {
            tokenizer.warn(format!(
                "eos_token_id {id} is no token: the vocabulary has {n_tokens}; it ends nothing"
            ));
        }
        if tokenizer.eog_ids().is_empty() {
            tokenizer.warn("no token is known to end an answer: it goes on to the most tokens allowed".to_owned());
        }
        Ok(tokenizer)
    }

    fn plain_tokenizer(&self, options: &Options) -> Result<Tokenizer, ModelError> {
        match (self.files(), self.folder()) {
            (Files::Gguf { file, .. }, _) => {
                Tokenizer::from_gguf_file(file, options.pre_tokenizer.as_deref()).map_err(|e| self.in_file(e.into()))
            }
            (_, Some(folder)) => folder_tokenizer(folder),
            (_, None) => Err(ModelError::Path {
                path: self.path().to_owned(),
                reason: "has no tokenizer".to_owned(),
            }),
        }
    }

    /// The chat template, if the files bring one.
    ///
    /// # Errors
    /// [`ModelError::InFile`] around [`TemplateError`] when it does not parse, or when none is named `default`.
    pub fn chat_template(&self, tokenizer: &Tokenizer) -> Result<Option<ChatTemplate>, ModelError> {
        match self.chat_template_named(tokenizer, DEFAULT)? {
            None => match self.chat_template_names()?.as_slice() {
                [] => Ok(None),
                names => Err(self.in_file(
                    TemplateError::BadInput {
                        field: "chat_template".to_owned(),
                        problem: format!("has no template named `{DEFAULT}` (there are: {})", names.join(", ")),
                    }
                    .into(),
                )),
            },
            template => Ok(template),
        }
    }

    /// The chat template of a name: `default`, or what the files call it (`tool_use`, `rag`).
    ///
    /// # Errors
    /// As [`ModelFile::chat_template`].
    pub fn chat_template_named(&self, tokenizer: &Tokenizer, name: &str) -> Result<Option<ChatTemplate>, ModelError> {
        let Some(source) = self.sources()?.into_iter().find(|s| s.name == name) else {
            return Ok(None);
        };
        let mut special = Map::new();
        for (name, id) in [("bos_token", tokenizer.bos()), ("eos_token", tokenizer.eos())] {
            if let Some(token) = id.and_then(|id| tokenizer.id_to_token(id)) {
                special.insert(name.to_owned(), Value::String(token.into_owned()));
            }
        }
        ChatTemplate::new(&source.text, special, Clock::System)
            .map(Some)
            .map_err(|e| ModelError::in_file(source.place, e.into()))
    }

    /// Names of the chat templates, `default` first.
    ///
    /// # Errors
    /// [`ModelError`] when one of them is no text.
    pub fn chat_template_names(&self) -> Result<Vec<String>, ModelError> {
        Ok(self.sources()?.into_iter().map(|s| s.name).collect())
    }

    fn sources(&self) -> Result<Vec<Source>, ModelError> {
        let mut sources = match (self.files(), self.folder()) {
            (Files::Gguf { file, .. }, _) => {
                let keys = file.metadata().filter_map(|(key, _)| {
                    let rest = key.strip_prefix(TEMPLATE_KEY)?;
                    let name = if rest.is_empty() {
                        DEFAULT
                    } else {
                        rest.strip_prefix('.')?
                    };
                    Some((key, name.to_owned()))
                });
                let mut sources: Vec<Source> = Vec::new();
                for (key, name) in keys.take(MAX_TEMPLATES) {
                    if key != TEMPLATE_KEY && name == DEFAULT && file.get(TEMPLATE_KEY).is_some() {
                        continue;
                    }
                    sources.push(Source {
                        name,
                        place: format!("{}: {key}", file.path()),
                        text: file.opt_str(key)?.unwrap_or_default().to_owned(),
                    });
                }
                sources
            }
            (_, Some(folder)) => folder_sources(folder)?,
            (_, None) => Vec::new(),
        };
        sources.sort_by_key(|s| s.name != DEFAULT);
        Ok(sources)
    }
}

fn folder_tokenizer(folder: &Path) -> Result<Tokenizer, ModelError> {
    let config = config::read_if_there(&folder.join("tokenizer_config.json"), config::MAX_CONFIG_BYTES)?;
    let (json, pieces) = (folder.join("tokenizer.json"), folder.join("tokenizer.model"));
    if !json.exists() && pieces.exists() {
        return Tokenizer::from_sentencepiece(&config::read_file(&pieces)?)
            .map_err(|e| ModelError::in_file(pieces.display().to_string(), e.into()));
    }
    if !json.exists() {
        return Err(ModelError::Path {
            path: folder.display().to_string(),
            reason:
                "holds neither tokenizer.json nor tokenizer.model: copy one from where the model came from, or save it \
                     there with AutoTokenizer.from_pretrained(...).save_pretrained(folder)"
                    .to_owned(),
        });
    }
    Tokenizer::from_hf(&config::read_file(&json)?, config.as_deref()).map_err(|e| match e {
        // The file is named with its folder.
        TokenizerError::BadFile { file, problem } => ModelError::Config(ConfigError {
            file: folder.join(file).display().to_string(),
            reason: problem,
        }),
        other => ModelError::in_file(json.display().to_string(), other.into()),
    })
}

/// As `transformers` looks for them: files win over `tokenizer_config.json`.
fn folder_sources(folder: &Path) -> Result<Vec<Source>, ModelError> {
    let mut sources: Vec<Source> = Vec::new();
    let mut add = |name: &str, place: String, text: String| {
        if sources.len() < MAX_TEMPLATES && sources.iter().all(|s| s.name != name) {
            let name = name.to_owned();
            sources.push(Source { name, place, text });
        }
    };
    let side = folder.join("chat_template.jinja");
    if let Some(text) = config::text_if_there(&side)? {
        add(DEFAULT, side.display().to_string(), text);
    }
    let others = folder.join("additional_chat_templates");
    let mut paths: Vec<_> = std::fs::read_dir(&others)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "jinja"))
        .collect();
    paths.sort();
    for path in paths {
        let (Some(name), Some(text)) = (path.file_stem().and_then(|n| n.to_str()), config::text_if_there(&path)?)
        else {
            continue;
        };
        add(name, path.display().to_string(), text);
    }
    let path = folder.join("tokenizer_config.json");
    let config = config::object_if_there(&path)?;
    let place = || format!("{}: chat_template", path.display());
    let bad = |problem: &str| {
        let reason = format!("chat_template {problem}");
        ConfigError {
            file: path.display().to_string(),
            reason,
        }
    };
    match config.get("chat_template") {
        None | Some(Value::Null) => {}
        Some(Value::String(text)) => add(DEFAULT, place(), text.clone()),
        Some(Value::Array(named)) => {
            for entry in named {
                match (entry["name"].as_str(), entry["template"].as_str()) {
                    (Some(name), Some(text)) => add(name, place(), text.to_owned()),
                    _ => return Err(bad("has an entry without `name` and `template`").into()),
                }
            }
        }
        Some(_) => return Err(bad("is neither text nor list").into()),
    }
    Ok(sources)
}
