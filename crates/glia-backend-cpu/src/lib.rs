//! CPU backend of glia: packed SIMD kernels, and programs that a team of threads walks once per step.
//!
//! ```
//! use glia_backend_cpu::CpuBackend;
//! use glia_core::{Backend, Op, Tensor};
//!
//! let cpu = CpuBackend::new()?;
//! let x = Tensor::from_f32([2, 3], &[1., 2., 3., 4., 5., 6.])?;
//! let w = Tensor::from_f32([1, 3], &[1., 1., 1.])?;
//! let y = cpu.execute(&Op::MatMul, &[&x, &w])?;
//! assert_eq!(y[0].as_f32()?, [6., 15.]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod arena;
mod backend;
pub mod ceiling;
mod error;
pub mod isa;
mod kernel;
pub(crate) mod kernels;
mod math;
mod memory;
mod ops;
pub mod pack;
mod program;
mod simd;
mod state;
mod threads;

pub use backend::{CpuBackend, CpuOptions};
