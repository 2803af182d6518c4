//! CPU backend of glia.

pub mod isa;
pub(crate) mod kernels;
pub mod pack;
