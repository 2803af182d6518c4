//! The conformance suite as a program: prints what fails and the table of what is supported.

use __ident__::__Struct__;
use glia_core::conformance::{self, Options};

fn main() -> std::process::ExitCode {
    let report = conformance::run(__Struct__::new(), &Options::default());
    println!("{}\n{report}", report.support_table());
    std::process::ExitCode::from(u8::from(!report.is_ok()))
}
