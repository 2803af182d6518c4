//! Errors of the front door, each naming what went wrong where.

use std::sync::Arc;

use glia_core::{BackendError, TensorError};
use glia_ir::ExecError;

use crate::family::FamilyError;
use crate::gguf::GgufError;
use crate::sample::SampleError;
use crate::template::TemplateError;
use crate::tokenizer::TokenizerError;

/// Why a model cannot be opened or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A GGUF file.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// A safetensors file or folder.
    #[error(transparent)]
    Safetensors(#[from] crate::safetensors::SafetensorsError),
    /// A JSON configuration.
    #[error(transparent)]
    Config(#[from] crate::config::ConfigError),
    /// The family or its configuration.
    #[error("{file}: {source}")]
    Family {
        /// The model file.
        file: String,
        /// What is wrong.
        #[source]
        source: FamilyError,
    },
    /// The path is neither.
    #[error("{path}: {reason}")]
    Path {
        /// The path.
        path: String,
        /// What is wrong with it, and the cure.
        reason: String,
    },
    /// The tokenizer.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The chat template.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// An error, and the file (and the field in it) that it is about.
    #[error("{file}: {source}")]
    InFile {
        /// The file, and where it helps the field.
        file: String,
        /// What is wrong.
        source: Arc<ModelError>,
    },
    /// Preparing or running the graph.
    #[error(transparent)]
    Exec(#[from] ExecError),
    /// A tensor.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// Sampling.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// A prompt without tokens.
    #[error("the prompt is empty: give at least one token")]
    EmptyPrompt,
    /// The prompt leaves no room.
    #[error(
        "the prompt has {n_prompt} tokens, the context holds {max_context} and needs room for one more: \
         shorten the prompt or raise the context (--ctx)"
    )]
    PromptTooLong {
        /// Tokens of the prompt and what came before.
        n_prompt: usize,
        /// Tokens that the context holds.
        max_context: usize,
    },
    /// More context than memory.
    #[error(
        "a context of {ctx} tokens needs {needed_bytes} bytes ({weights_bytes} weights, {kv_bytes} KV cache, \
         {scratch_bytes} scratch), {limit_bytes} are free: {}",
        room(.largest_ctx)
    )]
    DoesNotFit {
        /// Tokens asked for.
        ctx: usize,
        /// Bytes in all.
        needed_bytes: u64,
        /// Weights.
        weights_bytes: u64,
        /// KV cache at full context.
        kv_bytes: u64,
        /// Intermediates.
        scratch_bytes: u64,
        /// What the machine or its limits leave.
        limit_bytes: u64,
        /// Largest context that fits; 0 when none does.
        largest_ctx: usize,
    },
    /// More context than any model takes.
    #[error("a context of {ctx} tokens is more than any model takes: --ctx must be at most {largest}")]
    ContextTooLong {
        /// Tokens asked for.
        ctx: usize,
        /// The most.
        largest: usize,
    },
    /// No chat template in the file.
    #[error("the model brings no chat template: use it with a raw prompt (--raw)")]
    NoChatTemplate,
    /// Neither given nor compiled in.
    #[error("no backend: give `Options::backends`, or build with the feature `cpu`")]
    NoBackend,
}

/// What to do when a model does not fit.
fn room(largest_ctx: &usize) -> String {
    match largest_ctx {
        0 => format!("not even one token fits; {}", crate::memory::MORE_ROOM),
        n => format!("at most --ctx {n} fits"),
    }
}

impl ModelError {
    pub(crate) fn in_file(file: String, source: ModelError) -> ModelError {
        ModelError::InFile {
            file,
            source: Arc::new(source),
        }
    }

    /// Whether a cancelled step is behind this.
    pub fn is_cancelled(&self) -> bool {
        // Between steps it is the executor that sees it.
        match self {
            ModelError::Exec(ExecError::Cancelled) => return true,
            ModelError::InFile { source, .. } => return source.is_cancelled(),
            _ => {}
        }
        let mut error: Option<&(dyn std::error::Error + 'static)> = Some(self);
        while let Some(e) = error {
            if matches!(e.downcast_ref::<BackendError>(), Some(b) if matches!(b.root(), BackendError::Cancelled)) {
                return true;
            }
            error = e.source();
        }
        false
    }
}
