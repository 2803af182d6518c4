//! The conformance suite on the CPU backend as a program: `cargo run --release -p glia-backend-cpu --example
//! conformance -- --bench matmul`.

use glia_backend_cpu::CpuBackend;

fn main() -> Result<std::process::ExitCode, Box<dyn std::error::Error>> {
    Ok(glia_core::conformance::main(CpuBackend::new()?))
}
