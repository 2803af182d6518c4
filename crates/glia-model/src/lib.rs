//! Models for glia: GGUF and safetensors files become graphs, text becomes tokens, and tokens become text again.
//!
//! [`Model::open`](model::Model::open) is the front door.

#![deny(unsafe_code)]

pub mod config;
pub mod family;
pub mod generate;
pub mod gguf;
mod memory;
#[allow(unsafe_code)]
mod mmap;
pub mod model;
pub mod perplexity;
#[doc(hidden)]
pub mod proof;
pub mod safetensors;
pub mod sample;
mod stop;
pub mod template;
pub mod tokenizer;
pub mod weights;

pub use generate::{Event, FinishReason, GenerateParams, Generation};
pub use model::{Contents, Model, ModelError, ModelFile, ModelSession, Options, WantedRows};
pub use sample::SampleParams;
