//! What `glia compare` takes.

use std::ffi::OsString;
use std::path::PathBuf;

use super::{CacheType, PrecisionArg, whole};

/// Tokens that are compared unless asked otherwise.
pub const DEFAULT_TOKENS: usize = 48;

/// `glia compare`.
#[derive(Clone, Debug, clap::Args)]
pub struct CompareArgs {
    /// The model.
    pub model: OsString,
    /// The two sides, the reference first: NAME[:OPTION..], options are exact, fast and, of the CPU, an instruction set
    /// (cpu:exact, cpu:portable). Within a side, + joins backends in order of preference.
    #[arg(long, value_name = "A,B")]
    pub backends: String,
    /// The text that both sides read; without it, and without --file, a paragraph of ours.
    #[arg(short, long, conflicts_with = "file", allow_hyphen_values = true)]
    pub prompt: Option<String>,
    /// A file with the text, UTF-8.
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Tokens of the text to compare, from its beginning; at most the model's context.
    #[arg(long, default_value_t = DEFAULT_TOKENS, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    pub tokens: usize,
    /// How many of them, the last ones, are fed one at a time.
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    pub decode: usize,
    /// Exit with code 1 when the normalised error of a node is larger; also what counts as parting [default: 1e-3, with
    /// fast precision on a side 0.2].
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub limit: Option<f64>,
    /// Give each piece of the graph (some 30 nodes) equal inputs on both sides, so that errors do not add up.
    #[arg(long)]
    pub piece_by_piece: bool,
    /// Print one JSON object: `sides`, `tokens`, `limit`, `first_beyond`, `layers`, `nodes`, `logits`.
    #[arg(long)]
    pub json: bool,
    /// How exactly to compute, on a side that does not say it itself.
    #[arg(long, value_enum, default_value_t)]
    pub precision: PrecisionArg,
    /// Threads; 0 is as many as there are physical cores to use. More than the machine has are capped.
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    pub threads: usize,
    /// Storage of cached keys [default: f16, f32 on a side with exact precision].
    #[arg(long, value_enum)]
    pub cache_type_k: Option<CacheType>,
    /// Storage of cached values [default: f16, f32 on a side with exact precision].
    #[arg(long, value_enum)]
    pub cache_type_v: Option<CacheType>,
    /// Split text as this pre-tokenizer does, where a GGUF file names one that is unknown.
    #[arg(long, value_name = "NAME")]
    pub pre_tokenizer: Option<String>,
}
