//! `cargo xtask bench`: criterion benches, or whole models beside a peer in turns (A B A B), so that both see the same
//! machine. Prints medians, spread, the number of turns and the ratio; saves our own figures and compares with saved
//! ones.

mod busy;
mod figures;
mod process;
mod programs;
mod saved;
mod speed;
mod start;

use std::path::{Path, PathBuf};

use crate::{Outcome, sh};

pub use busy::spin;

/// What to measure.
#[derive(clap::Args)]
pub struct Args {
    /// Run only the criterion benches whose name holds this, such as `q4_k` or `rows-512`
    #[arg(conflicts_with = "model")]
    name: Option<String>,
    /// Measure each criterion bench for a quarter of the time: to look, not to quote
    #[arg(long, conflicts_with = "model")]
    quick: bool,
    /// Measure whole models; without it the criterion benches run
    #[arg(long, value_name = "FILE", num_args = 1..)]
    model: Vec<PathBuf>,
    /// A peer and the folder of its programs: `llama.cpp=DIR`
    #[arg(long, requires = "model")]
    peer: Option<String>,
    /// Tokens of the prompt; 0 leaves it out
    #[arg(long, default_value_t = 512, requires = "model")]
    prefill: usize,
    /// Tokens to decode; 0 leaves it out
    #[arg(long, default_value_t = 64, requires = "model")]
    decode: usize,
    /// Tokens that are in the cache before decoding, separated by commas
    #[arg(long, value_delimiter = ',', default_values_t = [0], requires = "model")]
    depth: Vec<usize>,
    /// Sequences that decode together, separated by commas
    #[arg(long, value_delimiter = ',', requires = "model")]
    batch: Vec<usize>,
    /// Tokens that each sequence of --batch has in the cache before
    #[arg(long, default_value_t = 128, requires = "model")]
    batch_prompt: usize,
    /// Thread counts, separated by commas
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2], requires = "model")]
    threads: Vec<usize>,
    /// Turns per program
    #[arg(long, default_value_t = 7, value_parser = at_least_one, requires = "model")]
    rounds: usize,
    /// Measure instead the time from process start to the end of a run of one token, and peak memory
    #[arg(long, requires = "model", conflicts_with_all = ["busy", "batch", "save", "baseline"])]
    start: bool,
    /// Measure instead decoding beside so many processes that keep a core busy each, separated by commas
    #[arg(long, value_delimiter = ',', requires = "model", conflicts_with_all = ["batch", "save", "baseline"])]
    busy: Vec<usize>,
    /// Save our medians as JSON
    #[arg(long, value_name = "FILE", requires = "model")]
    save: Option<PathBuf>,
    /// Compare with saved medians
    #[arg(long, value_name = "FILE", requires = "model")]
    baseline: Option<PathBuf>,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if n > 0 => Ok(n),
        _ => Err("must be a whole number above 0".to_owned()),
    }
}

/// Measures and prints.
pub fn run(args: &Args) -> Outcome {
    if args.model.is_empty() {
        let mut bench = sh::cargo(&["bench", "--workspace", "--bench", "*"]);
        bench.args(criterion_args(args));
        return sh::run(bench);
    }
    if args.start {
        start::run(args)
    } else if !args.busy.is_empty() {
        busy::run(args)
    } else {
        speed::run(args)
    }
}

/// What the criterion benches are told.
fn criterion_args(args: &Args) -> Vec<&str> {
    let quick = ["--warm-up-time", "0.05", "--measurement-time", "0.1"];
    let quick = quick.iter().filter(|_| args.quick).copied();
    let mut all: Vec<&str> = args.name.as_deref().into_iter().chain(quick).collect();
    if !all.is_empty() {
        all.insert(0, "--");
    }
    all
}

fn model_name(model: &Path) -> String {
    model.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn criterion_is_told_the_name_and_the_time() {
        let told = |flags: &[&str]| {
            let line = Line::try_parse_from([&["bench"], flags].concat()).unwrap();
            criterion_args(&line.args).join(" ")
        };
        assert_eq!(told(&[]), "");
        assert_eq!(told(&["q4_k"]), "-- q4_k");
        assert_eq!(told(&["--quick"]), "-- --warm-up-time 0.05 --measurement-time 0.1");
        assert!(told(&["q4_k", "--quick"]).starts_with("-- q4_k --warm-up-time"));
    }

    #[test]
    fn flags_that_do_not_go_together_are_refused() {
        let refused = |flags: &[&str]| {
            let line = Line::try_parse_from([&["bench"], flags].concat());
            line.err().map(|e| e.to_string()).unwrap_or_default()
        };
        assert_eq!(
            refused(&["--start", "--model", "a.gguf", "b.gguf", "--threads", "2"]),
            ""
        );
        assert_eq!(refused(&["--busy", "1,2", "--model", "a.gguf"]), "");
        assert!(refused(&["--start"]).contains("--model"));
        assert!(refused(&["--busy", "1"]).contains("--model"));
        // Nothing is taken and not heeded: the criterion benches have none of these.
        assert_eq!(refused(&[]), "");
        assert_eq!(refused(&["q4_k"]), "");
        for flag in [
            "--save",
            "--baseline",
            "--peer",
            "--prefill",
            "--decode",
            "--depth",
            "--batch",
            "--rounds",
        ] {
            assert!(refused(&[flag, "1"]).contains("--model"), "{flag}");
        }
        assert!(refused(&["--start", "--busy", "1", "--model", "a"]).contains("--busy"));
        assert!(refused(&["--busy", "1", "--batch", "8", "--model", "a"]).contains("--batch"));
        assert!(refused(&["--quick", "--model", "a"]).contains("--quick"));
        assert!(refused(&["--rounds", "0"]).contains("above 0"));
    }
}
