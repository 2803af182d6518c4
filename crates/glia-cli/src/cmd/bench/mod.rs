//! `glia bench`: prefill, decode and batched decode speed of a model on this machine.

pub mod work;

use std::io::Write;

use glia_model::{Model, Options};

use super::{backends, engine};
use crate::args::BenchArgs;
use crate::closest::shortened;
use crate::exit::CliError;
use crate::ui;

/// More sequences than this would only be a way to run out of memory.
const MAX_BATCH: usize = 1024;
/// More repetitions than this would not end.
const MAX_REPS: usize = 10_000;

/// Tokens by which caches grow.
const BLOCK: usize = 64;

/// Work that is done once and gives tokens per second.
type Once<'a> = Box<dyn Fn(&Model) -> Result<f64, CliError> + 'a>;

/// A line of the table: its name and its work.
struct Test<'a> {
    name: String,
    once: Once<'a>,
}

struct Row {
    test: String,
    rates: Vec<f64>,
}

/// What was measured on.
struct Machine {
    /// The list of backends as it was given.
    backend: String,
    /// Those of the CPU.
    threads: usize,
}

/// Measures and prints a table.
pub fn run(args: &BenchArgs) -> Result<(), CliError> {
    check(args)?;
    let ctx = context(args);
    let options = engine::options(&args.engine, ctx)?;
    check_memory(args, &options)?;
    let (model, _) =
        engine::open_with(Some(&args.model), options, false, ctx).map_err(|e| match e.is_of_context() {
            true => e.with_help(
                "here the context is the longest of --prefill, of --depth with --decode and of --batch-prompt with \
                 --decode, and one",
            ),
            false => e,
        })?;
    let threads = backends::cpu(&[], &args.engine)?.n_threads();
    let mut rows = Vec::new();
    let bar = ui::spinner("measuring");
    for test in tests(args) {
        // The first run touches the weights and grows the arena: it warms up and does not count.
        (test.once)(&model)?;
        let rates = (0..args.reps).map(|_| (test.once)(&model)).collect::<Result<_, _>>()?;
        let test = test.name;
        rows.push(Row { test, rates });
    }
    bar.finish_and_clear();
    let machine = Machine {
        backend: shortened(&args.engine.backend),
        threads,
    };
    print(&mut rows, &machine, args.json)
}

fn check(args: &BenchArgs) -> Result<(), CliError> {
    let refuse = |reason: &str| Err(CliError::usage(reason));
    if args.reps == 0 {
        return refuse("--reps must be at least 1");
    }
    if args.reps > MAX_REPS {
        return refuse(&format!("--reps must be at most {MAX_REPS}"));
    }
    if args.batch.contains(&0) {
        return refuse("--batch must be at least 1: it counts sequences");
    }
    if args.batch.iter().any(|&n| n > MAX_BATCH) {
        return refuse(&format!("--batch must be at most {MAX_BATCH} sequences"));
    }
    if args.decode == 0 && !args.batch.is_empty() {
        return refuse("--batch needs --decode above 0: it says how many tokens each sequence decodes");
    }
    if args.decode == 0 && args.prefill.iter().all(|&n| n == 0) {
        return refuse("nothing to measure: give --prefill or --decode a number above 0");
    }
    Ok(())
}

/// Refuses sequences of a batch that together need more memory than there is, before any of them is begun.
fn check_memory(args: &BenchArgs, options: &Options) -> Result<(), CliError> {
    let Some(&most) = args.batch.iter().max() else {
        return Ok(());
    };
    // Caches grow by blocks of this many tokens.
    let each = args.batch_prompt.saturating_add(args.decode).saturating_add(BLOCK - 1) / BLOCK * BLOCK;
    let file = engine::open_file(&engine::locate(Some(&args.model), false)?, options)?;
    file.check_memory(options, most.saturating_mul(each)).map_err(|e| {
        CliError::from(e).with_help(
            "here the context is that of all sequences of --batch, each of --batch-prompt with --decode tokens",
        )
    })
}

/// Tokens that the longest sequence of any test has, and one.
fn context(args: &BenchArgs) -> usize {
    let most = |list: &[usize]| list.iter().copied().max().unwrap_or(0);
    let batch_prompt = if args.batch.is_empty() { 0 } else { args.batch_prompt };
    let deepest = most(&args.depth).max(batch_prompt).saturating_add(args.decode);
    most(&args.prefill).max(deepest).max(1).saturating_add(1)
}

fn tests(args: &BenchArgs) -> Vec<Test<'_>> {
    let mut tests: Vec<Test<'_>> = Vec::new();
    let n = args.decode;
    for &n in args.prefill.iter().filter(|&&n| n > 0) {
        tests.push(Test {
            name: format!("pp{n}"),
            once: Box::new(move |model| work::prefill(model, n)),
        });
    }
    for &depth in args.depth.iter().filter(|_| n > 0) {
        tests.push(Test {
            name: match depth {
                0 => format!("tg{n}"),
                _ => format!("tg{n} @ d{depth}"),
            },
            once: Box::new(move |model| work::decode(model, depth, n)),
        });
    }
    for &n_seqs in &args.batch {
        tests.push(Test {
            name: format!("tg{n} x{n_seqs}"),
            once: Box::new(move |model| work::batched(model, n_seqs, args.batch_prompt, n)),
        });
    }
    tests
}

fn print(rows: &mut [Row], machine: &Machine, json: bool) -> Result<(), CliError> {
    let Machine { backend, threads } = machine;
    let mut out = ui::stdout();
    let mut list = Vec::new();
    if !json {
        writeln!(
            out,
            "{:<14} {:>7} {:>10} {:>10} {:>10}  backend",
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
                "test": row.test, "backend": backend, "threads": threads, "tok_per_s": median, "min": min, "max": max,
            }));
        } else {
            writeln!(
                out,
                "{:<14} {threads:>7} {median:>10.2} {min:>10.2} {max:>10.2}  {backend}",
                row.test
            )?;
        }
    }
    if json {
        writeln!(out, "{}", serde_json::Value::from(list))?;
    }
    Ok(out.finish()?)
}
