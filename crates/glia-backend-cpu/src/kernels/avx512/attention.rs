//! Attention for AVX-512: a few query rows against a tile of keys and values as the cache stores them.
//!
//! Every number is made in the order of [`add_tile`](crate::ops), so that both give the same bits.

use std::arch::x86_64::*;

/// Keys of a tile.
const KEYS: usize = 64;

/// 16 stored numbers as F32.
///
/// # Safety
/// `at` must be readable for 16 elements.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,f16c,fma,avx2")]
unsafe fn load<const HALF: bool>(at: *const u8, index: usize) -> __m512 {
    // SAFETY: the caller's.
    unsafe {
        if HALF {
            _mm512_cvtph_ps(_mm256_loadu_si256(at.add(index * 2).cast()))
        } else {
            _mm512_loadu_ps(at.add(index * 4).cast())
        }
    }
}

/// Inner products of `R` rows of `queries` with the 64 keys `[group of 16][dim][16]` of a tile: `scores[r * 64 + key]`.
///
/// # Safety
/// `keys` must be readable for `dim * 64` elements (F16 when `HALF`, else F32).
///
/// # Panics
/// When a slice is too short.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,f16c,fma,avx2")]
pub(crate) unsafe fn scores<const R: usize, const HALF: bool>(
    queries: &[f32],
    dim: usize,
    keys: *const u8,
    scores: &mut [f32],
) {
    assert!(queries.len() >= R * dim && scores.len() >= R * KEYS);
    let q = queries.as_ptr();
    // SAFETY: lengths as asserted and promised; group `g` of the keys begins at element `g * dim * 16`.
    unsafe {
        for pair in 0..2 {
            let mut sums = [[_mm512_setzero_ps(); 2]; R];
            for d in 0..dim {
                let keys: [__m512; 2] = [0, 1].map(|g| load::<HALF>(keys, ((pair * 2 + g) * dim + d) * 16));
                for r in 0..R {
                    let x = _mm512_set1_ps(*q.add(r * dim + d));
                    for g in 0..2 {
                        sums[r][g] = _mm512_fmadd_ps(x, keys[g], sums[r][g]);
                    }
                }
            }
            for r in 0..R {
                for g in 0..2 {
                    _mm512_storeu_ps(scores.as_mut_ptr().add(r * KEYS + (pair * 2 + g) * 16), sums[r][g]);
                }
            }
        }
    }
}

/// Adds the values `[key][width]` of keys `from..to`, weighted by `weights[r * 64 + key]`, to `keep[r]` times the row
/// `r` of `acc`, which begins at `r * stride`. `width` must be a multiple of 16.
///
/// # Safety
/// `values` must be readable for `to * width` elements (F16 when `HALF`, else F32).
///
/// # Panics
/// When a slice is too short or the width no multiple of 16.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,f16c,fma,avx2")]
pub(crate) unsafe fn values<const R: usize, const HALF: bool>(
    weights: &[f32],
    (from, to): (usize, usize),
    values: *const u8,
    width: usize,
    keep: &[f32; R],
    acc: &mut [f32],
    stride: usize,
) {
    assert!(width.is_multiple_of(16) && weights.len() >= R * KEYS && from <= to && to <= KEYS);
    assert!(width == 0 || acc.len() >= (R - 1) * stride + width);
    let mut first = 0;
    // SAFETY: lengths as asserted and promised.
    unsafe {
        while first < width {
            first += match (width - first, R) {
                (64.., ..=4) => columns::<R, 4, HALF>(weights, (from, to), values, width, keep, acc, stride, first),
                (32.., _) => columns::<R, 2, HALF>(weights, (from, to), values, width, keep, acc, stride, first),
                _ => columns::<R, 1, HALF>(weights, (from, to), values, width, keep, acc, stride, first),
            };
        }
    }
}

/// `C` vectors of columns from `first` on. Returns how many columns.
///
/// # Safety
/// As [`values`], and the columns must lie within the width.
#[inline]
#[allow(clippy::too_many_arguments)]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,f16c,fma,avx2")]
unsafe fn columns<const R: usize, const C: usize, const HALF: bool>(
    weights: &[f32],
    (from, to): (usize, usize),
    values: *const u8,
    width: usize,
    keep: &[f32; R],
    acc: &mut [f32],
    stride: usize,
    first: usize,
) -> usize {
    let (acc, weights) = (acc.as_mut_ptr(), weights.as_ptr());
    // SAFETY: the caller's.
    unsafe {
        let mut sums: [[__m512; C]; R] = std::array::from_fn(|r| {
            let keep = _mm512_set1_ps(keep[r]);
            std::array::from_fn(|c| _mm512_mul_ps(_mm512_loadu_ps(acc.add(r * stride + first + c * 16)), keep))
        });
        for key in from..to {
            let v: [__m512; C] = std::array::from_fn(|c| load::<HALF>(values, key * width + first + c * 16));
            for r in 0..R {
                let p = _mm512_set1_ps(*weights.add(r * KEYS + key));
                for c in 0..C {
                    sums[r][c] = _mm512_fmadd_ps(p, v[c], sums[r][c]);
                }
            }
        }
        for r in 0..R {
            for c in 0..C {
                _mm512_storeu_ps(acc.add(r * stride + first + c * 16), sums[r][c]);
            }
        }
    }
    C * 16
}
