//! The conformance suite on the CPU backend: every case a test.

use glia_backend_cpu::{CpuBackend, CpuOptions};

fn cpu() -> CpuBackend {
    let options = CpuOptions {
        threads: 2,
        ..CpuOptions::default()
    };
    CpuBackend::with_options(options).unwrap()
}

glia_core::conformance_tests!(cpu());
