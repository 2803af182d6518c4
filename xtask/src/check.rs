//! `cargo xtask check`: everything that can be known without running a test.

use std::process::Command;

use crate::{Outcome, house, sh};

/// Targets that must at least type-check where they are installed.
const TARGETS: &[&str] = &[
    "aarch64-unknown-linux-gnu",
    "aarch64-apple-darwin",
    "x86_64-apple-darwin",
    "x86_64-pc-windows-msvc",
];

/// Runs every check, then names all that failed.
pub fn run() -> Outcome {
    let mut failed = Vec::new();
    let mut note = |what: &str, outcome: Outcome| {
        if let Err(error) = outcome {
            eprintln!("{error}");
            failed.push(what.to_owned());
        }
    };
    note(
        "format (cure: cargo fmt --all)",
        sh::run(sh::cargo(&["fmt", "--all", "--check"])),
    );
    note("house rules", house_rules());
    let clippy = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--all-features",
        "--",
        "-D",
        "warnings",
    ];
    note("clippy", sh::run(sh::cargo(&clippy)));
    let light = ["clippy", "--package", "xtask", "--all-targets", "--", "-D", "warnings"];
    note("clippy of xtask without its engine", sh::run(sh::cargo(&light)));
    let mut doc = sh::cargo(&["doc", "--workspace", "--no-deps", "--all-features"]);
    doc.env("RUSTDOCFLAGS", "-D warnings");
    note("documentation", sh::run(doc));
    note("other targets", targets());
    if failed.is_empty() {
        Ok(())
    } else {
        Err(format!("failed: {}", failed.join(", ")))
    }
}

fn house_rules() -> Outcome {
    let report = house::inspect(&sh::root(), &sh::metadata()?);
    report.warnings.iter().for_each(|w| eprintln!("warning: {w}"));
    if report.errors.is_empty() {
        Ok(())
    } else {
        Err(report.errors.join("\n"))
    }
}

fn targets() -> Outcome {
    let installed = installed_targets();
    let mut n_skipped = 0;
    for target in TARGETS {
        if installed.iter().any(|i| i == target) {
            sh::run(sh::cargo(&["check", "--workspace", "--target", target]))?;
        } else {
            n_skipped += 1;
            eprintln!("SKIP: cargo check for {target}: not installed (rustup target add {target})");
        }
    }
    eprintln!(
        "other targets: {} checked, {n_skipped} skipped",
        TARGETS.len() - n_skipped
    );
    Ok(())
}

/// Empty where rustup does not manage the toolchain.
fn installed_targets() -> Vec<String> {
    let output = Command::new("rustup").args(["target", "list", "--installed"]).output();
    let text = output
        .map(|o| String::from_utf8_lossy(&o.stdout).into_owned())
        .unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}
