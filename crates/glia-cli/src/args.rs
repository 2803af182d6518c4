//! The command line: what every command takes, with help that teaches.

mod compare;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use glia_core::{DType, Precision};

pub use compare::{CompareArgs, DEFAULT_TOKENS};

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
    /// Measure speed: prefill, decode and batched decode, in tokens per second.
    Bench(BenchArgs),
    /// Show where the time of a forward goes: per op and per layer, beside what the machine allows.
    #[command(after_help = "Examples:
  glia profile model.gguf                               tables
  glia profile model.gguf --html profile.html           bars, roofline and timeline in one file
  glia profile model.gguf --prefill 0 --depth 2048      decoding behind a long prompt
  glia profile model.gguf --trace trace.json            for chrome://tracing or ui.perfetto.dev")]
    Profile(Box<ProfileArgs>),
    /// Measure how well a model predicts a text.
    Perplexity(PerplexityArgs),
    /// Run a model on two backends side by side: where they part first, the error per layer, the divergence of logits.
    #[command(after_help = "Examples:
  glia compare model.gguf --backends cpu:exact,cpu:fast       what fast precision changes
  glia compare model.gguf --backends reference,cpu:exact      against plain loops in f64: slow, few tokens
  glia compare model.gguf --backends cpu:portable,cpu:avx2    two instruction sets of this machine
  glia compare demo --backends reference,cpu --limit 1e-4     exit code 1 where a node differs by more")]
    Compare(Box<CompareArgs>),
    /// List backends and what they run on.
    Devices(DevicesArgs),
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

/// A whole number, at least 0; what clap says of others names no cure.
fn whole(text: &str) -> Result<usize, String> {
    let digits = |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit());
    text.parse().map_err(|_| match text.strip_prefix('-') {
        Some(rest) if digits(rest) => "must be 0 or more".to_owned(),
        _ if digits(text) => format!("must be at most {}", usize::MAX),
        _ => "must be a whole number, such as 512".to_owned(),
    })
}

fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| {
        format!(
            "must be a whole number from 0 to {}; leave --seed out for a fresh one each time",
            u64::MAX
        )
    })
}

/// Options of every command that runs a model.
#[derive(Clone, Debug, clap::Args)]
pub struct EngineArgs {
    /// Threads; 0 is as many as there are physical cores to use. More than the machine has are capped.
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    pub threads: usize,
    /// How exactly to compute.
    #[arg(long, value_enum, default_value_t)]
    pub precision: PrecisionArg,
    /// Storage of cached keys [default: f16, f32 with --precision exact].
    #[arg(long, value_enum)]
    pub cache_type_k: Option<CacheType>,
    /// Storage of cached values [default: f16, f32 with --precision exact].
    #[arg(long, value_enum)]
    pub cache_type_v: Option<CacheType>,
    /// Backends in order of preference, comma-separated: each node runs on the first that can.
    #[arg(long, default_value = "cpu", value_name = "LIST")]
    pub backend: String,
    /// Most tokens that are computed at once: longer prompts run in pieces. Fewer take less intermediate memory; 0 is
    /// 512, or fewer for small files, so that memory stays near the file's size.
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    pub max_step_tokens: usize,
    /// Refuse to start when intermediate values could need more bytes than this; 0 is unlimited.
    #[arg(long, default_value_t = 0, value_name = "BYTES", value_parser = whole, allow_negative_numbers = true)]
    pub max_intermediate_bytes: usize,
    /// Read the file into memory instead of mapping it: for files that another program may cut short. Takes the file's
    /// size more.
    #[arg(long)]
    pub no_mmap: bool,
    /// Keep all weights in the mapped file and pack nothing: the same answers without a copy of the weights, only the
    /// file's pages, which the system can take back, and a quick start; tokens take several times as long, prompts up to
    /// twice.
    #[arg(long, conflicts_with = "no_mmap")]
    pub mmap: bool,
    /// Split text as this pre-tokenizer does, where a GGUF file names one that is unknown.
    #[arg(long, value_name = "NAME")]
    pub pre_tokenizer: Option<String>,
}

impl EngineArgs {
    /// Storage of cached keys and values.
    pub fn kv_dtypes(&self) -> [DType; 2] {
        let plain = match self.precision {
            PrecisionArg::Exact => CacheType::F32,
            PrecisionArg::Fast => CacheType::F16,
        };
        [self.cache_type_k, self.cache_type_v].map(|given| given.unwrap_or(plain).into())
    }
}

