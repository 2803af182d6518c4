//! Whole checks over programs that stand in for the real ones.

use std::path::{Path, PathBuf};

use clap::Parser;

use super::*;

/// A folder for a test, removed at its end.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("glia-device-check-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        let path = self.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

fn args(flags: &[&str]) -> Result<Args, String> {
    let line = Line::try_parse_from([&["device-check"], flags].concat());
    line.map(|l| l.args).map_err(|e| e.to_string())
}

/// Programs that print what real ones do.
#[cfg(unix)]
fn programs(name: &str, adapter: &str, suite: &str) -> Folder {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new(name);
    let glia = format!(
        "case $1 in
devices) echo 'cpu     2 threads'; echo '{adapter}'; echo 'wgpu:0 copies 100.0 GB/s, reading and writing' ;;
compare) echo '{{\"layers\": [], \"logits\": {{\"mean_kl\": 0, \"top1_agreement\": 1}}}}' ;;
bench) echo '[{{\"test\": \"tg64\", \"tok_per_s\": 500}}]' ;;
esac"
    );
    let xtask = "case $1 in
goldens) echo 'all 3 0 1' ;;
first-token) echo '{\"load_ms\": 9, \"first_token_ms\": [3, 2], \"pipelines_in_first\": 0, \"weight_bytes\": 1e8, \"ops\": 2e8, \"prompt_ops\": 2e8}' ;;
esac";
    let passes = "echo 'wgpu: 2 cases: 2 passed, 0 failed, 0 not supported'";
    let all = [
        ("glia", glia.as_str()),
        ("xtask", xtask),
        ("conformance", suite),
        ("conformance_baseline", passes),
    ];
    for (program, script) in all {
        folder.write(program, &format!("#!/bin/sh\n{script}\n"));
        std::fs::set_permissions(folder.join(program), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    folder
}

#[cfg(unix)]
fn outcome(folder: &Folder, flags: &[&str]) -> Outcome {
    let path = folder.join(".");
    let flags = [&["--prepared", path.to_str().unwrap(), "--synthetic", "0"], flags].concat();
    run(&args(&flags).unwrap())
}

const REAL: &str = "wgpu:0  NVIDIA X (discrete, vulkan, NVIDIA 570)";
const PASSES: &str = "echo 'wgpu: 2 cases: 2 passed, 0 failed, 0 not supported'";

#[cfg(unix)]
#[test]
fn a_good_machine_passes() {
    let folder = programs("good", REAL, PASSES);
    outcome(&folder, &[]).unwrap();
    let summary = std::fs::read_to_string(folder.join("results/summary.txt")).unwrap();
    assert!(
        summary.contains("50.0 %") && summary.contains("100.0 GB/s"),
        "{summary}"
    );
    let n_passed = summary.matches(" passed ").count();
    assert_eq!(
        n_passed,
        summary.lines().skip_while(|l| !l.starts_with("check")).count() - 1,
        "{summary}"
    );
}

#[cfg(unix)]
#[test]
fn failures_are_told_and_the_rest_still_runs() {
    let folder = programs(
        "bad",
        REAL,
        "echo 'RED rope/a: wrong'; echo 'wgpu: 2 cases: 1 passed'; exit 1",
    );
    let error = outcome(&folder, &[]).unwrap_err();
    assert!(
        error.contains("2 of") && error.contains("conformance suite, all features"),
        "{error}"
    );
    let summary = std::fs::read_to_string(folder.join("results/summary.txt")).unwrap();
    assert!(summary.contains("speed of demo on wgpu,cpu"), "{summary}");
}

#[cfg(unix)]
#[test]
fn what_takes_too_long_is_stopped_and_the_rest_still_runs() {
    let folder = programs("slow", REAL, "exec sleep 60");
    let error = outcome(&folder, &["--seconds", "6"]).unwrap_err();
    // Also the speed of single ops is of that program.
    assert!(error.contains("2 of"), "{error}");
    let summary = std::fs::read_to_string(folder.join("results/summary.txt")).unwrap();
    assert!(
        summary.contains(" stopped ") && summary.contains("took more than"),
        "{summary}"
    );
    assert!(summary.contains("golden models on wgpu,cpu"), "{summary}");
}

#[cfg(unix)]
#[test]
fn software_and_no_adapter_at_all_are_refused() {
    let software = "wgpu:0  llvmpipe (software, vulkan, llvmpipe)";
    let folder = programs("software", software, PASSES);
    assert!(outcome(&folder, &[]).unwrap_err().contains("--allow-software"));
    outcome(&folder, &["--allow-software"]).unwrap();
    let folder = programs("none", "wgpu    no adapter", PASSES);
    let error = outcome(&folder, &["--allow-software"]).unwrap_err();
    assert!(error.starts_with("no adapter"), "{error}");
    let folder = Folder::new("empty");
    assert!(outcome(&folder, &[]).is_err());
}

#[test]
fn flags_that_do_not_go_together_are_refused() {
    assert!(args(&["--prepare", "a", "--prepared", "b"]).is_err());
    assert!(args(&["--seconds", "0"]).is_err());
    assert_eq!(args(&[]).unwrap().seconds, 460);
    assert_eq!(args(&["--model", "a", "--model", "b"]).unwrap().models.len(), 2);
}

#[test]
fn results_of_an_earlier_check_do_not_count() {
    let folder = Folder::new("results");
    folder.write("results/pipelines/old", "");
    folder.write("results/mine", "");
    let made = results_folder(&folder.join("."), &args(&[]).unwrap()).unwrap();
    assert!(!made.join("pipelines").exists() && made.join("mine").exists());
    let text = std::fs::read_to_string(made.join("summary.txt")).unwrap();
    assert!(text.contains("not ended"));
    let elsewhere = folder.join("elsewhere");
    let named = args(&["--results", elsewhere.to_str().unwrap()]).unwrap();
    assert!(
        results_folder(Path::new("/no/such"), &named)
            .unwrap()
            .ends_with("elsewhere")
    );
}

#[test]
fn names_become_file_names() {
    assert_eq!(slug("speed of a.gguf on wgpu,cpu"), "speed-of-a-gguf-on-wgpu-cpu");
    let long = "x".repeat(500);
    assert_eq!(
        last_lines(&format!("a\n{long}")).lines().last().map(str::len),
        Some(205)
    );
    assert_eq!(last_lines(&"a\n".repeat(90)).lines().count(), SHOWN_LINES);
}
