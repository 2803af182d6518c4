//! The suite as a program: for an example or a test without harness in the crate of a backend.

use std::io::Write;
use std::process::ExitCode;

use super::suite::{IntoBackend, Options, names, run};

const USAGE: &str = "\
Runs the conformance suite of glia-core on this backend.

  [NAME]     only cases whose name contains this
  --list     print the names of the cases
  --bench    time the cases of single ops: GB/s and GFLOP/s
";

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
    let report = run(backend, &options);
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
