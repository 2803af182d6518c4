//! What people see on stderr: errors, notes and progress. Escape codes only where stderr is a terminal.

mod stdout;

use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::exit::CliError;

pub use stdout::stdout;

/// Whether escape codes may be written to stderr.
pub fn stderr_is_live() -> bool {
    let dumb = std::env::var_os("TERM").is_some_and(|t| t == "dumb");
    std::io::stderr().is_terminal() && !dumb
}

/// Prints an error and what lies below it.
pub fn report(error: &CliError) {
    let mut err = std::io::stderr().lock();
    let _ = writeln!(err, "glia: {error}");
    for cause in error.causes() {
        let _ = writeln!(err, "  because {cause}");
    }
    if let Some(help) = error.help() {
        let _ = writeln!(err, "  help: {help}");
    }
}

/// Prints a note.
pub fn note(message: impl AsRef<str>) {
    let _ = writeln!(std::io::stderr().lock(), "glia: {}", message.as_ref());
}

/// Prints a line of progress.
pub fn line(text: impl AsRef<str>) {
    let _ = writeln!(std::io::stderr().lock(), "{}", text.as_ref());
}

/// A spinner for work of unknown length; invisible unless stderr is a terminal, and for its first half second.
pub fn spinner(message: &'static str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, target());
    bar.set_style(ProgressStyle::with_template("{spinner} {msg}").expect("a fixed template"));
    bar.set_message(message);
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

/// A bar for `n` steps.
pub fn bar(n: u64, message: &'static str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(n), target());
    bar.set_style(ProgressStyle::with_template("{msg} {bar:30} {pos}/{len} {eta}").expect("a fixed template"));
    bar.set_message(message);
    bar
}

fn target() -> ProgressDrawTarget {
    if stderr_is_live() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    }
}