/// `glia run`.
#[derive(Clone, Debug, clap::Args)]
pub struct RunArgs {
    /// MODEL and PROMPT: of a single word or text, a path, *.gguf, *.safetensors or catalog name is the model, anything
    /// else the prompt.
    #[arg(value_name = "MODEL|PROMPT", num_args = 0..=2)]
    pub words: Vec<OsString>,
    /// The model: a GGUF file, a folder with config.json and safetensors, or a catalog name (smollm2, demo).
    #[arg(short, long)]
    pub model: Option<OsString>,
    /// The prompt; `-` reads it from stdin (UTF-8; a byte order mark is dropped, line ends are kept).
    #[arg(short, long, allow_hyphen_values = true)]
    pub prompt: Option<OsString>,
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
    /// 0 takes the likeliest token each time, higher is more varied [default: the model's own, else 0].
    ///
    /// Models say in generation_config.json or in general.sampling.* keys how their makers would have tokens chosen;
    /// that holds for this and the next three options where they are not given. `--temperature 0` is always the same
    /// answer.
    #[arg(long, value_name = "X", allow_hyphen_values = true)]
    pub temperature: Option<f32>,
    /// Choose among the K likeliest tokens; 0 is off [default: the model's own, else 0].
    #[arg(long, value_name = "K", allow_hyphen_values = true)]
    pub top_k: Option<i64>,
    /// Choose among the likeliest tokens that make up this share of the probability; 1 is off [default: the model's
    /// own, else 1].
    #[arg(long, value_name = "P", allow_hyphen_values = true)]
    pub top_p: Option<f32>,
    /// Choose among tokens with at least this share of the likeliest one's probability; 0 is off [default: the model's
    /// own, else 0].
    #[arg(long, value_name = "P", allow_hyphen_values = true)]
    pub min_p: Option<f32>,
    /// Same seed, same text; a fresh one each time when absent.
    #[arg(long, value_name = "N", value_parser = seed, allow_negative_numbers = true)]
    pub seed: Option<u64>,
    /// End before this text; may be given several times.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub stop: Vec<String>,
    /// Print the generated token ids on stdout, one line, instead of text.
    #[arg(long)]
    pub ids: bool,
    /// Print on stderr at the end where the time went: open, vocabulary, packing, first step, decode.
    #[arg(long)]
    pub timings: bool,
    /// Never use the network.
    #[arg(long)]
    pub offline: bool,
    /// Most tokens of prompt and answer together; 0 is what the model was trained on, at most 8192.
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    pub ctx: usize,
    /// How to run.
    #[command(flatten)]
    pub engine: EngineArgs,
}

/// `glia inspect`.
#[derive(Clone, Debug, clap::Args)]
pub struct InspectArgs {
    /// A GGUF file, a folder with config.json and safetensors, or a catalog name.
    pub model: OsString,
    /// The form of `--graph FORM`, which clap takes for a word of its own.
    #[arg(hide = true)]
    pub form: Option<OsString>,
    /// List every tensor.
    #[arg(long)]
    pub tensors: bool,
    /// List every metadata entry.
    #[arg(long)]
    pub metadata: bool,
    /// Print the graph, as documented text or for Graphviz.
    #[arg(
        long,
        value_enum,
        value_name = "text|dot",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "text",
        hide_possible_values = true
    )]
    pub graph: Option<GraphForm>,
    /// Print the plan: who runs what, how long values live, how much memory it takes.
    #[arg(long)]
    pub plan: bool,
    /// Plan for this many tokens of prompt and answer; 0 is what the model was trained on, at most 8192.
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    pub ctx: usize,
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
    pub model: OsString,
    /// Tokens of the prefill test; 0 leaves it out. Several with commas.
    #[arg(long, default_values_t = [512], value_delimiter = ',', value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    pub prefill: Vec<usize>,
    /// Tokens of the decode test; 0 leaves it out.
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    pub decode: usize,
    /// Tokens already in the context when decoding begins. Several with commas.
    #[arg(long, default_values_t = [0], value_delimiter = ',', value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    pub depth: Vec<usize>,
    /// Sequences that decode together, a token of each in every step; the rate counts the tokens of all. Several with
    /// commas.
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    pub batch: Vec<usize>,
    /// Tokens that each sequence of --batch has in the context when decoding begins, none shared.
    #[arg(long, default_value_t = 128, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    pub batch_prompt: usize,
    /// Repetitions; the table shows median, least and most.
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    pub reps: usize,
    /// Print a list of objects with `test`, `backend`, `threads`, `tok_per_s`, `min`, `max`.
    #[arg(long)]
    pub json: bool,
    /// How to run.
    #[command(flatten)]
    pub engine: EngineArgs,
}

/// `glia profile`.
#[derive(Clone, Debug, clap::Args)]
pub struct ProfileArgs {
    /// The model.
    pub model: OsString,
    /// Tokens of the prefill; 0 leaves it out.
    #[arg(long, default_value_t = 512, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    pub prefill: usize,
    /// Tokens to decode; 0 leaves it out.
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    pub decode: usize,
    /// Tokens already in the context when decoding begins.
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    pub depth: usize,
    /// Write a trace that chrome://tracing and Perfetto read.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Write a report with pictures: one HTML file that needs nothing else.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print one JSON object: `model`, `machine`, `ceiling`, `phases` with `ops` and `layers`.
    #[arg(long)]
    pub json: bool,
    /// Do not measure what the machine allows, which takes about a second and up to 512 MiB.
    #[arg(long)]
    pub no_ceiling: bool,
    /// How to run.
    #[command(flatten)]
    pub engine: EngineArgs,
}

/// `glia devices`.
#[derive(Clone, Debug, clap::Args)]
pub struct DevicesArgs {
    /// Measure what the machine allows: reading memory, int8 and f32 arithmetic. Takes about a second and up to 512 MiB.
    #[arg(long)]
    pub measure: bool,
}

/// `glia perplexity`.
#[derive(Clone, Debug, clap::Args)]
pub struct PerplexityArgs {
    /// The model.
    pub model: OsString,
    /// The text, UTF-8. With --kl-base it may be left out: the base holds its own text, which is what is scored.
    #[arg(long, value_name = "FILE", required_unless_present = "kl_base")]
    pub file: Option<PathBuf>,
    /// Base logits as llama-perplexity writes them (--kl-divergence-base): adds KL divergence and top-1 agreement.
    #[arg(long, value_name = "FILE")]
    pub kl_base: Option<PathBuf>,
    /// Tokens of a window, of which the second half is scored [default: 512, with --kl-base the base's own].
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    pub ctx: Option<usize>,
    /// Score only the first N windows; 0 is all.
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    pub chunks: usize,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// How to run.
    #[command(flatten)]
    pub engine: EngineArgs,
}
