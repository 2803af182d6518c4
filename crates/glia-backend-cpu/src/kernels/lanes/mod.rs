//! Matrix kernels written once over 16 lanes, for the instruction sets whose registers hold fewer.
//!
//! Everything here is inlined into a function that has the instructions; nothing may be called from elsewhere.

pub(in crate::kernels) mod float;
pub(in crate::kernels) mod int8;
pub(in crate::kernels) mod runs;

/// What a column of a packed tile is stored as.
pub(in crate::kernels) const F32: u8 = 0;
pub(in crate::kernels) const F16: u8 = 1;
pub(in crate::kernels) const BF16: u8 = 2;

/// Nibbles.
pub(in crate::kernels) const BITS_4: u8 = 4;
/// Nibbles, and the codes' fifth bits in a plane.
pub(in crate::kernels) const BITS_5: u8 = 5;
/// Nibbles, and the codes' upper two bits in planes: four groups share one.
pub(in crate::kernels) const BITS_6: u8 = 6;
/// Bytes of any value, 128 above the numbers that they stand for.
pub(in crate::kernels) const BITS_8: u8 = 8;

/// 16 lanes in the registers of an instruction set.
///
/// # Safety
/// Every function needs the instructions of its implementation, and pointers that are valid for what is read.
pub(in crate::kernels) trait Lanes {
    /// 16 numbers.
    type Floats: Copy;
    /// 16 exact sums.
    type Ints: Copy;

    /// 16 zeros.
    unsafe fn zero() -> Self::Floats;

    /// 16 numbers stored as `D` ([`F32`], [`F16`] or [`BF16`]), from any address.
    unsafe fn load<const D: u8>(at: *const u8) -> Self::Floats;

    /// 16 signed bytes as numbers, from any address.
    unsafe fn load_bytes(at: *const u8) -> Self::Floats;

    /// The lanes in memory.
    unsafe fn store(values: Self::Floats) -> [f32; 16];

    /// Sums of both.
    unsafe fn plus(a: Self::Ints, b: Self::Ints) -> Self::Ints;

    /// Each sum as a number.
    unsafe fn numbers(sums: Self::Ints) -> Self::Floats;

    /// `a * b`.
    unsafe fn product(a: Self::Floats, b: Self::Floats) -> Self::Floats;

    /// `a * x`.
    unsafe fn times(a: Self::Floats, x: f32) -> Self::Floats;

    /// `a * b + c`, rounded once.
    unsafe fn fused(a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;

    /// `a * x + c`, rounded once.
    unsafe fn fused_by(a: Self::Floats, x: f32, c: Self::Floats) -> Self::Floats;

    /// Dots of the codes of a run at `w` with `M` rows of signed bytes, [`ACT_BLOCK`](super::int8::ACT_BLOCK) apart from
    /// `a` on, over the 16 columns of k of each of `halves` (of 32 columns).
    ///
    /// Sums begin with the integer `start` bytes after each row's `a`; for [`BITS_8`] that must be -128 times the sum
    /// of the row's bytes, so that codes may be taken as signed and the start left out.
    unsafe fn dots<const M: usize, const CODES: u8>(
        w: *const u8,
        a: *const u8,
        start: usize,
        halves: std::ops::Range<usize>,
    ) -> [Self::Ints; M];
}
