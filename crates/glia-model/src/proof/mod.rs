//! Runners of golden cases, shared by the tests and by `cargo xtask goldens`.

pub mod models;
pub mod ops;
pub mod quants;
mod quants_file;
pub mod real;
pub mod templates;
pub mod tokenizers;

/// What became of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As the reference.
    Pass,
    /// Not as the reference: how.
    Fail(String),
    /// What is not built yet: which.
    Unsupported(String),
}

/// One case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseResult {
    /// Kind and name: `models/llama-mha`.
    pub name: String,
    /// What became of it.
    pub outcome: Outcome,
}
