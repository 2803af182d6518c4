//! [`Lanes`] in two registers of 256 bits.

use std::arch::x86_64::*;
use std::ops::Range;

use crate::kernels::int8::ACT_BLOCK;
use crate::kernels::lanes::{BITS_4, BITS_5, BITS_6, BITS_8, F16, F32, Lanes};

/// AVX2, FMA and F16C.
pub(super) struct Plain;

/// With the byte dot products of AVX-512 VNNI and VL.
pub(super) struct Avx512Vl;

/// With the byte dot products of AVX-VNNI.
pub(super) struct AvxVnni;

type Floats = [__m256; 2];
type Ints = [__m256i; 2];

/// Codes of group `g`: 4 of each of 16 columns.
///
/// # Safety
/// AVX2; `w` must be a block of such codes.
#[inline(always)]
unsafe fn codes<const CODES: u8>(w: *const u8, g: usize) -> Ints {
    // SAFETY: groups lie within the block.
    unsafe {
        let load = |at: usize| _mm256_loadu_si256(w.add(at).cast());
        if CODES == BITS_8 {
            return [load(g * 64), load(g * 64 + 32)];
        }
        let mut codes = [load(g % 4 * 64), load(g % 4 * 64 + 32)];
        for half in 0..2 {
            if g >= 4 {
                codes[half] = _mm256_srli_epi16::<4>(codes[half]);
            }
            codes[half] = _mm256_and_si256(codes[half], _mm256_set1_epi8(15));
            if CODES == BITS_5 {
                let bits = w.add(256 + g * 8 + half * 4).cast::<i32>().read_unaligned();
                codes[half] = _mm256_or_si256(codes[half], fifth(bits));
            }
            if CODES == BITS_6 {
                let plane = load(256 + g / 4 * 64 + half * 32);
                let high = match g % 4 {
                    0 => _mm256_slli_epi16::<4>(plane),
                    1 => _mm256_slli_epi16::<2>(plane),
                    2 => plane,
                    _ => _mm256_srli_epi16::<2>(plane),
                };
                codes[half] = _mm256_or_si256(codes[half], _mm256_and_si256(high, _mm256_set1_epi8(0x30)));
            }
        }
        codes
    }
}

/// 16 in byte `i` where bit `i` is set.
///
/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn fifth(bits: i32) -> __m256i {
    // SAFETY: no memory is touched.
    unsafe {
        // Each byte of the word eight times, then the bit that is the byte's own.
        let from = _mm256_setr_epi64x(0, 0x0101_0101_0101_0101, 0x0202_0202_0202_0202, 0x0303_0303_0303_0303);
        let own = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
        let bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(bits), from);
        let set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, own), own);
        _mm256_and_si256(set, _mm256_set1_epi8(16))
    }
}

/// An integer at any address, in every lane.
///
/// # Safety
/// AVX2; four bytes must be readable.
#[inline(always)]
unsafe fn splat(at: *const u8) -> __m256i {
    // SAFETY: as the caller promises.
    unsafe { _mm256_set1_epi32(at.cast::<i32>().read_unaligned()) }
}

/// Groups whose products of pairs can be added up in 16 bits: a pair is at most 254 times the largest code.
const fn groups_in_16_bits(codes: u8) -> usize {
    match codes {
        BITS_4 => 8,
        BITS_5 => 4,
        BITS_8 => 1,
        _ => 2,
    }
}

#[inline(always)]
unsafe fn dots_plain<const M: usize, const CODES: u8>(
    w: *const u8,
    a: *const u8,
    start: usize,
    halves: Range<usize>,
) -> [Ints; M] {
    // SAFETY: groups and rows lie within what the caller promised.
    unsafe {
        let (zero, ones) = (_mm256_setzero_si256(), _mm256_set1_epi16(1));
        let mut sums = [[zero; 2]; M];
        if CODES != BITS_8 {
            for r in 0..M {
                sums[r] = [splat(a.add(r * ACT_BLOCK + start)); 2];
            }
        }
        let mut pairs = [[zero; 2]; M];
        for g in halves.start * 4..halves.end * 4 {
            let mut codes = codes::<CODES>(w, g);
            let mut signs = [zero; 2];
            if CODES == BITS_8 {
                // The unsigned factor may be at most 128, or pairs would not fit: the signs go to the activations.
                for half in 0..2 {
                    signs[half] = _mm256_xor_si256(codes[half], _mm256_set1_epi8(-128));
                    codes[half] = _mm256_abs_epi8(signs[half]);
                }
            }
            let last = (g + 1).is_multiple_of(groups_in_16_bits(CODES)) || g + 1 == halves.end * 4;
            for r in 0..M {
                let four = splat(a.add(r * ACT_BLOCK + g * 4));
                for half in 0..2 {
                    let signed = if CODES == BITS_8 {
                        _mm256_sign_epi8(four, signs[half])
                    } else {
                        four
                    };
                    let products = _mm256_maddubs_epi16(codes[half], signed);
                    pairs[r][half] = _mm256_add_epi16(pairs[r][half], products);
                    if last {
                        sums[r][half] = _mm256_add_epi32(sums[r][half], _mm256_madd_epi16(pairs[r][half], ones));
                        pairs[r][half] = zero;
                    }
                }
            }
        }
        sums
    }
}

