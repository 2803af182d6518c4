//! The suite as a program: for an example or a test without harness in the crate of a backend.

use std::io::Write;
use std::process::ExitCode;

use super::suite::{IntoBackend, Options, names, run_each};

const USAGE: &str = "\
Runs the conformance suite of glia-core on this backend.

  [NAME]     only cases whose name contains this
  --list     print the names of the cases
  --bench    time the cases of single ops, and steps of segments: GB/s and GFLOP/s
";

/// Cases between two lines of progress on stderr.
const PROGRESS: usize = 100;

/// Runs the suite as the arguments of the process say and prints the report and the support table; fails when
/// something is red.
///
/// ```no_run
/// use glia_core::conformance::{self, ReferenceBackend};
///
/// fn main() -> std::process::ExitCode {
///     conformance::main(ReferenceBackend)
/// }
/// ```
pub fn main(backend: impl IntoBackend) -> ExitCode {
    let mut options = Options::default();
    for arg in std::env::args().skip(1) {
        match arg.as_str() {
            "--list" => {
                print(&(names().join("\n") + "\n"));
                return ExitCode::SUCCESS;
            }
            "--bench" => options.bench = true,
            other if other.starts_with('-') => {
                eprint!("{USAGE}");
                return ExitCode::from(2);
            }
            other => options.filter = Some(other.to_owned()),
        }
    }
    let (mut n_run, mut n_red) = (0, 0);
    let report = run_each(backend, &options, |entry, n| {
        // Told at once: a run that is cut short has said what it found.
        if let Some(red) = entry.red() {
            n_red += 1;
            eprintln!("RED {red}");
        }
        n_run += 1;
        if n_run % PROGRESS == 0 {
            eprintln!(
                "{n_run} of {n} cases have run, {n_red} red; the last was {}",
                entry.name
            );
        }
    });
    print(&format!("{}\n", report.support_table()));
    let programs = report.program_table();
    if !programs.is_empty() {
        print(&format!("{programs}\n"));
    }
    if options.bench {
        print(&format!("{}\n", report.speed_table()));
    }
    print(&format!("{report}\n"));
    if report.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Writes to standard output. A reader that has seen enough, `head` say, is no error; the exit code tells the rest.
fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
