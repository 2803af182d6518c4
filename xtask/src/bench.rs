//! `cargo xtask bench`: criterion benches, or a whole model beside a peer in turns (A B A B), so that both see the same
//! machine. Prints medians, spread and the ratio.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::{Outcome, sh};

/// What to measure.
#[derive(clap::Args)]
pub struct Args {
    /// Measure this whole model; without it the criterion benches run
    #[arg(long)]
    model: Option<PathBuf>,
    /// A peer and the folder of its programs: `llama.cpp=DIR`
    #[arg(long)]
    peer: Option<String>,
    /// Tokens of the prompt
    #[arg(long, default_value_t = 512)]
    prefill: usize,
    /// Tokens to decode
    #[arg(long, default_value_t = 64)]
    decode: usize,
    /// Thread counts, separated by commas
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2])]
    threads: Vec<usize>,
    /// Turns per program
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

/// Measures and prints one row per test and thread count.
pub fn run(args: &Args) -> Outcome {
    let Some(model) = &args.model else {
        return sh::run(sh::cargo(&["bench", "--workspace"]));
    };
    let peer = args.peer.as_deref().map(peer_program).transpose()?;
    sh::run(sh::cargo(&["build", "--release", "-p", "glia-cli"]))?;
    let target = sh::metadata()?["target_directory"]
        .as_str()
        .unwrap_or("target")
        .to_owned();
    let glia = Path::new(&target)
        .join("release")
        .join(format!("glia{}", std::env::consts::EXE_SUFFIX));
    println!(
        "{:<8} {:>7} {:>24} {:>24} {:>6}",
        "test", "threads", "glia tok/s (spread)", "peer tok/s (spread)", "ratio"
    );
    for &threads in &args.threads {
        let mut ours: [Vec<f64>; 2] = Default::default();
        let mut theirs: [Vec<f64>; 2] = Default::default();
        for _ in 0..args.rounds.max(1) {
            add(&mut ours, glia_once(&glia, model, args, threads)?);
            if let Some(peer) = &peer {
                add(&mut theirs, peer_once(peer, model, args, threads)?);
            }
        }
        let names = [format!("pp{}", args.prefill), format!("tg{}", args.decode)];
        for (name, (a, b)) in names.iter().zip(ours.iter_mut().zip(&mut theirs)) {
            let (a_text, b_text, ratio) = (cell(a), cell(b), median(a) / median(b));
            let ratio = if ratio.is_finite() {
                format!("{ratio:.2}")
            } else {
                "-".to_owned()
            };
            println!("{name:<8} {threads:>7} {a_text:>24} {b_text:>24} {ratio:>6}");
        }
    }
    Ok(())
}

fn add(to: &mut [Vec<f64>; 2], pair: [f64; 2]) {
    to.iter_mut().zip(pair).for_each(|(list, x)| list.push(x));
}

fn peer_program(spec: &str) -> Result<PathBuf, String> {
    let folder = spec
        .strip_prefix("llama.cpp=")
        .ok_or_else(|| format!("--peer {spec}: use llama.cpp=DIR"))?;
    let candidates = [
        Path::new(folder).join("bin/llama-bench"),
        Path::new(folder).join("llama-bench"),
    ];
    candidates
        .into_iter()
        .find(|p| p.is_file())
        .ok_or_else(|| format!("--peer: no llama-bench in {folder}"))
}

/// Prefill and decode in tokens per second.
fn glia_once(program: &Path, model: &Path, args: &Args, threads: usize) -> Result<[f64; 2], String> {
    let mut command = Command::new(program);
    command.arg("bench").arg(model).args(["--json", "--reps", "1"]);
    command.args([
        "--prefill",
        &args.prefill.to_string(),
        "--decode",
        &args.decode.to_string(),
    ]);
    command.args(["--threads", &threads.to_string()]);
    let rows: Value = serde_json::from_str(&sh::output(command)?).map_err(|e| format!("glia bench: {e}"))?;
    let rate = |prefix: &str| {
        let row = rows
            .as_array()?
            .iter()
            .find(|r| r["test"].as_str().is_some_and(|t| t.starts_with(prefix)))?;
        row["tok_per_s"].as_f64()
    };
    both(rate("pp"), rate("tg"), "glia bench")
}

fn peer_once(program: &Path, model: &Path, args: &Args, threads: usize) -> Result<[f64; 2], String> {
    let mut command = Command::new(program);
    command
        .arg("-m")
        .arg(model)
        .args(["-r", "1", "-o", "json", "-t", &threads.to_string()]);
    command.args(["-p", &args.prefill.to_string(), "-n", &args.decode.to_string()]);
    let rows: Value = serde_json::from_str(&sh::output(command)?).map_err(|e| format!("llama-bench: {e}"))?;
    let rate = |field: &str| {
        let row = rows
            .as_array()?
            .iter()
            .find(|r| r[field].as_u64().is_some_and(|n| n > 0))?;
        row["avg_ts"].as_f64()
    };
    both(rate("n_prompt"), rate("n_gen"), "llama-bench")
}

fn both(prefill: Option<f64>, decode: Option<f64>, who: &str) -> Result<[f64; 2], String> {
    match (prefill, decode) {
        (Some(p), Some(d)) => Ok([p, d]),
        _ => Err(format!("{who}: the JSON lacks a prefill or a decode row")),
    }
}

/// The middle value; NaN of none.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}

fn cell(values: &mut [f64]) -> String {
    let middle = median(values);
    match (values.first(), values.last()) {
        (Some(low), Some(high)) => format!("{middle:.1} ({low:.1}-{high:.1})"),
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0]), 2.5);
        assert_eq!(cell(&mut [2.0, 1.0, 3.0]), "2.0 (1.0-3.0)");
        assert_eq!(cell(&mut []), "-");
    }
}
