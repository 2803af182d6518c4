//! `cargo xtask check-arm`: the CPU backend's tests, compiled for aarch64 and run under emulation.
//!
//! The emulated processor has dot products and i8mm, so that every kernel runs. Speed is not looked at.

mod tools;

use crate::{Outcome, sh};

const TARGET: &str = "aarch64-unknown-linux-gnu";

/// Compiles and runs; without the tools it prints why and passes.
pub fn run() -> Outcome {
    if cfg!(target_arch = "aarch64") {
        eprintln!("SKIP: aarch64 under emulation: this machine is one (cargo xtask test)");
        return Ok(());
    }
    let tools = match tools::find() {
        Ok(tools) => tools,
        Err(reason) => {
            eprintln!("SKIP: aarch64 under emulation: {reason}");
            return Ok(());
        }
    };
    let mut tests = sh::cargo(&[
        "test",
        "--target",
        TARGET,
        "-p",
        "glia-backend-cpu",
        "--lib",
        "--test",
        "bits",
        "--test",
        "oracle",
    ]);
    // Another compiler than that of the workspace must not share its folder.
    tests.env("CARGO_TARGET_DIR", sh::root().join("target/arm"));
    tests.env("CARGO_PROFILE_DEV_DEBUG", "0");
    let linker = tools.linker.to_string_lossy().into_owned();
    for (name, value) in [
        ("LINKER", linker.as_str()),
        ("RUNNER", &format!("{} -cpu max", tools.qemu.display())),
        // Static programs need no libraries of the other architecture to run.
        ("RUSTFLAGS", "-C target-feature=+crt-static"),
    ] {
        tests.env(format!("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_{name}"), value);
    }
    tests.env("CC_aarch64_unknown_linux_gnu", &linker);
    if let Some(rustc) = &tools.rustc {
        tests.env("RUSTC", rustc);
    }
    sh::run(tests)
}
