//! [`Lanes`] in four registers of 128 bits.

use std::arch::aarch64::*;
use std::ops::Range;

use super::instructions::{sdot, usdot, usmmla, widen_f16};
use crate::kernels::int8::ACT_BLOCK;
use crate::kernels::lanes::{BITS_5, BITS_6, BITS_8, F16, F32, Lanes};

/// NEON with dot products.
pub(super) struct Dot;

/// NEON with the products of 8-bit matrices.
pub(super) struct I8mm;

type Floats = [float32x4_t; 4];
type Ints = [int32x4_t; 4];
type Codes = [uint8x16_t; 4];

/// Codes of group `g`: 4 of each of 16 columns.
///
/// # Safety
/// `w` must be a block of such codes.
#[inline(always)]
unsafe fn codes<const CODES: u8>(w: *const u8, g: usize) -> Codes {
    // SAFETY: groups lie within the block.
    unsafe {
        let packed = CODES != BITS_8;
        let at = w.add(if packed { g % 4 } else { g } * 64);
        let mut codes = [
            vld1q_u8(at),
            vld1q_u8(at.add(16)),
            vld1q_u8(at.add(32)),
            vld1q_u8(at.add(48)),
        ];
        if packed {
            for v in 0..4 {
                codes[v] = if g >= 4 {
                    vshrq_n_u8::<4>(codes[v])
                } else {
                    vandq_u8(codes[v], vdupq_n_u8(15))
                };
                if CODES == BITS_5 {
                    let bits = w.add(256 + g * 8 + v * 2).cast::<u16>().read_unaligned();
                    codes[v] = vorrq_u8(codes[v], fifth(bits));
                }
                if CODES == BITS_6 {
                    let plane = vld1q_u8(w.add(256 + g / 4 * 64 + v * 16));
                    let high = match g % 4 {
                        0 => vshlq_n_u8::<4>(plane),
                        1 => vshlq_n_u8::<2>(plane),
                        2 => plane,
                        _ => vshrq_n_u8::<2>(plane),
                    };
                    codes[v] = vorrq_u8(codes[v], vandq_u8(high, vdupq_n_u8(0x30)));
                }
            }
        }
        codes
    }
}

/// 16 in byte `i` where bit `i` is set.
///
/// # Safety
/// NEON.
#[inline(always)]
unsafe fn fifth(bits: u16) -> uint8x16_t {
    // SAFETY: no memory is touched.
    unsafe {
        let bytes = vcombine_u8(vdup_n_u8(bits as u8), vdup_n_u8((bits >> 8) as u8));
        let own = vreinterpretq_u8_u64(vdupq_n_u64(0x8040_2010_0804_0201));
        vandq_u8(vtstq_u8(bytes, own), vdupq_n_u8(16))
    }
}

/// The body once for each of the halves, which `$half` names as a constant: nothing is decided while codes are read.
macro_rules! each_half {
    ($halves:ident, $half:ident, $body:block) => {
        if $halves.start == 0 {
            const $half: usize = 0;
            $body
        }
        if $halves.end == 2 {
            const $half: usize = 1;
            $body
        }
    };
}

/// Adds to `$sums` the dots of `M` rows with group `$g` of a half: `$dot(sums, codes, sixteen activations)` takes those
/// of the group that its constant names.
macro_rules! dot_group {
    ($g:literal, $sums:ident, $codes:expr, $dot:ident, $sixteen:ident) => {
        let codes = $codes;
        for r in 0..M {
            for v in 0..4 {
                $sums[r][v] = $dot::<$g>($sums[r][v], codes[v], $sixteen[r]);
            }
        }
    };
}

/// 16 activations of each of `M` rows.
///
/// # Safety
/// As of [`Lanes::dots`].
#[inline(always)]
unsafe fn activations<const M: usize>(a: *const u8, half: usize) -> [int8x16_t; M] {
    // SAFETY: as the caller promises.
    unsafe {
        let mut sixteen = [vdupq_n_s8(0); M];
        for r in 0..M {
            sixteen[r] = vld1q_s8(a.add(r * ACT_BLOCK + half * 16).cast());
        }
        sixteen
    }
}

/// The integer that sums of a row begin with, in every lane.
///
/// # Safety
/// Four bytes must be readable.
#[inline(always)]
unsafe fn splat(at: *const u8) -> Ints {
    // SAFETY: as the caller promises.
    unsafe { [vdupq_n_s32(at.cast::<i32>().read_unaligned()); 4] }
}

