//! Kernels: WGSL files, a small preprocessor with typed definitions, and pipelines compiled once per key.

mod pipeline;
mod preprocess;
mod sources;
#[cfg(test)]
mod tests;

pub(crate) use pipeline::{Access, Call, KernelKey, MAX_WORDS, Pipeline, params_layout};
pub(crate) use preprocess::{Def, preprocess};
pub(crate) use sources::Source;
