//! The wgpu backend of glia: WGSL kernels and device-resident programs on Vulkan, Metal and DX12.
//!
//! Weights, KV cache and intermediates stay on the device. A segment is compiled once: pipelines and bind groups are
//! built then, and a decode step is one submission of dispatches that exist already. Nothing beyond the limits of the
//! WebGPU baseline is needed; subgroups, immediates and larger bindings are used where the adapter has them.
//!
//! ```no_run
//! use std::sync::Arc;
//! use glia_backend_wgpu::{WgpuBackend, WgpuOptions};
//!
//! let backend = Arc::new(WgpuBackend::new(WgpuOptions::default())?);
//! println!("{}", backend.adapter());
//! # Ok::<(), glia_core::BackendError>(())
//! ```

#![deny(unsafe_code)]

mod backend;
mod gpu;
mod ops;
mod program;
mod shader;
mod weights;

pub use backend::WgpuBackend;
pub use gpu::{AdapterChoice, AdapterEntry, ByteDots, Counters, Kernels, WgpuOptions, adapters};
