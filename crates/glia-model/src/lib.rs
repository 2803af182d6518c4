//! Models for glia: GGUF and safetensors files become graphs, text becomes tokens, and tokens become text again.
//!
//! [`Model::open`](model::Model::open) is the front door.
//!
#![cfg_attr(all(feature = "cpu", feature = "demo"), doc = "```")]
#![cfg_attr(not(all(feature = "cpu", feature = "demo")), doc = "```ignore")]
//! use glia_model::{Model, WantedRows};
//!
//! let model = Model::open_demo()?;
//! let ids = model.tokenizer().encode("O Romeo, Romeo!", true, false)?;
//! let mut session = model.session()?;
//! let logits = session.feed(&ids, &WantedRows::Last)?;
//! assert_eq!(logits.shape()[..], [1, model.n_vocab()]);
//!
//! // Another way to go on from the same past, which is shared.
//! let mut fork = session.fork()?;
//! fork.feed(&[7], &WantedRows::Last)?;
//! assert_eq!((session.pos(), fork.pos()), (ids.len(), ids.len() + 1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(unsafe_code)]

/// The project's README, whose example is tested.
#[cfg(all(doctest, feature = "cpu", feature = "demo"))]
#[doc = include_str!("../../../README.md")]
struct Readme;

mod cgroup;
pub mod config;
pub mod family;
pub mod generate;
pub mod gguf;
mod memory;
#[allow(unsafe_code)]
mod mmap;
pub mod model;
pub mod perplexity;
mod printable;
#[doc(hidden)]
pub mod proof;
pub mod safetensors;
pub mod sample;
mod stop;
pub mod template;
pub mod tokenizer;
mod wall;
pub mod weights;

pub use generate::{Event, FinishReason, GenerateParams, Generation};
pub use mmap::release_unused;
pub use model::{Contents, LoadTimes, Model, ModelError, ModelFile, ModelSession, Options, WantedRows};
pub use sample::SampleParams;
