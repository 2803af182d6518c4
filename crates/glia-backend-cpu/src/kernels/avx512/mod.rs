//! Kernels for AVX-512.

pub(super) mod float;
pub(super) mod int8;
