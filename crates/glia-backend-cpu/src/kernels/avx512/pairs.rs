//! BF16 products for AVX-512 BF16: `VDPBF16PS` adds two products to each of 16 sums, `VCVTNEPS2BF16` rounds the rows.

use std::arch::x86_64::*;
use std::mem::transmute;

use crate::kernels::columns::{self, Column};

/// A pair of k of 16 columns.
struct Pairs;

impl Column for Pairs {
    const BYTES: usize = 64;

    type Weights = __m512i;

    type Sums = __m512;

    #[inline(always)]
    unsafe fn zero() -> __m512 {
        // SAFETY: as the caller promises.
        unsafe { _mm512_setzero_ps() }
    }

    #[inline(always)]
    unsafe fn load(at: *const u8) -> __m512i {
        // SAFETY: as the caller promises; the load is unaligned.
        unsafe { _mm512_loadu_si512(at.cast()) }
    }

    #[inline(always)]
    unsafe fn add(sums: __m512, weights: __m512i, x: u32) -> __m512 {
        // SAFETY: as the caller promises; both types are 512 bits of any value.
        unsafe {
            let x = _mm512_set1_epi32(x as i32);
            _mm512_dpbf16_ps(
                sums,
                transmute::<__m512i, __m512bh>(weights),
                transmute::<__m512i, __m512bh>(x),
            )
        }
    }

    #[inline(always)]
    unsafe fn store(sums: __m512) -> [f32; 16] {
        let mut values = [0f32; 16];
        // SAFETY: `values` has room for 16 floats.
        unsafe { _mm512_storeu_ps(values.as_mut_ptr(), sums) };
        values
    }

    #[inline(always)]
    fn prefetch(at: *const u8) {
        crate::simd::ask(at);
    }
}

/// `m` rows of `n_pairs` pairs by consecutive tiles `[n_pairs][16]` of pairs; `put(row, tile, values)` takes the results.
///
/// # Panics
/// When the lengths do not fit.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,f16c,fma,avx2")]
pub(in crate::kernels) fn tiles(
    tiles: &[u8],
    n_pairs: usize,
    acts: &[u8],
    m: usize,
    put: &mut impl FnMut(usize, usize, &[f32; 16]),
) {
    // SAFETY: this function has the instructions.
    unsafe { columns::tiles::<Pairs>(tiles, n_pairs, acts, m, put) }
}

/// Rounds a row to BF16, two bytes a number. Bytes of `out` beyond the row keep what they hold.
///
/// # Panics
/// When `out` is too short.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,f16c,fma,avx2")]
pub(in crate::kernels) fn round(x: &[f32], out: &mut [u8]) {
    assert!(out.len() >= x.len() * 2);
    for (x, out) in x.chunks(16).zip(out.chunks_mut(32)) {
        let mask = ((1u32 << x.len()) - 1) as __mmask16;
        // SAFETY: only the numbers of `x` are read, and as many written: `out` has two bytes for each. Both types are
        // 256 bits of any value.
        unsafe {
            let numbers = _mm512_maskz_loadu_ps(mask, x.as_ptr());
            let rounded = transmute::<__m256bh, __m256i>(_mm512_cvtneps_pbh(numbers));
            _mm256_mask_storeu_epi16(out.as_mut_ptr().cast(), mask, rounded);
        }
    }
}
