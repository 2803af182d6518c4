//! Models for glia: GGUF and safetensors files become graphs, text becomes tokens, and tokens become text again.
//!
//! [`Model::open`](model::Model::open) is the front door.

#![deny(unsafe_code)]

pub mod family;
pub mod gguf;
#[allow(unsafe_code)]
mod mmap;
#[doc(hidden)]
pub mod proof;
pub mod sample;
mod stop;
pub mod tokenizer;
