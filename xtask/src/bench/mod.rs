//! `cargo xtask bench`: criterion benches, or whole models beside a peer in turns (A B A B), so that both see the same
//! machine. Prints medians, spread and the ratio; saves our own figures and compares with saved ones.

mod programs;
mod saved;

use std::path::PathBuf;

use crate::{Outcome, sh};
use programs::{Glia, LlamaCpp, Test};

/// What to measure.
#[derive(clap::Args)]
pub struct Args {
    /// Run only the criterion benches whose name holds this, such as `q4_k` or `rows-512`
    #[arg(conflicts_with = "model")]
    name: Option<String>,
    /// Measure whole models; without it the criterion benches run
    #[arg(long, value_name = "FILE", num_args = 1..)]
    model: Vec<PathBuf>,
    /// A peer and the folder of its programs: `llama.cpp=DIR`
    #[arg(long)]
    peer: Option<String>,
    /// Tokens of the prompt; 0 leaves it out
    #[arg(long, default_value_t = 512)]
    prefill: usize,
    /// Tokens to decode; 0 leaves it out
    #[arg(long, default_value_t = 64)]
    decode: usize,
    /// Tokens that are in the cache before decoding, separated by commas
    #[arg(long, value_delimiter = ',', default_values_t = [0])]
    depth: Vec<usize>,
    /// Thread counts, separated by commas
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2])]
    threads: Vec<usize>,
    /// Turns per program
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Save our medians as JSON
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Compare with saved medians
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
}

/// Measures and prints one row per model, thread count and test.
pub fn run(args: &Args) -> Outcome {
    if args.model.is_empty() {
        let mut bench = sh::cargo(&["bench", "--workspace", "--bench", "*"]);
        bench.args(args.name.iter().flat_map(|name| ["--", name]));
        return sh::run(bench);
    }
    let peer = args.peer.as_deref().map(LlamaCpp::find).transpose()?;
    let baseline = args.baseline.as_deref().map(saved::read).transpose()?;
    let glia = Glia::build()?;
    let mut tests = Vec::new();
    if args.prefill > 0 {
        tests.push(Test::Prefill(args.prefill));
    }
    if args.decode > 0 {
        tests.extend(args.depth.iter().map(|&depth| Test::Decode { n: args.decode, depth }));
    }
    if tests.is_empty() {
        return Err("nothing to measure: give --prefill or --decode".to_owned());
    }
    println!(
        "{:<34} {:<12} {:>7} {:>26} {:>26} {:>6} {:>8}",
        "model", "test", "threads", "glia tok/s (spread)", "peer tok/s (spread)", "ratio", "baseline"
    );
    let mut rows = saved::Medians::new();
    for model in &args.model {
        let name = model.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for &threads in &args.threads {
            let mut ours = vec![Vec::new(); tests.len()];
            let mut theirs = ours.clone();
            for _ in 0..args.rounds.max(1) {
                add(&mut ours, glia.once(model, &tests, threads)?);
                if let Some(peer) = &peer {
                    add(&mut theirs, peer.once(model, &tests, threads)?);
                }
            }
            for (test, (a, b)) in tests.iter().zip(ours.iter_mut().zip(&mut theirs)) {
                let key = format!("{name} {test} {threads}");
                let before = baseline.as_ref().and_then(|b| b.get(&key)).copied().unwrap_or(f64::NAN);
                let (a_text, b_text) = (cell(a), cell(b));
                let (vs_peer, vs_before) = (ratio(median(a) / median(b)), ratio(median(a) / before));
                println!(
                    "{name:<34} {:<12} {threads:>7} {a_text:>26} {b_text:>26} {vs_peer:>6} {vs_before:>8}",
                    test.to_string()
                );
                rows.insert(key, median(a));
            }
        }
    }
    match &args.save {
        Some(path) => saved::write(path, &rows),
        None => Ok(()),
    }
}

fn add(to: &mut [Vec<f64>], rates: Vec<f64>) {
    to.iter_mut().zip(rates).for_each(|(list, x)| list.push(x));
}

fn ratio(x: f64) -> String {
    if x.is_finite() {
        format!("{x:.2}")
    } else {
        "-".to_owned()
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
        assert_eq!(ratio(1.234), "1.23");
        assert_eq!(ratio(f64::NAN), "-");
    }
}
