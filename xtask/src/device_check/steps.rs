//! Which programs a check runs, in which order, and how much of the time each may take.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::judge::{self, Facts};
use super::prepare::SUITES;

/// Backends of whole models: the device first, the CPU for what it does not run.
const DEVICE: &str = "wgpu,cpu";

/// A program, what it shows, and its share of the time.
pub struct Step {
    /// For people.
    pub name: String,
    /// Its part of the time, beside those of the others.
    pub weight: u32,
    /// What runs.
    pub command: Command,
    kind: Kind,
    model: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Suite,
    Ops,
    Goldens,
    FirstToken,
    Comparison { fast: bool },
    Bench(&'static str),
}

/// What the steps are made from.
#[derive(Debug)]
pub struct Plan<'a> {
    /// Where the programs and golden models are.
    pub folder: &'a Path,
    /// Where steps may write.
    pub results: &'a Path,
    /// `demo`, files and folders.
    pub models: &'a [PathBuf],
    /// Fewer tokens, for an adapter that is software.
    pub is_software: bool,
}

impl Plan<'_> {
    /// All steps. Those that say most come first, in case the time does not suffice.
    pub fn steps(&self) -> Vec<Step> {
        let mut steps = vec![self.suite(SUITES[0], "conformance suite, all features", 12)];
        for model in self.models {
            self.model(model, &mut steps);
        }
        steps.push(self.suite(SUITES[1], "conformance suite, masked to the WebGPU baseline", 12));
        for backends in [DEVICE, "wgpu:baseline,cpu"] {
            let mut command = Command::new(self.folder.join("xtask"));
            command.arg("goldens").arg(self.folder.join("goldens"));
            command.args(["--filter", "models/", "--backend", backends]);
            steps.push(step(format!("golden models on {backends}"), 2, command, Kind::Goldens));
        }
        let mut ops = Command::new(self.folder.join(SUITES[0]));
        ops.args(["--bench", "/speed"]);
        steps.push(step("speed of single ops".to_owned(), 2, ops, Kind::Ops));
        steps
    }

    fn suite(&self, program: &str, name: &str, weight: u32) -> Step {
        let command = Command::new(self.folder.join(program));
        step(name.to_owned(), weight, command, Kind::Suite)
    }

    /// The demo model is small: it shows that all is well, not how fast.
    fn model(&self, model: &Path, steps: &mut Vec<Step>) {
        let name = name_of(model);
        let is_small = model == Path::new("demo");
        let weight = if is_small { 1 } else { 2 };
        let mut add = |what: String, weight: u32, command: Command, kind: Kind| {
            let mut step = step(what, weight, command, kind);
            step.model.clone_from(&name);
            steps.push(step);
        };
        // Compiled pipelines are kept by the first process; the second finds them.
        for process in ["a new process, no pipelines kept", "another process, pipelines kept"] {
            let mut command = Command::new(self.folder.join("xtask"));
            command.arg("first-token").arg(model);
            command
                .arg("--pipelines")
                .arg(self.results.join("pipelines").join(&name));
            add(
                format!("first tokens of {name}: {process}"),
                weight,
                command,
                Kind::FirstToken,
            );
        }
        for fast in [false, true] {
            let mut command = Command::new(self.folder.join("glia"));
            command
                .arg("compare")
                .arg(model)
                .args(["--json", "--backends", "cpu,wgpu+cpu"]);
            if self.is_software {
                command.args(["--tokens", "16", "--decode", "2"]);
            }
            let precision = if fast { "fast" } else { "exact" };
            command.args(["--precision", precision]);
            if !fast {
                command.args(["--limit", judge::EXACT_LIMIT]);
            }
            add(
                format!("{name} beside the CPU, {precision}"),
                weight,
                command,
                Kind::Comparison { fast },
            );
        }
        let (prefill, decode, depth, reps) = match (self.is_software, is_small) {
            (true, _) => ("32", "8", "0", "1"),
            (false, true) => ("128", "64", "0", "3"),
            (false, false) => ("512", "64", "0,1024", "3"),
        };
        let kinds = [("wgpu", DEVICE, prefill, depth, reps), ("cpu", "cpu", "128", "0", "1")];
        for (kind, backends, prefill, depth, reps) in kinds {
            let mut command = Command::new(self.folder.join("glia"));
            command.arg("bench").arg(model).args(["--json", "--backend", backends]);
            let prefill = if self.is_software { "32" } else { prefill };
            command.args([
                "--prefill",
                prefill,
                "--decode",
                decode,
                "--depth",
                depth,
                "--reps",
                reps,
            ]);
            add(
                format!("speed of {name} on {backends}"),
                weight,
                command,
                Kind::Bench(kind),
            );
        }
    }
}

