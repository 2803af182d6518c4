//! A model file that has been read but not prepared: what `inspect` shows, and what [`Model::load`](super::Model::load)
//! starts from.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use glia_core::{DType, Tensor};
use glia_ir::Graph;
use serde_json::{Map, Value};

use super::source::{Files, ModelWeights};
use super::{ModelError, Options};
use crate::config::{self, GenerationConfig};
use crate::family::decoder::{self, Taps};
use crate::family::gguf::GgufView;
use crate::family::spec::DecoderSpec;
use crate::family::{self, FamilyError, hf};
use crate::gguf::{GgufFile, Value as GgufValue, types};
use crate::memory::Needs;
use crate::safetensors::SafetensorsFile;
use crate::template::{ChatTemplate, Clock};
use crate::tokenizer::Tokenizer;

/// Most tokens of a sequence unless asked for otherwise: long enough for a conversation, small enough for any machine.
const DEFAULT_CONTEXT: usize = 8192;
/// No context is longer than this.
const MAX_CONTEXT: usize = 1 << 24;

/// An open model file or folder: configuration checked, weights not yet read.
pub struct ModelFile {
    path: String,
    files: Arc<Files>,
    spec: Arc<DecoderSpec>,
    weights: Arc<ModelWeights>,
    folder: Option<PathBuf>,
    generation: GenerationConfig,
}

impl GgufView for GgufFile {
    fn file(&self) -> &str {
        self.path()
    }

    fn number(&self, key: &str) -> Result<Option<f64>, String> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let number = match value {
            // Per-layer lists are for families that differ by layer; of equal entries any will do.
            GgufValue::Array(list) => {
                let mut numbers = list.numbers().ok_or_else(|| format!("must be a number, not {value}"))?;
                let first = numbers.next();
                if numbers.any(|n| Some(n) != first) {
                    return Err(format!("differs by layer, which is not supported: {value}"));
                }
                first
            }
            GgufValue::Bool(_) => None,
            value => value.as_f64(),
        };
        match number.filter(|n| n.is_finite()) {
            Some(n) => Ok(Some(n)),
            None => Err(format!("must be a number, not {value}")),
        }
    }

    fn list(&self, key: &str, limit: usize) -> Option<Vec<f64>> {
        match self.get(key)? {
            GgufValue::Array(list) if list.len() <= limit => list.iter().map(|v| v.as_f64()).collect(),
            _ => None,
        }
    }

    fn text(&self, key: &str) -> Result<Option<&str>, String> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value
            .as_str()
            .map(Some)
            .ok_or_else(|| format!("must be a text, not {value}"))
    }

    fn shape(&self, tensor: &str) -> Option<Vec<usize>> {
        self.tensor_info(tensor).map(|t| t.shape.clone())
    }

    fn f32_values(&self, tensor: &str) -> Option<Vec<f32>> {
        let tensor = crate::weights::to_f32(self.tensor(tensor).ok()?).ok()?;
        Some(tensor.as_f32().ok()?.to_vec())
    }
}

impl ModelFile {
    /// Opens a GGUF file, a safetensors file, or a Hugging Face folder.
    ///
    /// # Errors
    /// [`ModelError`], naming the file and field.
    pub fn open(path: &Path, options: &Options) -> Result<ModelFile, ModelError> {
        if path.is_dir() {
            return Self::open_config(path, "config.json", options);
        }
        let path_error = |reason: &str| ModelError::Path {
            path: path.display().to_string(),
            reason: reason.to_owned(),
        };
        if !path.exists() {
            return Err(path_error("there is no such file or folder"));
        }
        if path.extension().is_some_and(|e| e == "safetensors") {
            let folder = path
                .parent()
                .filter(|p| !p.as_os_str().is_empty())
                .unwrap_or(Path::new("."));
            if !folder.join("config.json").is_file() {
                SafetensorsFile::open(path, options.mmap)?;
                return Err(path_error("has no config.json beside it, which says what model it is"));
            }
            return Self::open_folder(folder, "config.json", Some(path), options);
        }
        Self::from_gguf(GgufFile::open(path, options.mmap)?)
    }

    /// Opens the model that is compiled in.
    ///
    /// # Errors
    /// None but for a damaged build.
    #[cfg(feature = "demo")]
    pub fn open_demo(_options: &Options) -> Result<ModelFile, ModelError> {
        Self::from_gguf(GgufFile::from_source("demo", Arc::new(super::DEMO))?)
    }

