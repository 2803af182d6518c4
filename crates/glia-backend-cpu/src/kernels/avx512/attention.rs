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

/// Bytes to ask for while a kernel runs: what comes after it.
#[derive(Clone, Copy)]
pub(crate) struct Ahead {
    pub at: *const u8,
    pub bytes: usize,
}

impl Ahead {
    /// Nothing.
    pub const NONE: Ahead = Ahead {
        at: std::ptr::null(),
        bytes: 0,
    };

    /// Asks for part `index` of `n`.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn ask(self, index: usize, n: usize) {
        let part = (self.bytes / n.max(1)).next_multiple_of(64);
        let from = (index * part).min(self.bytes);
        for line in (from..(from + part).min(self.bytes)).step_by(64) {
            // A prefetch of any address is no access.
            _mm_prefetch::<_MM_HINT_T0>(self.at.wrapping_add(line).cast());
        }
    }
}

/// Inner products of `R` rows of `queries` with the keys `[group of 16][dim][16]` of a tile that lie in `from..to`, and
/// others of their halves of the tile: `scores[r * 64 + key]`.
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
    (from, to): (usize, usize),
    scores: &mut [f32],
    ahead: Ahead,
) {
    assert!(queries.len() >= R * dim && scores.len() >= R * KEYS && from < to && to <= KEYS);
    let q = queries.as_ptr();
    // SAFETY: lengths as asserted and promised; group `g` of the keys begins at element `g * dim * 16`.
    unsafe {
        for pair in from / 32..to.div_ceil(32) {
            let mut sums = [[_mm512_setzero_ps(); 2]; R];
            for d in 0..dim {
                if ahead.bytes > 0 && d % 4 == 0 {
                    ahead.ask((pair * dim + d) / 4, dim / 2);
                }
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
#[allow(clippy::too_many_arguments)]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,f16c,fma,avx2")]
pub(crate) unsafe fn values<const R: usize, const HALF: bool>(
    weights: &[f32],
    (from, to): (usize, usize),
    values: *const u8,
    width: usize,
    keep: &[f32; R],
    acc: &mut [f32],
    stride: usize,
    ahead: Ahead,
) {
    assert!(width.is_multiple_of(16) && weights.len() >= R * KEYS && from <= to && to <= KEYS);
    assert!(width == 0 || acc.len() >= (R - 1) * stride + width);
    let mut first = 0;
    // SAFETY: lengths as asserted and promised.
    unsafe {
        while first < width {
            // With the first columns, unless nothing is wanted.
            let ahead = if first == 0 { ahead } else { Ahead::NONE };
            first += match (width - first, R) {
                (64.., ..=4) => {
                    columns::<R, 4, HALF>(weights, (from, to), values, width, keep, acc, stride, first, ahead)
                }
                (32.., _) => columns::<R, 2, HALF>(weights, (from, to), values, width, keep, acc, stride, first, ahead),
                _ => columns::<R, 1, HALF>(weights, (from, to), values, width, keep, acc, stride, first, ahead),
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
    ahead: Ahead,
) -> usize {
    let (acc, weights) = (acc.as_mut_ptr(), weights.as_ptr());
    // SAFETY: the caller's.
    unsafe {
        let mut sums: [[__m512; C]; R] = std::array::from_fn(|r| {
            let keep = _mm512_set1_ps(keep[r]);
            std::array::from_fn(|c| _mm512_mul_ps(_mm512_loadu_ps(acc.add(r * stride + first + c * 16)), keep))
        });
        for key in from..to {
            if ahead.bytes > 0 {
                ahead.ask(key - from, to - from);
            }
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

/// `e^x` for `x` up to 0: the bits of [`crate::math::exp`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,f16c,fma,avx2")]
fn exp(x: __m512) -> __m512 {
    let set = |x: f32| _mm512_set1_ps(x);
    let round = set(12_582_912.0);
    // NaN is the second operand's, which both pass on.
    let clamped = _mm512_max_ps(set(-88.0), x);
    let n = _mm512_sub_ps(
        _mm512_add_ps(_mm512_mul_ps(clamped, set(std::f32::consts::LOG2_E)), round),
        round,
    );
    let r = _mm512_sub_ps(clamped, _mm512_mul_ps(n, set(0.693_359_4)));
    let r = _mm512_add_ps(r, _mm512_mul_ps(n, set(2.121_944_4e-4)));
    let mut p = set(1.984_127e-4);
    for c in [1.388_888_9e-3, 8.333_334e-3, 4.166_666_8e-2, 1.666_666_7e-1, 0.5] {
        p = _mm512_add_ps(_mm512_mul_ps(p, r), set(c));
    }
    let p = _mm512_mul_ps(_mm512_mul_ps(p, r), r);
    let p = _mm512_add_ps(_mm512_add_ps(p, r), set(1.0));
    // Rounded once, as are two exact factors.
    let y = _mm512_scalef_ps(p, n);
    let tiny = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(x, set(-87.336_54));
    _mm512_mask_mov_ps(y, tiny, _mm512_setzero_ps())
}

/// Sum of 16 lanes, in the order of the plain code.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,f16c,fma,avx2")]
fn sum16(lanes: __m512) -> f32 {
    let eight = _mm256_add_ps(_mm512_castps512_ps256(lanes), _mm512_extractf32x8_ps::<1>(lanes));
    let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
}

/// Inner products of `R` rows with a tile become weights, without cap and mask: the bits of
/// [`weigh_row`](crate::ops). `rows` are the running results, `stride` apart, each beginning with its largest score and
/// its sum. Returns the factors of what the rows have so far; `None` when a row has nothing but NaN or minus infinity, which
/// the plain code is for: then nothing has been changed.
///
/// # Panics
/// When a slice is too short.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,f16c,fma,avx2")]
pub(crate) fn weigh<const R: usize>(
    scale: f32,
    (from, to): (usize, usize),
    scores: &mut [f32],
    rows: &mut [f32],
    stride: usize,
) -> Option<[f32; R]> {
    assert!(scores.len() >= R * KEYS && rows.len() >= (R - 1) * stride + 2 && from < to && to <= KEYS);
    let least = _mm512_set1_ps(f32::NEG_INFINITY);
    let seen = (u64::MAX >> (KEYS - to).min(63)) & !((1u64 << from.min(63)) - 1);
    let mut scaled = [[least; 4]; R];
    let (mut old, mut new) = ([0f32; R], [0f32; R]);
    for r in 0..R {
        let mut most = least;
        for g in 0..4 {
            // SAFETY: 16 floats within the row's scores.
            let s = unsafe { _mm512_loadu_ps(scores.as_ptr().add(r * KEYS + g * 16)) };
            let s = _mm512_mul_ps(s, _mm512_set1_ps(scale));
            let s = _mm512_mask_mov_ps(least, (seen >> (g * 16)) as u16, s);
            most = _mm512_max_ps(s, most);
            scaled[r][g] = s;
        }
        let most = _mm512_reduce_max_ps(most);
        old[r] = rows[r * stride];
        new[r] = if most > old[r] { most } else { old[r] };
        if new[r] == f32::NEG_INFINITY || new[r].is_nan() {
            return None;
        }
    }
    let mut differences = [0f32; 16];
    for r in 0..R {
        let newest = _mm512_set1_ps(new[r]);
        let mut total = _mm512_setzero_ps();
        for (g, s) in scaled[r].iter().enumerate() {
            let weight = exp(_mm512_sub_ps(*s, newest));
            total = _mm512_add_ps(total, weight);
            // SAFETY: as above.
            unsafe { _mm512_storeu_ps(scores.as_mut_ptr().add(r * KEYS + g * 16), weight) };
        }
        differences[r] = old[r] - new[r];
        rows[r * stride] = new[r];
        // Keeps the sum of this tile until the factor is known.
        new[r] = sum16(total);
    }
    let mut keep = [0f32; 16];
    // SAFETY: 16 floats are read and written.
    unsafe { _mm512_storeu_ps(keep.as_mut_ptr(), exp(_mm512_loadu_ps(differences.as_ptr()))) };
    for r in 0..R {
        rows[r * stride + 1] = rows[r * stride + 1] * keep[r] + new[r];
    }
    Some(std::array::from_fn(|r| keep[r]))
}
