//! Our own program, built for release.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::{Test, batches, decodes, parse_rows, pick, prefills, rows};
use crate::bench::process;
use crate::sh;

/// The program.
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

    fn bench(&self, model: &Path, tests: &[Test], threads: usize) -> Command {
        let mut command = Command::new(&self.0);
        command.arg("bench").arg(model).args(["--json", "--reps", "1"]);
        let prefill = prefills(tests);
        command.args(["--prefill", if prefill.is_empty() { "0" } else { &prefill }]);
        let decodes = decodes(tests);
        let batches = batches(tests);
        let n = decodes.as_ref().map(|d| d.0).or(batches.as_ref().map(|b| b.n));
        command.args(["--decode", &n.unwrap_or(0).to_string()]);
        command.args(["--depth", decodes.as_ref().map_or("0", |d| &d.1)]);
        if let Some(b) = batches {
            command.args(["--batch", &b.list, "--batch-prompt", &b.depth.to_string()]);
        }
        command.args(["--threads", &threads.to_string()]);
        command
    }

    /// One turn.
    pub fn once(&self, model: &Path, tests: &[Test], threads: usize) -> Result<Vec<f64>, String> {
        let rows = rows(self.bench(model, tests, threads))?;
        pick(tests, |test| {
            let name = test.to_string();
            rows.iter().find(|r| r["test"] == name.as_str())?["tok_per_s"].as_f64()
        })
    }

    /// Tokens per second of one test; `None` when it had not ended within the limit.
    pub fn within(&self, model: &Path, test: Test, threads: usize, limit: Duration) -> Result<Option<f64>, String> {
        let Some(text) = process::output_within(self.bench(model, &[test], threads), limit)? else {
            return Ok(None);
        };
        let rows = parse_rows("glia bench", &text)?;
        let name = test.to_string();
        let row = rows.iter().find(|r| r["test"] == name.as_str());
        let rate = row.and_then(|r| r["tok_per_s"].as_f64());
        rate.map(Some)
            .ok_or_else(|| format!("glia bench: the results lack {test}"))
    }

    /// A run that ends after the first token of an answer to a short prompt.
    pub fn first_token(&self, model: &Path, threads: usize, ctx: usize) -> Command {
        let mut command = Command::new(&self.0);
        command.arg("run").arg(model);
        command.args(["-p", "Hello", "-n", "1", "--raw", "--temperature", "0"]);
        command.args(["--ctx", &ctx.to_string(), "--threads", &threads.to_string()]);
        command
    }
}
