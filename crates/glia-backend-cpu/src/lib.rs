//! CPU backend of glia: packed SIMD kernels, and programs that a team of threads walks once per step.

mod arena;
mod backend;
mod error;
pub mod isa;
mod kernel;
pub(crate) mod kernels;
mod math;
mod ops;
pub mod pack;
mod program;
mod simd;
mod state;
mod threads;

pub use backend::{CpuBackend, CpuOptions};
