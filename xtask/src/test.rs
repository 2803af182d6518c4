//! `cargo xtask test`: every test of the workspace, then the golden cases; what was skipped is listed and counted.
//!
//! A test that cannot run prints one line with `SKIP: ` (or `skipped: `) and the reason. Output is not captured, so that the lines arrive.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Mutex;

use crate::{Outcome, goldens, sh};

/// Runs everything; the first failure does not hide the others.
pub fn run() -> Outcome {
    let mut skips = Skips::default();
    let mut failed = Vec::new();
    if let Err(error) = tests(&skips) {
        failed.push(error);
    }
    let mut folders = vec![sh::root().join("goldens")];
    folders.extend(std::env::var_os("GLIA_GOLDENS").map(PathBuf::from));
    for folder in folders {
        let (outcome, left_out) = goldens::run_folder(&folder);
        left_out.into_iter().for_each(|reason| skips.add(reason));
        failed.extend(outcome.err());
    }
    skips.print();
    if failed.is_empty() {
        Ok(())
    } else {
        Err(failed.join("; "))
    }
}

fn tests(skips: &Skips) -> Outcome {
    let mut command = sh::cargo(&[
        "test",
        "--workspace",
        "--all-features",
        "--no-fail-fast",
        "--",
        "--nocapture",
    ]);
    eprintln!("+ {}", sh::show(&command));
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("cargo test could not start: {e}"))?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    std::thread::scope(|s| {
        s.spawn(|| skips.tee(out, std::io::stdout()));
        s.spawn(|| skips.tee(err, std::io::stderr()));
    });
    let status = child.wait().map_err(|e| e.to_string())?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("cargo test ended with {status}"))
    }
}

/// Reasons and how often each was given.
#[derive(Default)]
struct Skips(Mutex<BTreeMap<String, usize>>);

impl Skips {
    /// Passes lines on and keeps the reasons.
    fn tee(&self, from: Option<impl Read>, mut to: impl Write) {
        let Some(from) = from else { return };
        for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
            let _ = to.write_all(&line).and_then(|()| to.write_all(b"\n"));
            let text = String::from_utf8_lossy(&line);
            if let Some((_, reason)) = text.split_once("SKIP: ").or_else(|| text.split_once("skipped: ")) {
                self.add(reason.trim().to_owned());
            }
        }
    }

    fn add(&self, reason: String) {
        if let Ok(mut reasons) = self.0.lock() {
            *reasons.entry(reason).or_default() += 1;
        }
    }

    fn print(&mut self) {
        let Ok(reasons) = self.0.get_mut() else { return };
        println!("\nskipped tests and golden cases: {}", reasons.values().sum::<usize>());
        for (reason, n) in reasons {
            println!("  {n} x {reason}");
        }
    }
}
