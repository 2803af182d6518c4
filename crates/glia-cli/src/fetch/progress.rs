//! What a person sees on stderr while bytes arrive: a bar on a terminal, single lines elsewhere.

use std::io::{IsTerminal, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Receives the news of a fetch.
pub trait Progress: Sync {
    /// One line: which source is asked, why another one is tried.
    fn note(&self, line: &str);
    /// A transfer of `total` bytes begins, `done` of them present already.
    fn begin(&self, what: &str, done: u64, total: u64);
    /// So many bytes are there now.
    fn at(&self, done: u64);
    /// The transfer has ended, well or badly.
    fn end(&self);
}

/// Progress on stderr.
pub struct Stderr {
    bar: ProgressBar,
}

impl Stderr {
    /// A bar that is drawn only where stderr is a terminal.
    pub fn new() -> Stderr {
        let live = std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|t| t != "dumb");
        let target = if live {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(None, target);
        let style = "{msg} {bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        Stderr { bar }
    }
}

impl Default for Stderr {
    fn default() -> Stderr {
        Stderr::new()
    }
}

impl Progress for Stderr {
    fn note(&self, line: &str) {
        self.bar.suspend(|| {
            let _ = writeln!(std::io::stderr().lock(), "glia: {line}");
        });
    }

    fn begin(&self, what: &str, done: u64, total: u64) {
        self.bar.set_message(what.to_owned());
        self.bar.set_length(total);
        self.bar.set_position(done);
        self.bar.reset_eta();
    }

    fn at(&self, done: u64) {
        self.bar.set_position(done);
    }

    fn end(&self) {
        self.bar.finish_and_clear();
    }
}

/// Says nothing.
pub struct Quiet;

impl Progress for Quiet {
    fn note(&self, _: &str) {}
    fn begin(&self, _: &str, _: u64, _: u64) {}
    fn at(&self, _: u64) {}
    fn end(&self) {}
}
