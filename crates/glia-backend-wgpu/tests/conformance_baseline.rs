//! The conformance suite on the wgpu backend, masked to the WebGPU baseline: every case a test.

use glia_backend_wgpu::{WgpuBackend, WgpuOptions};

fn gpu() -> WgpuBackend {
    WgpuBackend::new(WgpuOptions::default().with_baseline(true)).expect("a Vulkan driver, if only Mesa's lavapipe")
}

glia_core::conformance_tests!(gpu());
