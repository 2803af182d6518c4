//! From the start of a process to the end of a run of one token, and its peak memory, beside a peer in turns.

use super::figures::{cell, median, ratio};
use super::process::{self, Cost};
use super::programs::{Glia, LlamaCpp};
use super::{Args, model_name};
use crate::Outcome;

/// Tokens of context that both programs are given.
const CTX: usize = 512;

/// Milliseconds and megabytes of each turn.
#[derive(Default)]
struct Turns {
    ms: Vec<f64>,
    mb: Vec<f64>,
}

impl Turns {
    fn add(&mut self, cost: Cost) {
        self.ms.push(cost.wall.as_secs_f64() * 1e3);
        self.mb.push(cost.peak_bytes as f64 / 1e6);
    }
}

/// Measures and prints one row per model and thread count.
pub fn run(args: &Args) -> Outcome {
    let peer = args.peer.as_deref().map(LlamaCpp::find).transpose()?;
    let glia = Glia::build()?;
    println!(
        "{:<34} {:>7} {:>6} {:>22} {:>22} {:>6} {:>9} {:>9} {:>6}",
        "model", "threads", "rounds", "glia ms (min-max)", "peer ms (min-max)", "ratio", "glia MB", "peer MB", "ratio"
    );
    for model in &args.model {
        let name = model_name(model);
        for &threads in &args.threads {
            let (mut ours, mut theirs) = (Turns::default(), Turns::default());
            // The first turn of each brings the file into the page cache and does not count.
            for round in 0..=args.rounds {
                let own = process::cost(glia.first_token(model, threads, CTX))?;
                let other = match &peer {
                    Some(peer) => Some(process::cost(peer.first_token(model, threads, CTX)?)?),
                    None => None,
                };
                if round > 0 {
                    ours.add(own);
                    other.into_iter().for_each(|cost| theirs.add(cost));
                }
            }
            let (a_ms, b_ms) = (median(&mut ours.ms), median(&mut theirs.ms));
            let (a_mb, b_mb) = (median(&mut ours.mb), median(&mut theirs.mb));
            let peer_mb = if b_mb.is_finite() {
                format!("{b_mb:.1}")
            } else {
                "-".to_owned()
            };
            println!(
                "{name:<34} {threads:>7} {:>6} {:>22} {:>22} {:>6} {a_mb:>9.1} {peer_mb:>9} {:>6}",
                ours.ms.len(),
                cell(&mut ours.ms, 0),
                cell(&mut theirs.ms, 0),
                ratio(a_ms / b_ms),
                ratio(a_mb / b_mb),
            );
        }
    }
    Ok(())
}
