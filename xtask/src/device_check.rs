//! `cargo xtask device-check`: what a machine with a real GPU has to show. Builds, runs the conformance suite on the
//! device, compares whole models with the CPU, and prints speeds beside the device's copy bandwidth.
//!
//! On a machine that cannot build, `--prepare DIR` before makes a folder with everything, and its `run.sh` runs there.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde_json::Value;

use crate::{Outcome, sh};

/// `cargo xtask device-check`.
#[derive(clap::Args)]
pub struct Args {
    /// Build into this folder and stop: it then holds all that `run.sh` in it needs.
    #[arg(long, value_name = "DIR", conflicts_with = "prepared")]
    prepare: Option<PathBuf>,
    /// Run what `--prepare` has built, without cargo.
    #[arg(long, value_name = "DIR")]
    prepared: Option<PathBuf>,
    /// Also compare and measure these models; the demo model always is.
    #[arg(long = "model", value_name = "FILE")]
    models: Vec<PathBuf>,
    /// Accept an adapter that is software on the processor.
    #[arg(long)]
    allow_software: bool,
}

/// Programs of the backend that run the conformance suite.
const TESTS: &[&str] = &["conformance", "conformance_baseline"];

/// Builds and runs, or one of both.
pub fn run(args: &Args) -> Outcome {
    if let Some(folder) = &args.prepared {
        return check(folder, args);
    }
    let folder = args
        .prepare
        .clone()
        .unwrap_or_else(|| sh::root().join("target/device-check"));
    build(&folder)?;
    if args.prepare.is_some() {
        println!(
            "{} is ready: carry it to the machine and run ./run.sh in it",
            folder.display()
        );
        return Ok(());
    }
    check(&folder, args)
}

fn build(folder: &Path) -> Outcome {
    std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let glia = ["build", "--release", "-p", "glia-cli", "--message-format=json"];
    let mut tests = vec!["build", "--release", "-p", "glia-backend-wgpu", "--message-format=json"];
    tests.extend(TESTS.iter().flat_map(|t| ["--example", t]));
    let mut wanted: Vec<&str> = TESTS.to_vec();
    wanted.push("glia");
    let mut copied = Vec::new();
    for command in [sh::cargo(&glia), sh::cargo(&tests)] {
        for line in sh::output(command)?.lines() {
            let Ok(message) = serde_json::from_str::<Value>(line) else {
                continue;
            };
            let (name, program) = (message["target"]["name"].as_str(), message["executable"].as_str());
            if let (Some(name), Some(program)) = (name, program)
                && wanted.contains(&name)
            {
                copy(Path::new(program), &folder.join(name))?;
                copied.push(name.to_owned());
            }
        }
    }
    if let Some(missing) = wanted.iter().find(|w| !copied.iter().any(|c| c == *w)) {
        return Err(format!("cargo built no `{missing}`"));
    }
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    copy(&own, &folder.join("xtask"))?;
    let script = folder.join("run.sh");
    let text = "#!/bin/sh\nhere=$(cd \"$(dirname \"$0\")\" && pwd)\nexec \"$here/xtask\" device-check --prepared \"$here\" \"$@\"\n";
    std::fs::write(&script, text).map_err(|e| format!("{}: {e}", script.display()))?;
    executable(&script)
}

fn copy(source: &Path, target: &Path) -> Outcome {
    std::fs::copy(source, target).map_err(|e| format!("{}: {e}", target.display()))?;
    // What is carried should be small; without `strip` it is larger.
    let _ = Command::new("strip").arg(target).status();
    Ok(())
}

#[cfg(unix)]
fn executable(file: &Path) -> Outcome {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(file, mode).map_err(|e| format!("{}: {e}", file.display()))
}

#[cfg(not(unix))]
fn executable(_file: &Path) -> Outcome {
    Ok(())
}

/// Runs everything; the first failure does not hide the others.
fn check(folder: &Path, args: &Args) -> Outcome {
    let started = Instant::now();
    let mut failed = Vec::new();
    let glia = folder.join("glia");
    println!("== devices");
    let mut devices = Command::new(&glia);
    devices.args(["devices", "--measure"]);
    let devices = sh::output(devices)?;
    println!("{devices}");
    let first = devices.lines().find(|l| l.starts_with("wgpu:0")).unwrap_or_default();
    if first.is_empty() {
        return Err("no adapter: is the driver of the GPU installed?".to_owned());
    }
    if first.contains("(software") && !args.allow_software {
        return Err("the only adapter is software on the processor (--allow-software accepts it)".to_owned());
    }
    let mut step = |what: &str, mut command: Command| {
        println!("== {what}");
        let began = Instant::now();
        match command.status() {
            Ok(status) if status.success() => {}
            Ok(status) => failed.push(format!("{what} ended with {status}")),
            Err(e) => failed.push(format!("{what}: {e}")),
        }
        println!("   {:.1} s", began.elapsed().as_secs_f64());
    };
    for test in TESTS {
        step(test, Command::new(folder.join(test)));
    }
    let mut models: Vec<PathBuf> = vec!["demo".into()];
    models.extend(args.models.iter().cloned());
    for model in &models {
        let name = model.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for precision in ["exact", "fast"] {
            let mut command = Command::new(&glia);
            command.arg("compare").arg(model);
            command.args(["--backends", "cpu,wgpu+cpu", "--precision", precision]);
            step(&format!("compare {name}, {precision}"), command);
        }
        for backend in ["wgpu,cpu", "cpu"] {
            let mut command = Command::new(&glia);
            command.arg("bench").arg(model);
            command.args([
                "--backend",
                backend,
                "--prefill",
                "256",
                "--decode",
                "64",
                "--reps",
                "3",
            ]);
            step(&format!("bench {name} on {backend}"), command);
        }
    }
    println!("== {:.0} s in all", started.elapsed().as_secs_f64());
    if failed.is_empty() {
        println!("device-check: all passed");
        Ok(())
    } else {
        Err(failed.join("; "))
    }
}