    /// Opens a folder whose configuration has another name.
    ///
    /// # Errors
    /// As [`ModelFile::open`].
    pub fn open_config(folder: &Path, config: &str, options: &Options) -> Result<ModelFile, ModelError> {
        Self::open_folder(folder, config, None, options)
    }

    fn open_folder(
        folder: &Path,
        config: &str,
        weights: Option<&Path>,
        options: &Options,
    ) -> Result<ModelFile, ModelError> {
        let config_path = folder.join(config);
        let single = weights.map_or_else(|| folder.join("model.safetensors"), Path::to_owned);
        let index = folder.join("model.safetensors.index.json");
        let map = config::read_object(&config_path)?;
        let name = config_path.display().to_string();
        let family = |source: FamilyError| ModelError::Family {
            file: folder.display().to_string(),
            source,
        };
        let spec = hf::spec(&name, &map).map_err(family)?;
        let tensors = if single.is_file() {
            SafetensorsFile::open(&single, options.mmap)?
        } else if index.is_file() {
            SafetensorsFile::open_sharded(&index, options.mmap)?
        } else {
            return Err(ModelError::Path {
                path: folder.display().to_string(),
                reason: "holds neither model.safetensors nor model.safetensors.index.json".to_owned(),
            });
        };
        Self::new(
            folder.display().to_string(),
            Files::Safetensors(tensors),
            spec,
            Some(folder.to_owned()),
            GenerationConfig::from_folder(folder, &map)?,
        )
    }

    /// From a GGUF file that is open.
    ///
    /// # Errors
    /// [`ModelError`].
    pub fn from_gguf(file: GgufFile) -> Result<ModelFile, ModelError> {
        let path = file.path().to_owned();
        let family = |source: FamilyError| ModelError::Family {
            file: path.clone(),
            source,
        };
        let config = family::gguf::config(&file).map_err(family)?;
        let spec = hf::spec(&path, &config).map_err(family)?;
        let arch = file.opt_str("general.architecture")?.unwrap_or("").to_owned();
        let generation = GenerationConfig::from_gguf(&file)?;
        Self::new(path.clone(), Files::Gguf { file, arch }, spec, None, generation)
    }

    fn new(
        path: String,
        files: Files,
        spec: DecoderSpec,
        folder: Option<PathBuf>,
        generation: GenerationConfig,
    ) -> Result<ModelFile, ModelError> {
        let (files, spec) = (Arc::new(files), Arc::new(spec));
        let weights = Arc::new(ModelWeights::new(Arc::clone(&files), Arc::clone(&spec))?);
        Ok(ModelFile {
            path,
            files,
            spec,
            weights,
            folder,
            generation,
        })
    }

    /// What the model says of its own generation.
    pub fn generation_config(&self) -> &GenerationConfig {
        &self.generation
    }

    /// What distinguishes this decoder.
    pub fn spec(&self) -> &DecoderSpec {
        &self.spec
    }

    /// The graph: `input_ids` -> `logits`.
    ///
    /// # Errors
    /// [`ModelError::Family`] naming the first weight that is missing or misshapen.
    pub fn graph(&self) -> Result<Graph, ModelError> {
        self.graph_with(Taps::Logits)
    }

    /// The graph with more outputs.
    ///
    /// # Errors
    /// As [`ModelFile::graph`].
    pub fn graph_with(&self, taps: Taps) -> Result<Graph, ModelError> {
        decoder::build(&self.spec, &*self.weights, taps).map_err(|source| ModelError::Family {
            file: self.path.clone(),
            source,
        })
    }

    /// The weights by the names of the graph.
    pub fn weights(&self) -> Arc<dyn glia_ir::WeightSource> {
        Arc::clone(&self.weights) as Arc<dyn glia_ir::WeightSource>
    }

    /// The tokenizer.
    ///
    /// # Errors
    /// [`ModelError::Tokenizer`], [`ModelError::Config`].
    pub fn tokenizer(&self, options: &Options) -> Result<Tokenizer, ModelError> {
        let mut tokenizer = self.plain_tokenizer(options)?;
        tokenizer.add_eog(&self.generation.eos);
        Ok(tokenizer)
    }

