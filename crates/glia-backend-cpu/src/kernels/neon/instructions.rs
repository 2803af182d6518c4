//! Instructions that the compiler has no stable functions for.

use std::arch::aarch64::*;
use std::arch::asm;

/// Adds to each sum the dot of its four codes with the four activations of group `G`.
///
/// # Safety
/// Dot products.
#[inline]
#[target_feature(enable = "neon,dotprod")]
pub(super) unsafe fn sdot<const G: usize>(mut sums: int32x4_t, codes: int8x16_t, x: int8x16_t) -> int32x4_t {
    // SAFETY: registers only.
    unsafe {
        asm!(
            "sdot {sums:v}.4s, {codes:v}.16b, {x:v}.4b[{g}]",
            sums = inout(vreg) sums, codes = in(vreg) codes, x = in(vreg) x, g = const G,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sums
}

/// As [`sdot`], with unsigned codes.
///
/// # Safety
/// Products of 8-bit matrices.
#[inline]
#[target_feature(enable = "neon,i8mm")]
pub(super) unsafe fn usdot<const G: usize>(mut sums: int32x4_t, codes: uint8x16_t, x: int8x16_t) -> int32x4_t {
    // SAFETY: registers only.
    unsafe {
        asm!(
            "usdot {sums:v}.4s, {codes:v}.16b, {x:v}.4b[{g}]",
            sums = inout(vreg) sums, codes = in(vreg) codes, x = in(vreg) x, g = const G,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sums
}

/// Adds the product of two columns of 8 unsigned codes by two rows of 8 activations.
///
/// # Safety
/// Products of 8-bit matrices.
#[inline]
#[target_feature(enable = "neon,i8mm")]
pub(super) unsafe fn usmmla(mut sums: int32x4_t, columns: uint8x16_t, rows: int8x16_t) -> int32x4_t {
    // SAFETY: registers only.
    unsafe {
        asm!(
            "usmmla {sums:v}.4s, {columns:v}.16b, {rows:v}.16b",
            sums = inout(vreg) sums, columns = in(vreg) columns, rows = in(vreg) rows,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sums
}

/// Four F16 (as bits) as f32.
///
/// # Safety
/// NEON.
#[inline]
#[target_feature(enable = "neon")]
pub(super) unsafe fn widen_f16(bits: uint16x4_t) -> float32x4_t {
    let out: float32x4_t;
    // SAFETY: registers only.
    unsafe {
        asm!(
            "fcvtl {out:v}.4s, {bits:v}.4h",
            out = lateout(vreg) out, bits = in(vreg) bits,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    out
}
