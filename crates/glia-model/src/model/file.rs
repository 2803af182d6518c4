//! A model file that has been read but not prepared: what `inspect` shows, and what [`Model::load`](super::Model::load)
//! starts from.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use glia_core::DType;
use glia_ir::Graph;

use super::again::Origin;
use super::source::{Files, ModelWeights};
use super::{Card, ModelError, Options};
use crate::config::{self, GenerationConfig};
use crate::family::decoder::{self, Taps};
use crate::family::spec::DecoderSpec;
use crate::family::{self, FamilyError, hf};
use crate::gguf::{GgufError, GgufFile};
use crate::memory::Needs;

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
    warnings: Vec<String>,
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
            if !folder.join("config.json").exists() {
                Files::open_safetensors(path, options.mmap)?;
                return Err(path_error("has no config.json beside it, which says what model it is"));
            }
            return Self::open_folder(folder, "config.json", Some(path), options);
        }
        Ok(Self::from_gguf(GgufFile::open(path, options.mmap)?)?.read_from(path, options))
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
        if !config_path.exists() {
            return Err(ModelError::Path {
                path: folder.display().to_string(),
                reason: format!(
                    "is a folder without {config}, which says what model it is: give a GGUF file, or a folder with config.json, \
                     tokenizer.json and safetensors"
                ),
            });
        }
        let map = config::read_object(&config_path)?;
        let spec = hf::spec(&map).map_err(|source| ModelError::Family {
            file: config_path.display().to_string(),
            source,
        })?;
        let files = match weights {
            Some(path) => Files::open_safetensors(path, options.mmap)?,
            None => Files::open_folder(folder, options.mmap)?,
        };
        if let Files::Safetensors(tensors) = &files {
            tensors.check_dtypes()?;
        }
        let from = weights.unwrap_or(folder);
        let file = Self::new(
            folder.display().to_string(),
            files,
            spec,
            Some(folder.to_owned()),
            GenerationConfig::from_folder(folder, &map)?,
        )?;
        Ok(file.read_from(from, options))
    }

    /// From a GGUF file that is open, whose byte source a model then holds for as long as it lives.
    ///
    /// # Errors
    /// [`ModelError`].
    pub fn from_gguf(file: GgufFile) -> Result<ModelFile, ModelError> {
        let path = file.path().to_owned();
        let family = |source: FamilyError| ModelError::Family {
            file: path.clone(),
            source,
        };
        let spec = family::gguf::spec(&file).map_err(|source| {
            // Where the file holds what is not known here at all, that is the first thing to say.
            let strange = file.tensors().iter().find(|t| t.dtype.is_none());
            match strange.and_then(|t| file.tensor(&t.name).err()) {
                Some(error) => ModelError::Gguf(error),
                None => family(source),
            }
        })?;
        let tokens = file
            .opt_array("tokenizer.ggml.tokens")?
            .map_or(0, |tokens| tokens.len());
        if tokens > spec.vocab {
            return Err(ModelError::Gguf(GgufError::Key {
                file: path,
                key: "tokenizer.ggml.tokens".to_owned(),
                reason: format!(
                    "has {tokens} entries, the embedding (token_embd.weight) {} rows: the tokens beyond have none, the \
                     file was converted wrongly",
                    spec.vocab
                ),
            }));
        }
        let generation = GenerationConfig::from_gguf(&file)?;
        Self::new(path, Files::gguf(file), spec, None, generation)
    }

    fn new(
        path: String,
        files: Files,
        spec: DecoderSpec,
        folder: Option<PathBuf>,
        generation: GenerationConfig,
    ) -> Result<ModelFile, ModelError> {
        let (files, spec) = (Arc::new(files), Arc::new(spec));
        let warnings = match &*files {
            Files::Gguf { .. } => Vec::new(),
            Files::Safetensors(file) => file.warnings().to_vec(),
        };
        let weights = Arc::new(ModelWeights::new(Arc::clone(&files), Arc::clone(&spec))?);
        Ok(ModelFile {
            path,
            files,
            spec,
            weights,
            folder,
            generation,
            warnings,
        })
    }

    /// Notes where files came from that are not mapped: their bytes are not held, but read again where that is needed.
    fn read_from(mut self, path: &Path, options: &Options) -> ModelFile {
        let origin = (!options.mmap).then(|| Origin::new(path, &self.files));
        if let Some(weights) = Arc::get_mut(&mut self.weights) {
            weights.origin = origin;
        }
        self
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
            source: self.weights.in_stored_names(source),
        })
    }

    /// The weights by the names of the graph.
    pub fn weights(&self) -> Arc<dyn glia_ir::WeightSource> {
        Arc::clone(&self.weights) as Arc<dyn glia_ir::WeightSource>
    }

    /// The path that was opened.
    pub fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn files(&self) -> &Files {
        &self.files
    }

    pub(super) fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    pub(super) fn in_file(&self, source: ModelError) -> ModelError {
        ModelError::in_file(self.path.clone(), source)
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
        self.check_memory(options, ctx).map(|()| ctx)
    }

    /// Whether there is memory for so many tokens, be they of one session or of several.
    ///
    /// # Errors
    /// [`ModelError::DoesNotFit`] when weights, cache and scratch of `n_tokens` exceed the free memory.
    pub fn check_memory(&self, options: &Options, n_tokens: usize) -> Result<(), ModelError> {
        match crate::memory::available_bytes() {
            Some(limit) => self.needs(options).check(n_tokens, limit),
            None => Ok(()),
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
            max_step_tokens: self.step_tokens(options) as u64,
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
        self.files.tensors()
    }

    /// Metadata entries as text.
    pub fn metadata(&self) -> Vec<(String, String)> {
        self.files.metadata()
    }

    /// A summary.
    pub fn card(&self) -> Card<'_> {
        Card(self)
    }

    /// What is doubtful about the files though they can be used.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}