/// Codes as signed bytes: below 128 they are the same, others are taken less 128.
///
/// # Safety
/// As of [`codes`].
#[inline(always)]
unsafe fn signed_codes<const CODES: u8>(w: *const u8, g: usize) -> [int8x16_t; 4] {
    // SAFETY: as the caller promises.
    unsafe {
        let mut codes = codes::<CODES>(w, g);
        let mut signed = [vdupq_n_s8(0); 4];
        for v in 0..4 {
            if CODES == BITS_8 {
                codes[v] = veorq_u8(codes[v], vdupq_n_u8(128));
            }
            signed[v] = vreinterpretq_s8_u8(codes[v]);
        }
        signed
    }
}

/// Adds the products of groups `g` and `g + 1` to sums of two rows by two columns.
///
/// # Safety
/// As of [`dots_of_pairs`].
#[inline(always)]
unsafe fn add_eight<const M: usize, const CODES: u8>(
    sums: &mut [[int32x4_t; 8]; M],
    w: *const u8,
    a: *const u8,
    g: usize,
) {
    // SAFETY: groups and rows lie within what the caller promised.
    unsafe {
        let (low, high) = (codes::<CODES>(w, g), codes::<CODES>(w, g + 1));
        let mut columns = [vdupq_n_u8(0); 8];
        for v in 0..4 {
            // 8 codes of each of two columns.
            let (low, high) = (vreinterpretq_u32_u8(low[v]), vreinterpretq_u32_u8(high[v]));
            columns[v * 2] = vreinterpretq_u8_u32(vzip1q_u32(low, high));
            columns[v * 2 + 1] = vreinterpretq_u8_u32(vzip2q_u32(low, high));
        }
        for pair in 0..M / 2 {
            let eight = |r: usize| vld1_s8(a.add((pair * 2 + r) * ACT_BLOCK + g * 4).cast());
            let two = vcombine_s8(eight(0), eight(1));
            for c in 0..8 {
                sums[pair][c] = usmmla(sums[pair][c], columns[c], two);
            }
        }
    }
}

/// # Safety
/// As of [`Lanes::dots`], for an even `M`.
#[inline(always)]
unsafe fn dots_of_pairs<const M: usize, const CODES: u8>(
    w: *const u8,
    a: *const u8,
    start: usize,
    halves: Range<usize>,
) -> [Ints; M] {
    // SAFETY: groups and rows lie within what the caller promised.
    unsafe {
        // Two rows by two columns in a register: (column 0, row 0), (0, 1), (1, 0), (1, 1).
        let mut sums = [[vdupq_n_s32(0); 8]; M];
        for pair in 0..M / 2 {
            let start = |r: usize| a.add((pair * 2 + r) * ACT_BLOCK + start).cast::<i32>().read_unaligned();
            let two = vset_lane_s32::<1>(start(1), vdup_n_s32(start(0)));
            sums[pair] = [vcombine_s32(two, two); 8];
        }
        each_half!(halves, HALF, {
            add_eight::<M, CODES>(&mut sums, w, a, HALF * 4);
            add_eight::<M, CODES>(&mut sums, w, a, HALF * 4 + 2);
        });
        let mut out = [[vdupq_n_s32(0); 4]; M];
        for pair in 0..M / 2 {
            for v in 0..4 {
                let (first, second) = (sums[pair][v * 2], sums[pair][v * 2 + 1]);
                out[pair * 2][v] = vuzp1q_s32(first, second);
                out[pair * 2 + 1][v] = vuzp2q_s32(first, second);
            }
        }
        out
    }
}

