//! llama.cpp's programs: `llama-bench`, `llama-batched-bench` and `llama-completion`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::{Test, batches, decodes, parse_rows, pick, prefills, rows};
use crate::bench::process;
use crate::sh;

/// A folder of its programs.
pub struct LlamaCpp(PathBuf);

impl LlamaCpp {
    /// Finds it from `llama.cpp=DIR`.
    pub fn find(spec: &str) -> Result<LlamaCpp, String> {
        let folder = spec
            .strip_prefix("llama.cpp=")
            .ok_or_else(|| format!("--peer {spec}: use llama.cpp=DIR"))?;
        let mut candidates = [Path::new(folder).join("bin"), folder.into()].into_iter();
        let found = candidates.find(|p| p.join("llama-bench").is_file());
        found
            .map(LlamaCpp)
            .ok_or_else(|| format!("--peer: no llama-bench in {folder}"))
    }

    fn program(&self, name: &str) -> Result<Command, String> {
        let path = self.0.join(name);
        match path.is_file() {
            true => Ok(Command::new(path)),
            false => Err(format!("--peer: no {name} in {}: build it too", self.0.display())),
        }
    }

    fn bench(&self, model: &Path, threads: usize) -> Result<Command, String> {
        let mut command = self.program("llama-bench")?;
        command.arg("-m").arg(model);
        command.args(["-r", "1", "-o", "json", "-t", &threads.to_string()]);
        Ok(command)
    }

    /// One turn.
    pub fn once(&self, model: &Path, tests: &[Test], threads: usize) -> Result<Vec<f64>, String> {
        let mut all = Vec::new();
        let prefill = prefills(tests);
        if !prefill.is_empty() {
            let mut command = self.bench(model, threads)?;
            command.args(["-p", &prefill, "-n", "0"]);
            all.extend(rows(command)?);
        }
        if let Some((n, depths)) = decodes(tests) {
            let mut command = self.bench(model, threads)?;
            command.args(["-p", "0", "-n", &n.to_string(), "-d", &depths]);
            all.extend(rows(command)?);
        }
        let batched = self.batched(model, tests, threads)?;
        pick(tests, |test| rate(&all, &batched, *test))
    }

    /// `llama-batched-bench`: the cache holds the whole of every sequence, as ours does.
    fn batched(&self, model: &Path, tests: &[Test], threads: usize) -> Result<Vec<Value>, String> {
        let Some(b) = batches(tests) else {
            return Ok(Vec::new());
        };
        let threads = threads.to_string();
        let cells = b.most_seqs.saturating_mul(b.depth.saturating_add(b.n));
        let mut command = self.program("llama-batched-bench")?;
        command.arg("-m").arg(model);
        command.args(["-t", &threads, "-tb", &threads, "-c", &cells.to_string()]);
        command.args(["-npp", &b.depth.to_string(), "-ntg", &b.n.to_string(), "-npl", &b.list]);
        command.args(["--output-format", "jsonl"]);
        let who = sh::show(&command);
        parse_lines(&who, &sh::output(command)?)
    }

    /// Tokens per second of decoding; `None` when it had not ended within the limit.
    pub fn within(&self, model: &Path, test: Test, threads: usize, limit: Duration) -> Result<Option<f64>, String> {
        let (n, depths) = decodes(&[test]).ok_or_else(|| format!("llama-bench: {test} is no decode test"))?;
        let mut command = self.bench(model, threads)?;
        command.args(["-p", "0", "-n", &n.to_string(), "-d", &depths]);
        let Some(text) = process::output_within(command, limit)? else {
            return Ok(None);
        };
        let rows = parse_rows("llama-bench", &text)?;
        let rate = rate(&rows, &[], test);
        rate.map(Some)
            .ok_or_else(|| format!("llama-bench: the results lack {test}"))
    }

    /// A run that ends after the first token of an answer to a short prompt.
    pub fn first_token(&self, model: &Path, threads: usize, ctx: usize) -> Result<Command, String> {
        let mut command = self.program("llama-completion")?;
        command.arg("-m").arg(model);
        command.args(["-p", "Hello", "-n", "1", "-no-cnv", "--temp", "0"]);
        command.args(["-c", &ctx.to_string(), "-t", &threads.to_string()]);
        Ok(command)
    }
}

/// The rate of a test in the rows of `llama-bench` and `llama-batched-bench`.
fn rate(rows: &[Value], batched: &[Value], test: Test) -> Option<f64> {
    let is = |r: &Value, field: &str, n: usize| r[field].as_u64().unwrap_or(0) == n as u64;
    let (prompt, new, depth) = match test {
        Test::Prefill(n) => (n, 0, 0),
        Test::Decode { n, depth } => (0, n, depth),
        Test::Batch { n, n_seqs, depth } => {
            let of = |r: &&Value| is(r, "pp", depth) && is(r, "tg", n) && is(r, "pl", n_seqs);
            return batched.iter().find(of)?["speed_tg"].as_f64();
        }
    };
    let of = |r: &&Value| is(r, "n_prompt", prompt) && is(r, "n_gen", new) && is(r, "n_depth", depth);
    rows.iter().find(of)?["avg_ts"].as_f64()
}

/// JSON objects, one a line; other lines are chatter.
fn parse_lines(who: &str, text: &str) -> Result<Vec<Value>, String> {
    let objects = text.lines().map(str::trim).filter(|line| line.starts_with('{'));
    objects
        .map(|line| serde_json::from_str(line).map_err(|e| format!("{who}: {e}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_found_in_the_rows_of_both_programs() {
        let rows = parse_rows(
            "t",
            r#"[{"n_prompt": 512, "n_gen": 0, "n_depth": 0, "avg_ts": 7.5},
                {"n_prompt": 0, "n_gen": 64, "n_depth": 2048, "avg_ts": 2.5}]"#,
        )
        .unwrap();
        let lines = "loading\n{\"pp\": 128, \"tg\": 64, \"pl\": 8, \"speed_tg\": 40.5}\n\n";
        let batched = parse_lines("t", lines).unwrap();
        let rate = |test| rate(&rows, &batched, test);
        assert_eq!(rate(Test::Prefill(512)), Some(7.5));
        assert_eq!(rate(Test::Decode { n: 64, depth: 2048 }), Some(2.5));
        assert_eq!(rate(Test::Decode { n: 64, depth: 0 }), None);
        let batch = |n_seqs| Test::Batch {
            n: 64,
            n_seqs,
            depth: 128,
        };
        assert_eq!((rate(batch(8)), rate(batch(16))), (Some(40.5), None));
        assert!(parse_lines("t", "{").is_err());
        assert!(parse_rows("t", "{}").is_err());
    }

    #[test]
    fn peers_that_are_not_there_are_named() {
        assert!(LlamaCpp::find("candle=x").err().unwrap().contains("llama.cpp=DIR"));
        assert!(LlamaCpp::find("llama.cpp=no/such").err().unwrap().contains("no/such"));
    }
}
