//! Kernels for AVX-512.

pub(crate) mod attention;
pub(super) mod float;
pub(super) mod int8;
pub(super) mod pairs;
pub(super) mod quantize;
pub(super) mod runs;
pub(super) mod wide;
