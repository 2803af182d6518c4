//! `cargo xtask`: what developers and CI run. One module per command; nothing here is part of the published crates.

mod arm;
mod bench;
mod check;
#[cfg(feature = "engine")]
mod device_check;
#[cfg(not(feature = "engine"))]
mod engine;
#[cfg(feature = "engine")]
mod goldens;
mod house;
#[cfg(feature = "engine")]
mod models;
mod new_backend;
mod onnx;
mod sh;
#[cfg(feature = "engine")]
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
#[cfg(not(feature = "engine"))]
use engine::{device_check, goldens, models, test};

/// What every command returns; the text says what failed and what to do.
type Outcome = Result<(), String>;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Developer tasks of the glia workspace")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Format, lints, house rules, documentation, other targets
    Check,
    /// The CPU backend's tests for aarch64, under emulation
    CheckArm,
    /// Every test and every golden case; lists what was skipped
    Test,
    /// Criterion benches, or a whole model beside a peer
    Bench(bench::Args),
    /// Keep a core busy until stdin ends: what `bench --busy` starts
    #[command(hide = true)]
    Spin,
    /// Everything that a machine with a real GPU has to show
    DeviceCheck(Box<device_check::Args>),
    /// Time the first requests of a process: what `device-check` starts
    #[cfg(feature = "engine")]
    #[command(hide = true)]
    FirstToken(device_check::first::Args),
    /// Fetch real models into a folder
    Models(models::Args),
    /// Generate the node tests of the `onnx` package
    Onnx(onnx::Args),
    /// Run the golden cases of a folder
    Goldens(goldens::Args),
    /// Write a crate with a new backend, outside the workspace
    NewBackend(new_backend::Args),
}

fn main() -> ExitCode {
    let outcome = match Args::parse().command {
        Command::Check => check::run(),
        Command::CheckArm => arm::run(),
        Command::Test => test::run(),
        Command::Bench(args) => bench::run(&args),
        Command::Spin => bench::spin(),
        Command::DeviceCheck(args) => device_check::run(&args),
        #[cfg(feature = "engine")]
        Command::FirstToken(args) => device_check::first::run(&args),
        Command::Models(args) => models::run(&args),
        Command::Onnx(args) => onnx::run(&args),
        Command::Goldens(args) => goldens::run(&args),
        Command::NewBackend(args) => new_backend::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}
