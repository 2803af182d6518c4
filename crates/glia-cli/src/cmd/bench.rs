//! `glia bench`: prefill and decode speed of a model on this machine.

use std::io::Write;
use std::time::Instant;

use glia_model::{Model, WantedRows};

use super::engine;
use crate::args::BenchArgs;
use crate::exit::CliError;
use crate::ui;

struct Row {
    test: String,
    rates: Vec<f64>,
}

/// Measures and prints a table.
pub fn run(args: &BenchArgs) -> Result<(), CliError> {
    if args.reps == 0 {
        return Err(CliError::usage("--reps must be at least 1"));
    }
    if args.decode == 0 && args.prefill.iter().all(|&n| n == 0) {
        return Err(CliError::usage(
            "nothing to measure: give --prefill or --decode a number above 0",
        ));
    }
    let longest = args.prefill.iter().copied().max().unwrap_or(0);
    let deepest = args
        .depth
        .iter()
        .copied()
        .max()
        .unwrap_or(0)
        .saturating_add(args.decode);
    let ctx = longest.max(deepest).max(1).saturating_add(1);
    let model =
        engine::open_model(Some(&args.model), &args.engine, false, ctx).map_err(|e| match e.is_of_context() {
            true => e.with_help("here the context is the longest of --prefill and of --depth with --decode, and one"),
            false => e,
        })?;
    let threads = engine::cpu(&args.engine)?.n_threads();
    let mut rows = Vec::new();
    let bar = ui::spinner("measuring");
    for &n in args.prefill.iter().filter(|&&n| n > 0) {
        rows.push(Row {
            test: format!("pp{n}"),
            rates: repeat(args.reps, || prefill(&model, n))?,
        });
    }
    for &depth in args.depth.iter().filter(|_| args.decode > 0) {
        let test = if depth == 0 {
            format!("tg{}", args.decode)
        } else {
            format!("tg{} @ d{depth}", args.decode)
        };
        rows.push(Row {
            test,
            rates: repeat(args.reps, || decode(&model, depth, args.decode))?,
        });
    }
    bar.finish_and_clear();
    print(&mut rows, threads, args.json)
}

fn repeat(reps: usize, mut once: impl FnMut() -> Result<f64, CliError>) -> Result<Vec<f64>, CliError> {
    // The first run touches the weights and grows the arena: it warms up and does not count.
    once()?;
    (0..reps).map(|_| once()).collect()
}

/// Token ids that are valid in any vocabulary and not all alike.
pub fn tokens(model: &Model, n: usize) -> Vec<u32> {
    let vocab = model.n_vocab().max(1) as u64;
    (0..n as u64)
        .map(|i| (i.wrapping_mul(2_654_435_761) % vocab) as u32)
        .collect()
}

fn prefill(model: &Model, n: usize) -> Result<f64, CliError> {
    let ids = tokens(model, n);
    let mut session = model.session()?;
    let start = Instant::now();
    session.feed(&ids, &WantedRows::Last)?;
    Ok(n as f64 / start.elapsed().as_secs_f64())
}

fn decode(model: &Model, depth: usize, n: usize) -> Result<f64, CliError> {
    let ids = tokens(model, depth.max(1) + n);
    let (past, rest) = ids.split_at(depth);
    let mut session = model.session()?;
    if !past.is_empty() {
        session.feed(past, &WantedRows::Last)?;
    }
    let start = Instant::now();
    for id in &rest[..n] {
        session.feed(std::slice::from_ref(id), &WantedRows::Last)?;
    }
    Ok(n as f64 / start.elapsed().as_secs_f64())
}

fn print(rows: &mut [Row], threads: usize, json: bool) -> Result<(), CliError> {
    let mut out = ui::stdout();
    let mut list = Vec::new();
    if !json {
        writeln!(
            out,
            "{:<14} {:>7} {:>10} {:>10} {:>10}",
            "test", "threads", "tok/s", "min", "max"
        )?;
    }
    for row in rows {
        row.rates.sort_by(f64::total_cmp);
        let (n, rates) = (row.rates.len(), &row.rates);
        let median = if n % 2 == 1 {
            rates[n / 2]
        } else {
            (rates[n / 2 - 1] + rates[n / 2]) / 2.0
        };
        let (min, max) = (rates[0], rates[n - 1]);
        if json {
            list.push(serde_json::json!({
                "test": row.test, "threads": threads, "tok_per_s": median, "min": min, "max": max,
            }));
        } else {
            writeln!(
                out,
                "{:<14} {threads:>7} {median:>10.2} {min:>10.2} {max:>10.2}",
                row.test
            )?;
        }
    }
    if json {
        writeln!(out, "{}", serde_json::Value::from(list))?;
    }
    Ok(out.finish()?)
}
