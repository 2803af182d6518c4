//! The command line: what every command takes, with help that teaches.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use glia_core::{DType, Precision};

const EXIT_CODES: &str = "Exit codes: 0 done, 1 a file, the model or a step failed, 2 the command line is wrong, \
130 stopped by Ctrl-C.";

/// Runs transformer models: one graph, any backend, the same answer.
#[derive(Debug, Parser)]
#[command(name = "glia", version, after_help = EXIT_CODES, subcommand_required = true, arg_required_else_help = true)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Answer a prompt: the text on stdout, everything else on stderr.
    #[command(after_help = "Examples:
  glia run \"Why is the sky blue?\"                 the default model, fetched once
  glia run model.gguf \"Why is the sky blue?\"      a model of yours
  glia run -m folder/ -p - < prompt.txt            a Hugging Face folder, the prompt from stdin
  glia run --model demo --raw \"To be, or\"          the small model inside the program")]
    Run(Box<RunArgs>),
    /// Show what a model file holds and how it would run.
    Inspect(InspectArgs),
    /// Measure speed: prefill and decode, in tokens per second.
    Bench(BenchArgs),
    /// Measure how well a model predicts a text.
    Perplexity(PerplexityArgs),
    /// List backends and what they run on.
    Devices,
}

/// Weights' and activations' precision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PrecisionArg {
    /// F32 activations and cache.
    Exact,
    /// Int8 activations where fast, f16 cache.
    #[default]
    Fast,
}

impl From<PrecisionArg> for Precision {
    fn from(arg: PrecisionArg) -> Precision {
        match arg {
            PrecisionArg::Exact => Precision::Exact,
            PrecisionArg::Fast => Precision::Fast,
        }
    }
}

/// Storage of cached keys or values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(non_camel_case_types)]
pub enum CacheType {
    /// 4 bytes an element.
    F32,
    /// 2 bytes an element.
    F16,
    /// 34 bytes per 32 elements; head sizes must be multiples of 32.
    #[value(name = "q8_0", alias = "q8-0")]
    Q8_0,
}

impl From<CacheType> for DType {
    fn from(arg: CacheType) -> DType {
        match arg {
            CacheType::F32 => DType::F32,
            CacheType::F16 => DType::F16,
            CacheType::Q8_0 => DType::Q8_0,
        }
    }
}

/// Options of every command that runs a model.
#[derive(Clone, Debug, clap::Args)]
pub struct EngineArgs {
    /// Threads; 0 is as many as there are physical cores to use. More than the machine has are capped.
    #[arg(long, default_value_t = 0, value_name = "N", allow_hyphen_values = true)]
    pub threads: usize,
    /// Most tokens of prompt and answer together; 0 is what the model was trained on, at most 8192.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub ctx: usize,
    /// How exactly to compute.
    #[arg(long, value_enum, default_value_t)]
    pub precision: PrecisionArg,
    /// Storage of cached keys [default: f16, f32 with --precision exact].
    #[arg(long, value_enum)]
    pub cache_type_k: Option<CacheType>,
    /// Storage of cached values [default: f16, f32 with --precision exact].
    #[arg(long, value_enum)]
    pub cache_type_v: Option<CacheType>,
    /// Backends in order of preference, comma-separated.
    #[arg(long, default_value = "cpu", value_name = "LIST")]
    pub backend: String,
    /// Read the file into memory instead of mapping it: for files that another program may cut short.
    #[arg(long)]
    pub no_mmap: bool,
    /// Split text as this pre-tokenizer does, where a GGUF file names one that is unknown.
    #[arg(long, value_name = "NAME")]
    pub pre_tokenizer: Option<String>,
}

