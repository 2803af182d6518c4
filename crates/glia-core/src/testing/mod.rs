//! Backends that stand in for real ones in tests: [`NullBackend`] runs everything and computes nothing,
//! [`RecordingBackend`] writes down every call that another backend gets and fails where it is told to.
//!
//! Behind the feature `testing`, apart from the conformance suite, because planners and executors want them without
//! its cases and oracle.
//!
//! ```
//! use std::sync::Arc;
//! use glia_core::testing::{Journal, NullBackend, RecordingBackend};
//! use glia_core::{Backend, DType, MemorySpace, Op, Tensor};
//!
//! let journal = Journal::new();
//! let device = NullBackend::new().named("device").in_space(MemorySpace(7));
//! let device = RecordingBackend::new(Arc::new(device)).writing_to(&journal);
//!
//! let x = Tensor::zeros(DType::F32, [2, 3])?;
//! device.execute(&Op::Scale { factor: 2.0 }, &[&x])?;
//! device.upload(&x)?;
//! assert_eq!(
//!     journal.take(),
//!     ["device: execute scale{factor=2} of f32[2, 3] -> f32[2, 3]", "device: upload f32[2, 3]"]
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod fault;
mod journal;
mod null;
mod null_program;
mod recording;
mod recording_program;
#[cfg(test)]
mod tests;

pub use fault::Fault;
pub use journal::{Call, Entry, Journal};
pub use null::NullBackend;
pub use recording::RecordingBackend;

use crate::{DType, Tensor, ValueType};

/// The type of a concrete tensor.
fn type_of(tensor: &Tensor) -> ValueType {
    ValueType::fixed(tensor.dtype(), tensor.shape())
}

/// Types in a row, as journals show them.
fn listed<'a>(types: impl IntoIterator<Item = &'a ValueType>) -> String {
    let shown: Vec<String> = types.into_iter().map(ToString::to_string).collect();
    shown.join(", ")
}

/// Types of tensors in a row.
fn listed_tensors<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> String {
    listed(&tensors.into_iter().map(type_of).collect::<Vec<_>>())
}

/// Storage of keys and values as journals show it.
fn kv([k, v]: [DType; 2]) -> String {
    format!("{k}/{v}")
}