fn step(name: String, weight: u32, command: Command, kind: Kind) -> Step {
    Step {
        name,
        weight,
        command,
        kind,
        model: String::new(),
    }
}

impl Step {
    /// What the output says.
    pub fn judge(&self, facts: &mut Facts, stdout: &str) -> Result<String, String> {
        match self.kind {
            Kind::Suite | Kind::Ops => judge::suite(stdout),
            Kind::Goldens => judge::goldens(stdout),
            Kind::FirstToken => facts.first_token(&self.model, stdout),
            Kind::Comparison { fast } => judge::comparison(stdout, fast),
            Kind::Bench(backend) => facts.bench(&self.model, backend, stdout),
        }
    }

    /// Whether the whole output is for people to read.
    pub fn is_shown(&self) -> bool {
        self.kind == Kind::Ops
    }
}

/// How a model is called in tables.
fn name_of(model: &Path) -> String {
    model.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The demo model, those that were carried, and those that are named.
pub fn models(folder: &Path, named: &[PathBuf]) -> Vec<PathBuf> {
    let mut all = vec![PathBuf::from("demo")];
    let entries = std::fs::read_dir(folder.join("models")).into_iter().flatten().flatten();
    let is_model = |path: &PathBuf| path.extension() == Some(OsStr::new("gguf")) || path.join("config.json").exists();
    let mut carried: Vec<PathBuf> = entries.map(|e| e.path()).filter(is_model).collect();
    carried.sort();
    all.extend(carried.into_iter().chain(named.iter().cloned()));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device_check::tests::Folder;
    use crate::sh;

    fn lines(models: &[PathBuf], is_software: bool) -> Vec<String> {
        let plan = Plan {
            folder: Path::new("f"),
            results: Path::new("r"),
            models,
            is_software,
        };
        plan.steps().iter().map(|s| sh::show(&s.command)).collect()
    }

    #[test]
    fn a_check_runs_the_suites_and_every_model() {
        let lines = lines(&["demo".into(), "m/a.gguf".into()], false);
        let has = |line: &str| assert!(lines.iter().any(|l| l == line), "{line} is not among {lines:#?}");
        has("conformance");
        has("conformance_baseline");
        has("conformance --bench /speed");
        has("xtask goldens f/goldens --filter models/ --backend wgpu,cpu");
        has("xtask goldens f/goldens --filter models/ --backend wgpu:baseline,cpu");
        has("xtask first-token m/a.gguf --pipelines r/pipelines/a.gguf");
        has("glia compare demo --json --backends cpu,wgpu+cpu --precision exact --limit 1e-3");
        has("glia compare m/a.gguf --json --backends cpu,wgpu+cpu --precision fast");
        has("glia bench m/a.gguf --json --backend wgpu,cpu --prefill 512 --decode 64 --depth 0,1024 --reps 3");
        has("glia bench m/a.gguf --json --backend cpu --prefill 128 --decode 64 --depth 0 --reps 1");
        // Costs of a token are known before its speed.
        let at = |part: &str| lines.iter().position(|l| l.contains(part));
        assert!(at("first-token m/a.gguf") < at("bench m/a.gguf"));
    }

    #[test]
    fn software_is_given_less_to_do() {
        let lines = lines(&["a.gguf".into()], true);
        assert!(
            lines
                .iter()
                .any(|l| l.contains("--prefill 32 --decode 8 --depth 0 --reps 1")),
            "{lines:#?}"
        );
    }

    #[test]
    fn carried_models_are_found() {
        let folder = Folder::new("models");
        folder.write("models/b.gguf", "");
        folder.write("models/a/config.json", "");
        folder.write("models/notes.txt", "");
        let all = models(&folder.join("."), &["c.gguf".into()]);
        let names: Vec<String> = all.iter().map(|m| name_of(m)).collect();
        assert_eq!(names, ["demo", "a", "b.gguf", "c.gguf"]);
    }
}
