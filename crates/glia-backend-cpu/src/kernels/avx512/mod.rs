//! Kernels for AVX-512.

pub(crate) mod attention;
pub(super) mod float;
pub(super) mod int8;
pub(super) mod pairs;
pub(super) mod quantize;
pub(super) mod runs;
pub(super) mod wide;

/// Asks for a line of memory; any address will do.
#[inline(always)]
fn prefetch(at: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a hint, which never faults; every machine of the architecture has it.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
}
