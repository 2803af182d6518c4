//! The conformance suite on the wgpu backend as a program: `cargo run --release -p glia-backend-wgpu --example
//! conformance -- --bench matmul`.

use glia_backend_wgpu::{WgpuBackend, WgpuOptions};

fn main() -> Result<std::process::ExitCode, Box<dyn std::error::Error>> {
    Ok(glia_core::conformance::main(WgpuBackend::new(WgpuOptions::default())?))
}
