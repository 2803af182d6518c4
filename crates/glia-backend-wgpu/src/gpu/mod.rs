//! The device: which adapter, what it can do, buffers from a pool, counters, and errors that never escape as panics.

mod adapter;
mod buffers;
mod caps;
mod counters;
mod device;
mod measure;
mod options;
mod unlocked;

pub use adapter::{AdapterEntry, adapters};
pub(crate) use buffers::{Pooled, Use};
pub(crate) use caps::{Caps, MAX_STEPS, WITHOUT_F16};
pub use counters::Counters;
pub(crate) use device::{Gpu, NAME, other};
pub use options::{AdapterChoice, ByteDots, Kernels, WgpuOptions};
