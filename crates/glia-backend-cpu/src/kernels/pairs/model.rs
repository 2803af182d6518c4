//! What `VDPBF16PS` and `VCVTNEPS2BF16` give, in plain Rust, number by number.
//!
//! After the operation sections of the Intel 64 and IA-32 Architectures Software Developer's Manual: whatever the control
//! register says, rounding is to nearest even, and subnormal numbers are zeros of their sign where they go in or come
//! out. Of a pair the upper product is added first, each in one rounding.

use crate::kernels::columns::Column;

/// A pair of k of 16 columns.
pub(super) struct Pairs;

impl Column for Pairs {
    const BYTES: usize = 64;

    type Weights = [u32; 16];

    type Sums = [f32; 16];

    #[inline(always)]
    unsafe fn zero() -> [f32; 16] {
        [0.0; 16]
    }

    #[inline(always)]
    unsafe fn load(at: *const u8) -> [u32; 16] {
        // SAFETY: as the caller promises.
        unsafe { at.cast::<[[u8; 4]; 16]>().read_unaligned() }.map(u32::from_le_bytes)
    }

    #[inline(always)]
    unsafe fn add(mut sums: [f32; 16], weights: [u32; 16], x: u32) -> [f32; 16] {
        let x = u32::from_le(x);
        for (sum, weights) in sums.iter_mut().zip(weights) {
            *sum = dot(*sum, weights, x);
        }
        sums
    }

    #[inline(always)]
    unsafe fn store(sums: [f32; 16]) -> [f32; 16] {
        sums
    }
}

/// `sum` and the products of two pairs.
#[inline(always)]
pub(super) fn dot(sum: f32, a: u32, b: u32) -> f32 {
    let upper = |pair: u32| f32::from_bits(pair & 0xffff_0000);
    let lower = |pair: u32| f32::from_bits(pair << 16);
    let sum = fused(upper(a), upper(b), sum);
    fused(lower(a), lower(b), sum)
}

/// `a * b + c`, rounded once, where `a` and `b` have the 8 bits of a BF16 number.
#[inline(always)]
fn fused(a: f32, b: f32, c: f32) -> f32 {
    // Below this, rounding to 24 bits leaves less than the smallest normal number.
    const LEAST: f64 = f32::MIN_POSITIVE as f64 * (1.0 - 1.0 / (1u64 << 25) as f64);
    // The product is exact, and a sum of numbers of at most 24 bits, rounded to 53, then to 24, is as if rounded once.
    let sum = f64::from(flush(a)) * f64::from(flush(b)) + f64::from(flush(c));
    if sum.abs() < LEAST {
        return 0f32.copysign(sum as f32);
    }
    if sum.is_nan() { f32::NAN } else { sum as f32 }
}

/// Zero for a subnormal number, with its sign.
#[inline(always)]
fn flush(x: f32) -> f32 {
    if x.abs() < f32::MIN_POSITIVE {
        0f32.copysign(x)
    } else {
        x
    }
}

/// Rounds a row to BF16, two bytes a number.
pub(super) fn round(x: &[f32], out: &mut [u8]) {
    for (x, out) in x.iter().zip(out.as_chunks_mut().0) {
        *out = nearest(*x).to_le_bytes();
    }
}

/// The bits of the nearest BF16 number.
#[inline(always)]
pub(super) fn nearest(x: f32) -> u16 {
    let bits = x.to_bits();
    let upper = (bits >> 16) as u16;
    if x.is_nan() {
        upper | 0x40
    } else if x.abs() < f32::MIN_POSITIVE {
        upper & 0x8000
    } else {
        ((bits + 0x7fff + u32::from(upper & 1)) >> 16) as u16
    }
}
