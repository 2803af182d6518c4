//! Products over runs for AVX-512 with VNNI: up to 8 rows share each load of 64 codes.

use std::arch::x86_64::*;

use crate::kernels::int8::ACT_BLOCK;
use crate::kernels::runs::{Kind, MINUS_INVERSE, Run};

/// Adds the products of `runs` and as many prepared blocks of each row of a panel of `width` to the row's
/// sums.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,f16c,fma,avx2")]
pub(in crate::kernels) fn add(kind: Kind, runs: &[Run], acts: &[u8], width: usize, sums: &mut [[f32; 16]]) {
    match kind {
        Kind::One => rows::<1, false>(runs, acts, width, sums),
        Kind::Two => rows::<2, false>(runs, acts, width, sums),
        Kind::TwoMins => rows::<2, true>(runs, acts, width, sums),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,f16c,fma,avx2")]
fn rows<const SCALES: usize, const MINS: bool>(runs: &[Run], acts: &[u8], width: usize, sums: &mut [[f32; 16]]) {
    let needed = (runs.len().saturating_sub(1) * width + sums.len()) * ACT_BLOCK;
    assert!(sums.len() <= width);
    assert!(acts.len() >= needed, "{} bytes of prepared rows", acts.len());
    let mut row = 0;
    while row < sums.len() {
        let a = acts[row * ACT_BLOCK..].as_ptr();
        let sums = &mut sums[row..];
        // SAFETY: from `a` on there are `runs.len()` blocks of each of the panel's rows that are left.
        row += unsafe {
            match sums.len() {
                8.. => block::<8, SCALES, MINS>(runs, a, width, sums),
                4..8 => block::<4, SCALES, MINS>(runs, a, width, sums),
                2..4 => block::<2, SCALES, MINS>(runs, a, width, sums),
                _ => block::<1, SCALES, MINS>(runs, a, width, sums),
            }
        };
    }
}

/// `M` rows. Returns `M`.
///
/// # Safety
/// From `acts` on there must be `runs.len()` prepared blocks of `M` rows of a panel of `width`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,f16c,fma,avx2")]
unsafe fn block<const M: usize, const SCALES: usize, const MINS: bool>(
    runs: &[Run],
    acts: *const u8,
    width: usize,
    sums: &mut [[f32; 16]],
) -> usize {
    let sums = &mut sums[..M];
    // SAFETY: 16 floats are read.
    let mut acc: [__m512; M] = std::array::from_fn(|r| unsafe { _mm512_loadu_ps(sums[r].as_ptr()) });
    for (b, run) in runs.iter().enumerate() {
        // SAFETY: block `b` of each row lies within what the caller promised; loads are unaligned.
        unsafe {
            let a = acts.add(b * width * ACT_BLOCK);
            let int = |r: usize, at: usize| a.add(r * ACT_BLOCK + at).cast::<i32>().read_unaligned();
            let scale: [__m512; M] = std::array::from_fn(|r| _mm512_set1_ps(f32::from_bits(int(r, 32) as u32)));
            for s in 0..SCALES {
                let mut dots: [__m512i; M] = std::array::from_fn(|r| {
                    let start = if SCALES == 2 {
                        int(r, 36 + s * 4)
                    } else {
                        int(r, 36) + int(r, 40)
                    };
                    _mm512_set1_epi32(start)
                });
                for (g, words) in run.codes.iter().enumerate().skip(s * 4).take(8 / SCALES) {
                    let codes = _mm512_loadu_si512(words.as_ptr().cast());
                    for r in 0..M {
                        dots[r] = _mm512_dpbusd_epi32(dots[r], codes, _mm512_set1_epi32(int(r, g * 4)));
                    }
                }
                let scales = _mm512_loadu_ps(run.scales[s].as_ptr());
                for r in 0..M {
                    acc[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[r]), _mm512_mul_ps(scales, scale[r]), acc[r]);
                }
            }
            if MINS {
                for half in 0..2 {
                    let mins = _mm512_loadu_ps(run.mins[half].as_ptr());
                    for r in 0..M {
                        let sum = int(r, 36 + half * 4) as f32 * MINUS_INVERSE;
                        let sum = _mm512_mul_ps(scale[r], _mm512_set1_ps(sum));
                        acc[r] = _mm512_fmadd_ps(mins, sum, acc[r]);
                    }
                }
            }
        }
    }
    for (sum, acc) in sums.iter_mut().zip(acc) {
        // SAFETY: 16 floats are written.
        unsafe { _mm512_storeu_ps(sum.as_mut_ptr(), acc) };
    }
    M
}