    fn plain_tokenizer(&self, options: &Options) -> Result<Tokenizer, ModelError> {
        match (&*self.files, &self.folder) {
            (Files::Gguf { file, .. }, _) => Ok(Tokenizer::from_gguf_file(file, options.pre_tokenizer.as_deref())?),
            (_, Some(folder)) => {
                let config = folder.join("tokenizer_config.json");
                let config = if config.is_file() {
                    Some(config::read_file(&config)?)
                } else {
                    None
                };
                let (json, pieces) = (folder.join("tokenizer.json"), folder.join("tokenizer.model"));
                if !json.is_file() && pieces.is_file() {
                    return Ok(Tokenizer::from_sentencepiece(&config::read_file(&pieces)?)?);
                }
                let json = config::read_file(&json)?;
                Ok(Tokenizer::from_hf(&json, config.as_deref())?)
            }
            (_, None) => Err(ModelError::Path {
                path: self.path.clone(),
                reason: "has no tokenizer".to_owned(),
            }),
        }
    }

    /// The chat template, if the file brings one.
    ///
    /// # Errors
    /// [`ModelError::Template`] when it does not parse.
    pub fn chat_template(&self, tokenizer: &Tokenizer) -> Result<Option<ChatTemplate>, ModelError> {
        let mut special = Map::new();
        for (name, id) in [("bos_token", tokenizer.bos()), ("eos_token", tokenizer.eos())] {
            if let Some(token) = id.and_then(|id| tokenizer.id_to_token(id)) {
                special.insert(name.to_owned(), Value::String(token.into_owned()));
            }
        }
        let source = match (&*self.files, &self.folder) {
            (Files::Gguf { file, .. }, _) => file.opt_str("tokenizer.chat_template")?.map(str::to_owned),
            (_, Some(folder)) => {
                let (side, config) = (folder.join("chat_template.jinja"), folder.join("tokenizer_config.json"));
                let side = if side.is_file() {
                    Some(config::read_file(&side)?)
                } else {
                    None
                };
                let side = side.map(|b| String::from_utf8_lossy(&b).into_owned());
                let config = if config.is_file() {
                    config::read_object(&config)?
                } else {
                    Map::new()
                };
                let config = Value::Object(config);
                let none = side.is_none() && config["chat_template"].is_null();
                if none {
                    None
                } else {
                    Some(ChatTemplate::select(&config, side.as_deref(), false)?)
                }
            }
            (_, None) => None,
        };
        source
            .map(|s| ChatTemplate::new(&s, special, Clock::System))
            .transpose()
            .map_err(ModelError::from)
    }

    /// The context to run with, given what was asked for.
    ///
    /// # Errors
    /// [`ModelError::ContextTooLong`], and [`ModelError::DoesNotFit`] when weights, cache and scratch of that many
    /// tokens exceed the free memory.
    pub fn max_context(&self, options: &Options) -> Result<usize, ModelError> {
        let ctx = match options.max_context {
            None => self.spec.max_positions.clamp(1, DEFAULT_CONTEXT),
            Some(ctx) if ctx > MAX_CONTEXT => {
                return Err(ModelError::ContextTooLong {
                    ctx,
                    largest: MAX_CONTEXT,
                });
            }
            Some(ctx) => ctx.max(1),
        };
        match crate::memory::available_bytes() {
            Some(limit) => self.needs(options).check(ctx, limit).map(|()| ctx),
            None => Ok(ctx),
        }
    }

    fn needs(&self, options: &Options) -> Needs {
        let s = &self.spec;
        let widest = s.hidden.max(s.intermediate).max(s.n_heads.saturating_mul(s.head_dim));
        Needs {
            weights_bytes: self.files.size_bytes() as u64,
            kv_per_token_bytes: self.kv_bytes_per_token(options.kv_dtypes()),
            widest: widest as u64,
            vocab: s.vocab as u64,
            max_step_tokens: options.max_step_tokens as u64,
        }
    }

    fn kv_bytes_per_token(&self, kv: [DType; 2]) -> u64 {
        let width = self.spec.n_kv_heads.saturating_mul(self.spec.head_dim);
        let bytes = |d: DType| width.div_ceil(d.block_elems()).saturating_mul(d.block_bytes()) as u64;
        let layer = bytes(kv[0]).saturating_add(bytes(kv[1]));
        layer.saturating_mul(self.spec.n_layers as u64)
    }

