//! Inner loops of matrix products over packed tiles.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
mod columns;
pub(crate) mod dynamic;
pub(crate) mod exact;
pub(crate) mod float;
pub(crate) mod int8;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod lanes;
pub(crate) mod lookup;
#[cfg(target_arch = "aarch64")]
mod neon;
pub(crate) mod pairs;
pub(crate) mod runs;
