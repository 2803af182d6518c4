//! The programs that are measured: ours and the peers', each started anew for every turn.

mod glia;
mod llama_cpp;

use std::fmt;
use std::process::Command;

use serde_json::Value;

pub use glia::Glia;
pub use llama_cpp::LlamaCpp;

use crate::sh;

/// One measurement, in tokens per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// A prompt of so many tokens.
    Prefill(usize),
    /// `n` tokens, one at a time, after `depth` tokens.
    Decode {
        /// Tokens decoded.
        n: usize,
        /// Tokens in the cache before.
        depth: usize,
    },
    /// `n` tokens of each of several sequences, a token of each at a time.
    Batch {
        /// Tokens that each sequence decodes.
        n: usize,
        /// Sequences.
        n_seqs: usize,
        /// Tokens that each sequence has in the cache before.
        depth: usize,
    },
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Test::Prefill(n) => write!(f, "pp{n}"),
            Test::Decode { n, depth: 0 } => write!(f, "tg{n}"),
            Test::Decode { n, depth } => write!(f, "tg{n} @ d{depth}"),
            Test::Batch { n, n_seqs, .. } => write!(f, "tg{n} x{n_seqs}"),
        }
    }
}

fn list(values: impl Iterator<Item = usize>) -> String {
    let mut values: Vec<usize> = values.collect();
    values.dedup();
    values.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

fn prefills(tests: &[Test]) -> String {
    list(tests.iter().filter_map(|t| match t {
        Test::Prefill(n) => Some(*n),
        _ => None,
    }))
}

/// Tokens to decode, and the depths.
fn decodes(tests: &[Test]) -> Option<(usize, String)> {
    let decode = |t: &Test| match t {
        Test::Decode { n, depth } => Some((*n, *depth)),
        _ => None,
    };
    let n = tests.iter().find_map(decode)?.0;
    Some((n, list(tests.iter().filter_map(decode).map(|d| d.1))))
}

/// The batched tests, which differ in the number of sequences only.
struct Batches {
    n: usize,
    depth: usize,
    most_seqs: usize,
    list: String,
}

fn batches(tests: &[Test]) -> Option<Batches> {
    let batch = |t: &Test| match t {
        Test::Batch { n, n_seqs, depth } => Some((*n, *n_seqs, *depth)),
        _ => None,
    };
    let (n, _, depth) = tests.iter().find_map(batch)?;
    let seqs = || tests.iter().filter_map(batch).map(|b| b.1);
    Some(Batches {
        n,
        depth,
        most_seqs: seqs().max().unwrap_or(1),
        list: list(seqs()),
    })
}

fn rows(command: Command) -> Result<Vec<Value>, String> {
    let who = sh::show(&command);
    parse_rows(&who, &sh::output(command)?)
}

/// A JSON list.
fn parse_rows(who: &str, text: &str) -> Result<Vec<Value>, String> {
    match serde_json::from_str(text) {
        Ok(Value::Array(rows)) => Ok(rows),
        Ok(_) => Err(format!("{who}: no list of results")),
        Err(e) => Err(format!("{who}: {e}")),
    }
}

fn pick(tests: &[Test], rate: impl Fn(&Test) -> Option<f64>) -> Result<Vec<f64>, String> {
    tests
        .iter()
        .map(|t| rate(t).ok_or_else(|| format!("the results lack {t}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_become_flags() {
        let batch = |n_seqs| Test::Batch {
            n: 64,
            n_seqs,
            depth: 128,
        };
        let all = [
            Test::Prefill(512),
            Test::Decode { n: 64, depth: 0 },
            Test::Decode { n: 64, depth: 2048 },
            batch(16),
            batch(8),
        ];
        assert_eq!(prefills(&all), "512");
        assert_eq!(decodes(&all), Some((64, "0,2048".to_owned())));
        assert_eq!(decodes(&all[..1]), None);
        let b = batches(&all).unwrap();
        assert_eq!((b.n, b.depth, b.most_seqs, b.list.as_str()), (64, 128, 16, "16,8"));
        assert!(batches(&all[..3]).is_none());
        assert_eq!(all[2].to_string(), "tg64 @ d2048");
        assert_eq!(all[4].to_string(), "tg64 x8");
    }
}
