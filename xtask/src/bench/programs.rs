//! The programs that are measured: ours and the peers', each started anew for every turn.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

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
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Test::Prefill(n) => write!(f, "pp{n}"),
            Test::Decode { n, depth: 0 } => write!(f, "tg{n}"),
            Test::Decode { n, depth } => write!(f, "tg{n} @ d{depth}"),
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
        Test::Decode { .. } => None,
    }))
}

/// Tokens to decode, and the depths.
fn decodes(tests: &[Test]) -> Option<(usize, String)> {
    let decode = |t: &Test| match t {
        Test::Decode { n, depth } => Some((*n, *depth)),
        Test::Prefill(_) => None,
    };
    let n = tests.iter().find_map(decode)?.0;
    Some((n, list(tests.iter().filter_map(decode).map(|d| d.1))))
}

fn rows(command: Command) -> Result<Vec<Value>, String> {
    let who = sh::show(&command);
    match serde_json::from_str(&sh::output(command)?) {
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

/// Our own program, built for release.
pub struct Glia(PathBuf);

impl Glia {
    /// Builds it.
    pub fn build() -> Result<Glia, String> {
        sh::run(sh::cargo(&["build", "--release", "-p", "glia-cli"]))?;
        let target = sh::metadata()?["target_directory"]
            .as_str()
            .unwrap_or("target")
            .to_owned();
        let name = format!("glia{}", std::env::consts::EXE_SUFFIX);
        Ok(Glia(Path::new(&target).join("release").join(name)))
    }

    /// One turn.
    pub fn once(&self, model: &Path, tests: &[Test], threads: usize) -> Result<Vec<f64>, String> {
        let mut command = Command::new(&self.0);
        command.arg("bench").arg(model).args(["--json", "--reps", "1"]);
        let prefill = prefills(tests);
        command.args(["--prefill", if prefill.is_empty() { "0" } else { &prefill }]);
        let (n, depths) = decodes(tests).unwrap_or((0, "0".to_owned()));
        command.args(["--decode", &n.to_string(), "--depth", &depths]);
        command.args(["--threads", &threads.to_string()]);
        let rows = rows(command)?;
        pick(tests, |test| {
            let name = test.to_string();
            rows.iter().find(|r| r["test"] == name.as_str())?["tok_per_s"].as_f64()
        })
    }
}

/// llama.cpp's `llama-bench`.
pub struct LlamaCpp(PathBuf);

impl LlamaCpp {
    /// Finds it from `llama.cpp=DIR`.
    pub fn find(spec: &str) -> Result<LlamaCpp, String> {
        let folder = spec
            .strip_prefix("llama.cpp=")
            .ok_or_else(|| format!("--peer {spec}: use llama.cpp=DIR"))?;
        let candidates = [
            Path::new(folder).join("bin/llama-bench"),
            Path::new(folder).join("llama-bench"),
        ];
        let found = candidates.into_iter().find(|p| p.is_file());
        found
            .map(LlamaCpp)
            .ok_or_else(|| format!("--peer: no llama-bench in {folder}"))
    }

    /// One turn.
    pub fn once(&self, model: &Path, tests: &[Test], threads: usize) -> Result<Vec<f64>, String> {
        let start = || {
            let mut command = Command::new(&self.0);
            command.arg("-m").arg(model);
            command.args(["-r", "1", "-o", "json", "-t", &threads.to_string()]);
            command
        };
        let mut all = Vec::new();
        let prefill = prefills(tests);
        if !prefill.is_empty() {
            let mut command = start();
            command.args(["-p", &prefill, "-n", "0"]);
            all.extend(rows(command)?);
        }
        if let Some((n, depths)) = decodes(tests) {
            let mut command = start();
            command.args(["-p", "0", "-n", &n.to_string(), "-d", &depths]);
            all.extend(rows(command)?);
        }
        pick(tests, |test| {
            let (prompt, new, depth) = match *test {
                Test::Prefill(n) => (n, 0, 0),
                Test::Decode { n, depth } => (0, n, depth),
            };
            let is = |r: &Value, field: &str, n: usize| r[field].as_u64().unwrap_or(0) == n as u64;
            let row = all
                .iter()
                .find(|r| is(r, "n_prompt", prompt) && is(r, "n_gen", new) && is(r, "n_depth", depth))?;
            row["avg_ts"].as_f64()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_become_flags() {
        let all = [
            Test::Prefill(512),
            Test::Decode { n: 64, depth: 0 },
            Test::Decode { n: 64, depth: 2048 },
        ];
        assert_eq!(prefills(&all), "512");
        assert_eq!(decodes(&all), Some((64, "0,2048".to_owned())));
        assert_eq!(decodes(&all[..1]), None);
        assert_eq!(all[2].to_string(), "tg64 @ d2048");
    }
}
