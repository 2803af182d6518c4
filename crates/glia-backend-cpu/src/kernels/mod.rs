//! Inner loops of matrix products over packed tiles.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
pub(crate) mod dynamic;
pub(crate) mod exact;
pub(crate) mod float;
pub(crate) mod int8;
pub(crate) mod lookup;
pub(crate) mod runs;
#[cfg(target_arch = "x86_64")]
mod runs_avx2;