/// What is the same for both.
macro_rules! floats {
    () => {
        type Floats = Floats;
        type Ints = Ints;

        #[inline(always)]
        unsafe fn zero() -> Floats {
            // SAFETY: no memory is touched.
            unsafe { [vdupq_n_f32(0.0); 4] }
        }

        #[inline(always)]
        unsafe fn load<const D: u8>(at: *const u8) -> Floats {
            // SAFETY: the caller promises 16 numbers.
            unsafe {
                if D == F32 {
                    let at = at.cast::<f32>();
                    return [
                        vld1q_f32(at),
                        vld1q_f32(at.add(4)),
                        vld1q_f32(at.add(8)),
                        vld1q_f32(at.add(12)),
                    ];
                }
                let mut out = [vdupq_n_f32(0.0); 4];
                for i in 0..4 {
                    let four = vld1_u16(at.add(i * 8).cast());
                    out[i] = if D == F16 {
                        widen_f16(four)
                    } else {
                        vreinterpretq_f32_u32(vshll_n_u16::<16>(four))
                    };
                }
                out
            }
        }

        #[inline(always)]
        unsafe fn load_bytes(at: *const u8) -> Floats {
            // SAFETY: the caller promises 16 bytes.
            unsafe {
                let bytes = vld1q_s8(at.cast());
                let (low, high) = (vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes));
                Self::numbers([
                    vmovl_s16(vget_low_s16(low)),
                    vmovl_high_s16(low),
                    vmovl_s16(vget_low_s16(high)),
                    vmovl_high_s16(high),
                ])
            }
        }

        #[inline(always)]
        unsafe fn store(values: Floats) -> [f32; 16] {
            let mut out = [0f32; 16];
            for i in 0..4 {
                // SAFETY: `out` has room for 16 floats.
                unsafe { vst1q_f32(out.as_mut_ptr().add(i * 4), values[i]) };
            }
            out
        }

        #[inline(always)]
        unsafe fn plus(mut a: Ints, b: Ints) -> Ints {
            for i in 0..4 {
                // SAFETY: no memory is touched.
                a[i] = unsafe { vaddq_s32(a[i], b[i]) };
            }
            a
        }

        #[inline(always)]
        unsafe fn numbers(sums: Ints) -> Floats {
            // SAFETY: no memory is touched.
            unsafe {
                let mut out = [vdupq_n_f32(0.0); 4];
                for i in 0..4 {
                    out[i] = vcvtq_f32_s32(sums[i]);
                }
                out
            }
        }

        #[inline(always)]
        unsafe fn product(mut a: Floats, b: Floats) -> Floats {
            for i in 0..4 {
                // SAFETY: no memory is touched.
                a[i] = unsafe { vmulq_f32(a[i], b[i]) };
            }
            a
        }

        #[inline(always)]
        unsafe fn times(mut a: Floats, x: f32) -> Floats {
            for i in 0..4 {
                // SAFETY: no memory is touched.
                a[i] = unsafe { vmulq_n_f32(a[i], x) };
            }
            a
        }

        #[inline(always)]
        unsafe fn fused(a: Floats, b: Floats, mut c: Floats) -> Floats {
            for i in 0..4 {
                // SAFETY: no memory is touched.
                c[i] = unsafe { vfmaq_f32(c[i], a[i], b[i]) };
            }
            c
        }

        #[inline(always)]
        unsafe fn fused_by(a: Floats, x: f32, mut c: Floats) -> Floats {
            for i in 0..4 {
                // SAFETY: no memory is touched.
                c[i] = unsafe { vfmaq_n_f32(c[i], a[i], x) };
            }
            c
        }
    };
}

impl Lanes for Dot {
    floats!();

    #[inline(always)]
    unsafe fn dots<const M: usize, const CODES: u8>(
        w: *const u8,
        a: *const u8,
        start: usize,
        halves: Range<usize>,
    ) -> [Ints; M] {
        // SAFETY: groups and rows lie within what the caller promised.
        unsafe {
            let mut sums = [[vdupq_n_s32(0); 4]; M];
            if CODES != BITS_8 {
                for r in 0..M {
                    sums[r] = splat(a.add(r * ACT_BLOCK + start));
                }
            }
            each_half!(halves, HALF, {
                let sixteen = activations::<M>(a, HALF);
                dot_group!(0, sums, signed_codes::<CODES>(w, HALF * 4 + 0), sdot, sixteen);
                dot_group!(1, sums, signed_codes::<CODES>(w, HALF * 4 + 1), sdot, sixteen);
                dot_group!(2, sums, signed_codes::<CODES>(w, HALF * 4 + 2), sdot, sixteen);
                dot_group!(3, sums, signed_codes::<CODES>(w, HALF * 4 + 3), sdot, sixteen);
            });
            sums
        }
    }
}

impl Lanes for I8mm {
    floats!();

    #[inline(always)]
    unsafe fn dots<const M: usize, const CODES: u8>(
        w: *const u8,
        a: *const u8,
        start: usize,
        halves: Range<usize>,
    ) -> [Ints; M] {
        // SAFETY: groups and rows lie within what the caller promised.
        unsafe {
            if M.is_multiple_of(2) {
                return dots_of_pairs::<M, CODES>(w, a, start, halves);
            }
            let mut sums = [[vdupq_n_s32(0); 4]; M];
            for r in 0..M {
                sums[r] = splat(a.add(r * ACT_BLOCK + start));
            }
            each_half!(halves, HALF, {
                let sixteen = activations::<M>(a, HALF);
                dot_group!(0, sums, codes::<CODES>(w, HALF * 4 + 0), usdot, sixteen);
                dot_group!(1, sums, codes::<CODES>(w, HALF * 4 + 1), usdot, sixteen);
                dot_group!(2, sums, codes::<CODES>(w, HALF * 4 + 2), usdot, sixteen);
                dot_group!(3, sums, codes::<CODES>(w, HALF * 4 + 3), usdot, sixteen);
            });
            sums
        }
    }
}
