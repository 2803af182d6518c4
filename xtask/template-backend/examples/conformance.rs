//! The conformance suite as a program: the support table, and speeds with `--bench`.

use __ident__::__Struct__;

fn main() -> std::process::ExitCode {
    glia_core::conformance::main(__Struct__::new())
}