    /// A line per tensor of the file.
    pub fn tensors(&self) -> Vec<String> {
        let line = |name: &str, dtype: &str, shape: &[usize], bytes: usize| {
            format!("{name:<48} {dtype:<8} {:<20} {bytes}", format!("{shape:?}"))
        };
        match &*self.files {
            Files::Gguf { file, .. } => file
                .tensors()
                .iter()
                .map(|t| line(&t.name, &types::name(t.type_id), &t.shape, t.size_bytes))
                .collect(),
            Files::Safetensors(file) => file
                .names()
                .into_iter()
                .filter_map(|name| {
                    let (dtype, shape) = file.meta(name)?;
                    let bytes = glia_core::tensor_bytes(dtype, &shape).unwrap_or(0);
                    Some(line(name, &dtype.name().to_uppercase(), &shape, bytes))
                })
                .collect(),
        }
    }

    /// Metadata entries as text.
    pub fn metadata(&self) -> Vec<(String, String)> {
        match &*self.files {
            Files::Gguf { file, .. } => file.metadata().map(|(k, v)| (k.to_owned(), v.to_string())).collect(),
            Files::Safetensors(_) => Vec::new(),
        }
    }

    /// A summary.
    pub fn card(&self) -> Card<'_> {
        Card(self)
    }

    fn dtypes(&self) -> Vec<(String, usize, usize)> {
        let mut counts: Vec<(String, usize, usize)> = Vec::new();
        let mut add = |name: String, bytes: usize| match counts.iter_mut().find(|c| c.0 == name) {
            Some(count) => (count.1, count.2) = (count.1 + 1, count.2 + bytes),
            None => counts.push((name, 1, bytes)),
        };
        match &*self.files {
            Files::Gguf { file, .. } => file
                .tensors()
                .iter()
                .for_each(|t| add(types::name(t.type_id), t.size_bytes)),
            Files::Safetensors(file) => file
                .names()
                .into_iter()
                .filter_map(|n| file.tensor(n).ok())
                .for_each(|t: Tensor| add(t.dtype().name().to_uppercase(), t.size_bytes())),
        }
        counts.sort_by_key(|count| std::cmp::Reverse(count.2));
        counts
    }
}

/// The summary of a model file, as `inspect` prints it.
pub struct Card<'a>(&'a ModelFile);

impl fmt::Display for Card<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, s) = (self.0, &self.0.spec);
        writeln!(f, "file        {}", file.path)?;
        match &*file.files {
            Files::Gguf { file: gguf, arch } => {
                writeln!(f, "format      GGUF v{}, {} file(s)", gguf.version(), gguf.n_parts())?;
                for key in ["general.name", "general.license"] {
                    if let Ok(Some(text)) = gguf.text(key) {
                        writeln!(f, "{:<11} {text}", key.trim_start_matches("general."))?;
                    }
                }
                writeln!(f, "family      {} (architecture {arch})", s.family)?;
            }
            Files::Safetensors(_) => writeln!(f, "format      safetensors\nfamily      {}", s.family)?,
        }
        writeln!(f, "size        {:.1} MB", file.files.size_bytes() as f64 / 1e6)?;
        writeln!(f, "layers      {}", s.n_layers)?;
        writeln!(f, "hidden      {}  (MLP {})", s.hidden, s.intermediate)?;
        writeln!(
            f,
            "heads       {} of {}, {} key/value",
            s.n_heads, s.head_dim, s.n_kv_heads
        )?;
        writeln!(
            f,
            "vocabulary  {}{}",
            s.vocab,
            if s.tied { ", head tied to the embeddings" } else { "" }
        )?;
        writeln!(f, "context     {}", s.max_positions)?;
        for (dtype, n, bytes) in file.dtypes() {
            writeln!(
                f,
                "weights     {dtype:<8} {n:>5} tensors {:>10.1} MB",
                bytes as f64 / 1e6
            )?;
        }
        let tokenizer = file.tokenizer(&Options::default());
        match &tokenizer {
            Ok(t) => {
                writeln!(f, "tokenizer   {} tokens", t.vocab_size())?;
                let template = match file.chat_template(t) {
                    Ok(Some(_)) => "yes".to_owned(),
                    Ok(None) => "none: use raw prompts".to_owned(),
                    Err(e) => e.to_string(),
                };
                writeln!(f, "template    {template}")
            }
            Err(e) => writeln!(f, "tokenizer   {e}"),
        }
    }
}