/// `glia run`.
#[derive(Clone, Debug, clap::Args)]
pub struct RunArgs {
    /// MODEL and PROMPT: of a single word or text, a path, *.gguf, *.safetensors or catalog name is the model, anything
    /// else the prompt.
    #[arg(value_name = "MODEL|PROMPT", num_args = 0..=2)]
    pub words: Vec<String>,
    /// The model: a GGUF file, a folder with config.json and safetensors, or a catalog name (smollm2, demo).
    #[arg(short, long)]
    pub model: Option<String>,
    /// The prompt; `-` reads it from stdin (UTF-8; a byte order mark is dropped, line ends are kept).
    #[arg(short, long, allow_hyphen_values = true)]
    pub prompt: Option<String>,
    /// Most tokens to generate; -1 goes on until the model or the context ends.
    #[arg(
        short = 'n',
        long,
        default_value_t = 256,
        value_name = "N",
        allow_hyphen_values = true
    )]
    pub max_tokens: i64,
    /// System message for instruct models.
    #[arg(long)]
    pub system: Option<String>,
    /// Give the prompt to the model as it is, without chat template.
    #[arg(long)]
    pub raw: bool,
    /// 0 takes the likeliest token each time; higher is more varied.
    #[arg(long, default_value_t = 0.0, value_name = "X", allow_hyphen_values = true)]
    pub temperature: f32,
    /// Choose among the K likeliest tokens; 0 is off.
    #[arg(long, default_value_t = 0, value_name = "K", allow_hyphen_values = true)]
    pub top_k: i64,
    /// Choose among the likeliest tokens that make up this share of the probability; 1 is off.
    #[arg(long, default_value_t = 1.0, value_name = "P", allow_hyphen_values = true)]
    pub top_p: f32,
    /// Choose among tokens with at least this share of the likeliest one's probability; 0 is off.
    #[arg(long, default_value_t = 0.0, value_name = "P", allow_hyphen_values = true)]
    pub min_p: f32,
    /// Same seed, same text; a fresh one each time when absent.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// End before this text; may be given several times.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub stop: Vec<String>,
    /// Print the generated token ids on stdout, one line, instead of text.
    #[arg(long)]
    pub ids: bool,
    /// Print times and speeds on stderr at the end.
    #[arg(long)]
    pub timings: bool,
    /// Never use the network.
    #[arg(long)]
    pub offline: bool,
    /// How to run.
    #[command(flatten)]
    pub engine: EngineArgs,
}

/// `glia inspect`.
#[derive(Clone, Debug, clap::Args)]
pub struct InspectArgs {
    /// A GGUF file, a folder with config.json and safetensors, or a catalog name.
    pub model: String,
    /// List every tensor.
    #[arg(long)]
    pub tensors: bool,
    /// List every metadata entry.
    #[arg(long)]
    pub metadata: bool,
    /// Print the graph.
    #[arg(long, value_enum, value_name = "FORM", num_args = 0..=1, default_missing_value = "text")]
    pub graph: Option<GraphForm>,
    /// Print the plan: who runs what, lifetimes, memory.
    #[arg(long)]
    pub plan: bool,
    /// Refuse a plan whose intermediates need more bytes than this; 0 is unlimited.
    #[arg(long, default_value_t = 0, value_name = "BYTES")]
    pub max_intermediate_bytes: usize,
    /// How it would run.
    #[command(flatten)]
    pub engine: EngineArgs,
}

/// Forms of a printed graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GraphForm {
    /// The documented text form.
    Text,
    /// Graphviz.
    Dot,
}

/// `glia bench`.
#[derive(Clone, Debug, clap::Args)]
pub struct BenchArgs {
    /// The model.
    pub model: String,
    /// Tokens of the prefill test; 0 leaves it out. May be given several times.
    #[arg(long, default_values_t = [512], value_name = "N")]
    pub prefill: Vec<usize>,
    /// Tokens of the decode test; 0 leaves it out.
    #[arg(long, default_value_t = 64, value_name = "N")]
    pub decode: usize,
    /// Tokens already in the context when decoding begins. May be given several times.
    #[arg(long, default_values_t = [0], value_name = "N")]
    pub depth: Vec<usize>,
    /// Repetitions; the table shows median, least and most.
    #[arg(long, default_value_t = 5, value_name = "N")]
    pub reps: usize,
    /// Print a list of objects with `test`, `threads`, `tok_per_s`, `min`, `max`.
    #[arg(long)]
    pub json: bool,
    /// How to run.
    #[command(flatten)]
    pub engine: EngineArgs,
}

/// `glia perplexity`.
#[derive(Clone, Debug, clap::Args)]
pub struct PerplexityArgs {
    /// The model.
    pub model: String,
    /// The text.
    #[arg(long, value_name = "FILE")]
    pub file: PathBuf,
    /// Base logits as llama-perplexity writes them (--kl-divergence-base): adds KL divergence and top-1 agreement.
    #[arg(long, value_name = "FILE")]
    pub kl_base: Option<PathBuf>,
    /// Score only the first N windows; 0 is all.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub chunks: usize,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// How to run; --ctx is the window, 512 unless given.
    #[command(flatten)]
    pub engine: EngineArgs,
}
