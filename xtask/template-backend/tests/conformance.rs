//! The conformance suite on this backend: one test per case, and the table of what it supports.

use __ident__::__Struct__;
use glia_core::conformance::{self, Options};

glia_core::conformance_tests!(__Struct__::new());

/// `cargo test support_table -- --nocapture`
#[test]
fn support_table() {
    let report = conformance::run(__Struct__::new(), &Options::default());
    println!("{}", report.support_table());
    report.assert_ok();
}