/// The functions that are the same with and without VNNI.
macro_rules! floats {
    () => {
        type Floats = Floats;
        type Ints = Ints;

        #[inline(always)]
        unsafe fn zero() -> Floats {
            // SAFETY: no memory is touched.
            unsafe { [_mm256_setzero_ps(); 2] }
        }

        #[inline(always)]
        unsafe fn load<const D: u8>(at: *const u8) -> Floats {
            // SAFETY: the caller promises 16 numbers.
            unsafe {
                if D == F32 {
                    return [_mm256_loadu_ps(at.cast()), _mm256_loadu_ps(at.add(32).cast())];
                }
                let (low, high) = (_mm_loadu_si128(at.cast()), _mm_loadu_si128(at.add(16).cast()));
                if D == F16 {
                    return [_mm256_cvtph_ps(low), _mm256_cvtph_ps(high)];
                }
                [
                    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(low))),
                    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(high))),
                ]
            }
        }

        #[inline(always)]
        unsafe fn load_bytes(at: *const u8) -> Floats {
            // SAFETY: the caller promises 16 bytes.
            unsafe {
                let (low, high) = (_mm_loadl_epi64(at.cast()), _mm_loadl_epi64(at.add(8).cast()));
                [
                    _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(low)),
                    _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(high)),
                ]
            }
        }

        #[inline(always)]
        unsafe fn store(values: Floats) -> [f32; 16] {
            let mut out = [0f32; 16];
            // SAFETY: `out` has room for 16 floats.
            unsafe {
                _mm256_storeu_ps(out.as_mut_ptr(), values[0]);
                _mm256_storeu_ps(out.as_mut_ptr().add(8), values[1]);
            }
            out
        }

        #[inline(always)]
        unsafe fn plus(a: Ints, b: Ints) -> Ints {
            // SAFETY: no memory is touched.
            unsafe { [_mm256_add_epi32(a[0], b[0]), _mm256_add_epi32(a[1], b[1])] }
        }

        #[inline(always)]
        unsafe fn numbers(sums: Ints) -> Floats {
            // SAFETY: no memory is touched.
            unsafe { [_mm256_cvtepi32_ps(sums[0]), _mm256_cvtepi32_ps(sums[1])] }
        }

        #[inline(always)]
        unsafe fn product(a: Floats, b: Floats) -> Floats {
            // SAFETY: no memory is touched.
            unsafe { [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])] }
        }

        #[inline(always)]
        unsafe fn times(a: Floats, x: f32) -> Floats {
            // SAFETY: no memory is touched.
            unsafe {
                let x = _mm256_set1_ps(x);
                [_mm256_mul_ps(a[0], x), _mm256_mul_ps(a[1], x)]
            }
        }

        #[inline(always)]
        unsafe fn fused(a: Floats, b: Floats, c: Floats) -> Floats {
            // SAFETY: no memory is touched.
            unsafe {
                [
                    _mm256_fmadd_ps(a[0], b[0], c[0]),
                    _mm256_fmadd_ps(a[1], b[1], c[1]),
                ]
            }
        }

        #[inline(always)]
        unsafe fn fused_by(a: Floats, x: f32, c: Floats) -> Floats {
            // SAFETY: no memory is touched.
            unsafe {
                let x = _mm256_set1_ps(x);
                [_mm256_fmadd_ps(a[0], x, c[0]), _mm256_fmadd_ps(a[1], x, c[1])]
            }
        }
    };
}

impl Lanes for Plain {
    floats!();

    #[inline(always)]
    unsafe fn dots<const M: usize, const CODES: u8>(
        w: *const u8,
        a: *const u8,
        start: usize,
        halves: Range<usize>,
    ) -> [Ints; M] {
        // SAFETY: as the caller promises.
        unsafe { dots_plain::<M, CODES>(w, a, start, halves) }
    }
}

macro_rules! vnni {
    ($lanes:ident, $dot:ident) => {
        impl Lanes for $lanes {
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
                    let mut sums = [[_mm256_setzero_si256(); 2]; M];
                    for r in 0..M {
                        sums[r] = [splat(a.add(r * ACT_BLOCK + start)); 2];
                    }
                    for g in halves.start * 4..halves.end * 4 {
                        let codes = codes::<CODES>(w, g);
                        for r in 0..M {
                            let four = splat(a.add(r * ACT_BLOCK + g * 4));
                            sums[r] = [$dot(sums[r][0], codes[0], four), $dot(sums[r][1], codes[1], four)];
                        }
                    }
                    sums
                }
            }
        }
    };
}

vnni!(Avx512Vl, _mm256_dpbusd_epi32);
vnni!(AvxVnni, _mm256_dpbusd_avx_epi32);
