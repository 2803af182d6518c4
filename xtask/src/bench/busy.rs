//! Decoding while other processes keep the cores busy: what is left of the speed that a program has alone.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::figures::{cell, median, ratio};
use super::programs::{Glia, LlamaCpp, Test};
use super::{Args, model_name};
use crate::Outcome;

/// A run that has not ended by then is stuck: it is killed and counts as a speed of 0.
const LIMIT: Duration = Duration::from_secs(90);

/// Processes that spin. They end when they are dropped, and also when this process ends in any other way: each of them
/// waits for the end of its stdin.
struct Spinners(Vec<Child>);

impl Spinners {
    fn start(n: usize, command: impl Fn() -> std::io::Result<Command>) -> Result<Spinners, String> {
        let mut spinners = Spinners(Vec::new());
        for _ in 0..n {
            let spawned = command().and_then(|mut c| c.stdin(Stdio::piped()).stdout(Stdio::null()).spawn());
            spinners.0.push(spawned.map_err(|e| format!("a busy process: {e}"))?);
        }
        Ok(spinners)
    }

    fn of_this_program(n: usize) -> Result<Spinners, String> {
        Spinners::start(n, || {
            let mut command = Command::new(std::env::current_exe()?);
            command.arg("spin");
            Ok(command)
        })
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// `cargo xtask spin`: keeps a core busy until stdin ends.
pub fn spin() -> Outcome {
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        std::process::exit(0);
    });
    let mut x = 0u64;
    loop {
        x = std::hint::black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}

/// Rates of one program with one number of busy processes.
#[derive(Clone, Default)]
struct Turns {
    rates: Vec<f64>,
    n_stuck: usize,
}

impl Turns {
    fn add(&mut self, rate: Option<f64>) {
        self.n_stuck += usize::from(rate.is_none());
        self.rates.push(rate.unwrap_or(0.0));
    }
}

/// Measures and prints one row per model, thread count, program and number of busy processes.
pub fn run(args: &Args) -> Outcome {
    let (n, depth) = (args.decode, args.depth.first().copied().unwrap_or(0));
    if n == 0 {
        return Err("--busy measures decoding: give --decode a number above 0".to_owned());
    }
    let test = Test::Decode { n, depth };
    let peer = args.peer.as_deref().map(LlamaCpp::find).transpose()?;
    let glia = Glia::build()?;
    // Alone first: what the others are divided by.
    let counts: Vec<usize> = std::iter::once(0)
        .chain(args.busy.iter().copied().filter(|&n| n > 0))
        .collect();
    println!(
        "{:<34} {:<12} {:>7} {:<10} {:>5} {:>6} {:>26} {:>6} {:>6}",
        "model", "test", "threads", "program", "busy", "rounds", "tok/s (min-max)", "share", "stuck"
    );
    for model in &args.model {
        let name = model_name(model);
        for &threads in &args.threads {
            let mut ours = vec![Turns::default(); counts.len()];
            let mut theirs = ours.clone();
            for _ in 0..args.rounds {
                for (i, &busy) in counts.iter().enumerate() {
                    let _spinners = Spinners::of_this_program(busy)?;
                    ours[i].add(glia.within(model, test, threads, LIMIT)?);
                    if let Some(peer) = &peer {
                        theirs[i].add(peer.within(model, test, threads, LIMIT)?);
                    }
                }
            }
            for (program, turns) in [("glia", &mut ours), ("llama.cpp", &mut theirs)] {
                let alone = median(&mut turns[0].rates);
                for (turn, busy) in turns.iter_mut().zip(&counts).filter(|(t, _)| !t.rates.is_empty()) {
                    let share = ratio(median(&mut turn.rates) / alone);
                    println!(
                        "{name:<34} {:<12} {threads:>7} {program:<10} {busy:>5} {:>6} {:>26} {share:>6} {:>6}",
                        test.to_string(),
                        turn.rates.len(),
                        cell(&mut turn.rates, 1),
                        turn.n_stuck,
                    );
                }
            }
        }
    }
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn busy_processes_end_with_their_owner() {
        // `cat` waits for the end of its stdin, as a spinner does.
        let spinners = Spinners::start(2, || Ok(Command::new("cat"))).unwrap();
        assert_eq!(spinners.0.len(), 2);
        drop(spinners);
        let mut orphans = Spinners::start(1, || Ok(Command::new("cat"))).unwrap();
        let mut child = orphans.0.remove(0);
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
        assert!(Spinners::start(1, || Ok(Command::new("no/such/program"))).is_err());
    }

    #[test]
    fn runs_that_are_stuck_count_as_no_speed() {
        let mut turns = Turns::default();
        [Some(4.0), None, Some(2.0)]
            .into_iter()
            .for_each(|rate| turns.add(rate));
        assert_eq!((median(&mut turns.rates), turns.n_stuck), (2.0, 1));
    }
}
