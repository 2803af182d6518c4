//! Options of opening a model.

use std::sync::Arc;

use glia_core::{Backend, DType, Precision};

/// How to open and run a model. The default is fast, on the CPU, with the context that the model was trained on, at most
/// 8192 tokens.
#[derive(Clone)]
pub struct Options {
    /// Backends in order of preference; `None` is the CPU (feature `cpu`).
    pub backends: Option<Vec<Arc<dyn Backend>>>,
    /// How exactly to compute.
    pub precision: Precision,
    /// Most tokens of a sequence.
    pub max_context: Option<usize>,
    /// Most tokens of a step: longer prompts run in chunks. 0 is what suits the model, at most 512:
    /// [`ModelFile::step_tokens`](super::ModelFile::step_tokens).
    pub max_step_tokens: usize,
    /// Storage of cached keys and values; F16, or F32 with exact precision, unless given.
    pub kv_dtypes: Option<[DType; 2]>,
    /// Refuse plans whose intermediates need more bytes; 0 is unlimited.
    pub max_intermediate_bytes: usize,
    /// Map files into memory rather than reading them.
    pub mmap: bool,
    /// Overrides the pre-tokenizer that a GGUF file names.
    pub pre_tokenizer: Option<String>,
    /// Give memory back while a model is opened, as [`release_unused`](crate::release_unused) does: for programs whose
    /// resident memory is watched.
    pub release_unused: bool,
    /// Collect times per op.
    pub profile: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            backends: None,
            precision: Precision::Fast,
            max_context: None,
            max_step_tokens: 0,
            kv_dtypes: None,
            max_intermediate_bytes: 0,
            mmap: true,
            pre_tokenizer: None,
            release_unused: false,
            profile: false,
        }
    }
}

impl Options {
    pub(crate) fn kv_dtypes(&self) -> [DType; 2] {
        self.kv_dtypes.unwrap_or(match self.precision {
            Precision::Exact => [DType::F32; 2],
            Precision::Fast => [DType::F16; 2],
        })
    }
}
