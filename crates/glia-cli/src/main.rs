//! The `glia` program. Parses the command line and hands over to one module per command.

mod args;
mod closest;
mod cmd;
mod cure;
mod exit;
mod ui;

use clap::Parser;

fn main() -> std::process::ExitCode {
    let args = match args::Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // Help and version go to stdout with code 0, misuse to stderr with code 2.
            let code = if error.use_stderr() { exit::USAGE } else { exit::OK };
            let _ = error.print();
            return code.into();
        }
    };
    let outcome = match args.command {
        args::Command::Run(args) => cmd::run::run(&args),
        args::Command::Inspect(args) => cmd::inspect::run(&args),
        args::Command::Bench(args) => cmd::bench::run(&args),
        args::Command::Profile(args) => cmd::profile::run(&args),
        args::Command::Perplexity(args) => cmd::perplexity::run(&args),
        args::Command::Compare(args) => cmd::compare::run(&args),
        args::Command::Devices(args) => cmd::devices::run(&args),
    };
    match outcome {
        Ok(()) => exit::OK.into(),
        Err(error) => {
            ui::report(&error);
            error.code().into()
        }
    }
}
