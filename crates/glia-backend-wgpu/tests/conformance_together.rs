//! The conformance suite on the kernels of GPUs, whose workgroups share, with all features of the adapter: on software
//! adapters too, which else run others.

use glia_backend_wgpu::{Kernels, WgpuBackend, WgpuOptions};

fn gpu() -> WgpuBackend {
    WgpuBackend::new(WgpuOptions::default().with_kernels(Kernels::Together))
        .expect("a Vulkan driver, such as Mesa's lavapipe")
}

glia_core::conformance_tests!(gpu());
