//! The conformance suite on the wgpu backend, with all features of the adapter: every case a test.

use glia_backend_wgpu::{WgpuBackend, WgpuOptions};

fn gpu() -> WgpuBackend {
    WgpuBackend::new(WgpuOptions::default()).expect("a Vulkan driver, if only Mesa's lavapipe")
}

glia_core::conformance_tests!(gpu());
