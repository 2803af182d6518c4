//! Tokens per second of whole models beside a peer, in turns.

use super::figures::{cell, median, ratio};
use super::programs::{Glia, LlamaCpp, Test};
use super::{Args, model_name, saved};
use crate::Outcome;

/// Measures and prints one row per model, thread count and test.
pub fn run(args: &Args) -> Outcome {
    let tests = tests(args)?;
    let peer = args.peer.as_deref().map(LlamaCpp::find).transpose()?;
    args.save.as_deref().map_or(Ok(()), saved::check)?;
    let baseline = args.baseline.as_deref().map(saved::read).transpose()?;
    let glia = Glia::build()?;
    println!(
        "{:<34} {:<12} {:>7} {:>6} {:>26} {:>26} {:>6} {:>8}",
        "model", "test", "threads", "rounds", "glia tok/s (min-max)", "peer tok/s (min-max)", "ratio", "baseline"
    );
    let mut rows = saved::Medians::new();
    for model in &args.model {
        let name = model_name(model);
        for &threads in &args.threads {
            let mut ours = vec![Vec::new(); tests.len()];
            let mut theirs = ours.clone();
            for _ in 0..args.rounds {
                add(&mut ours, glia.once(model, &tests, threads)?);
                if let Some(peer) = &peer {
                    add(&mut theirs, peer.once(model, &tests, threads)?);
                }
            }
            for (test, (a, b)) in tests.iter().zip(ours.iter_mut().zip(&mut theirs)) {
                let key = format!("{name} {test} {threads}");
                let before = baseline.as_ref().and_then(|b| b.get(&key)).copied().unwrap_or(f64::NAN);
                let (rounds, a_text, b_text) = (a.len(), cell(a, 1), cell(b, 1));
                let (vs_peer, vs_before) = (ratio(median(a) / median(b)), ratio(median(a) / before));
                println!(
                    "{name:<34} {:<12} {threads:>7} {rounds:>6} {a_text:>26} {b_text:>26} {vs_peer:>6} {vs_before:>8}",
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

fn tests(args: &Args) -> Result<Vec<Test>, String> {
    let n = args.decode;
    if n == 0 && !args.batch.is_empty() {
        return Err("--batch needs --decode above 0: it says how many tokens each sequence decodes".to_owned());
    }
    if args.batch.contains(&0) {
        return Err("--batch must be at least 1: it counts sequences".to_owned());
    }
    let mut tests = Vec::new();
    if args.prefill > 0 {
        tests.push(Test::Prefill(args.prefill));
    }
    if n > 0 {
        tests.extend(args.depth.iter().map(|&depth| Test::Decode { n, depth }));
    }
    let depth = args.batch_prompt;
    tests.extend(args.batch.iter().map(|&n_seqs| Test::Batch { n, n_seqs, depth }));
    match tests.is_empty() {
        true => Err("nothing to measure: give --prefill or --decode".to_owned()),
        false => Ok(tests),
    }
}

fn add(to: &mut [Vec<f64>], rates: Vec<f64>) {
    to.iter_mut().zip(rates).for_each(|(list, x)| list.push(x));
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

    fn parse(flags: &[&str]) -> Args {
        Line::parse_from([&["bench", "--model", "m.gguf"], flags].concat()).args
    }

    #[test]
    fn flags_become_tests() {
        let args = parse(&["--batch", "8,16", "--depth", "0,2048", "--prefill", "0"]);
        let names: Vec<String> = tests(&args).unwrap().iter().map(Test::to_string).collect();
        assert_eq!(names, ["tg64", "tg64 @ d2048", "tg64 x8", "tg64 x16"]);
        assert!(tests(&parse(&["--prefill", "0", "--decode", "0"])).is_err());
        assert!(tests(&parse(&["--batch", "8", "--decode", "0"])).is_err());
        assert!(tests(&parse(&["--batch", "0"])).is_err());
        // Medians are of enough turns unless fewer are asked for.
        assert!(args.rounds >= 7);
    }
}
