//! Quantising a row of activations to int8 blocks, for AVX-512.

use std::arch::x86_64::*;

use crate::kernels::int8::ACT_BLOCK;
use crate::pack::Format;

/// Row `row` of a panel of `rows`: the bytes that the plain code gives.
///
/// # Panics
/// When `out` is not the panel.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma")]
pub(in crate::kernels) fn row(x: &[f32], (row, rows): (usize, usize), format: Format, out: &mut [u8]) {
    let n = x.len() / 32;
    assert!(row < rows && out.len() >= n * rows * ACT_BLOCK);
    for (b, x) in x.as_chunks::<32>().0.iter().enumerate() {
        // SAFETY: 32 floats are read, and block `b` of the row lies within the panel.
        unsafe { block(x.as_ptr(), format, out.as_mut_ptr().add((b * rows + row) * ACT_BLOCK)) };
    }
}

/// # Safety
/// `x` must be valid for reads of 32 floats, `out` for writes of [`ACT_BLOCK`] bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma")]
unsafe fn block(x: *const f32, format: Format, out: *mut u8) {
    // SAFETY: by contract; loads and stores are unaligned.
    unsafe {
        let halves = [_mm512_loadu_ps(x), _mm512_loadu_ps(x.add(16))];
        // Quiet and signalling NaN, both infinities.
        const ODD: i32 = 0x01 | 0x80 | 0x08 | 0x10;
        let odd = (_mm512_fpclass_ps_mask::<ODD>(halves[0]) | _mm512_fpclass_ps_mask::<ODD>(halves[1])) != 0;
        let largest = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(halves[0]), _mm512_abs_ps(halves[1])));
        let scale = if odd { f32::NAN } else { largest / 127.0 };
        let inverse = if largest > 0.0 && !odd { 127.0 / largest } else { 0.0 };
        let inverse = if inverse.is_finite() { inverse } else { 0.0 };
        let inverse = _mm512_set1_ps(inverse);
        let [low, high] = halves.map(|v| _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(v, inverse))));
        let codes = _mm256_set_m128i(high, low);
        _mm256_storeu_si256(out.cast(), codes);
        let fours = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), codes);
        let twos = _mm256_hadd_epi32(fours, fours);
        let ones = _mm256_hadd_epi32(twos, twos);
        let first = _mm256_cvtsi256_si32(ones);
        let second = _mm_cvtsi128_si32(_mm256_extracti128_si256::<1>(ones));
        let starts = format.starts(first, second);
        let sum = scale * (first + second) as f32;
        let tail = _mm_set_epi32(sum.to_bits() as i32, starts[1], starts[0], scale.to_bits() as i32);
        _mm_storeu_si128(out.add(32).cast(), tail);
    }
}
