//! Products over runs for AVX2: codes and activations as pairs of 16-bit integers, whose products fit 32 bits.

use std::arch::x86_64::*;

use super::int8::ACT_BLOCK;
use super::runs::{Act, Kind, Run};

/// Adds the products of `runs` and as many prepared blocks of each row to the row's sums.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn add(kind: Kind, runs: &[Run], acts: &[u8], row_bytes: usize, sums: &mut [[f32; 16]]) {
    let mut row = 0;
    while row < sums.len() {
        let acts = &acts[row * row_bytes..];
        let sums = &mut sums[row..];
        row += match sums.len() {
            4.. => rows::<4>(kind, runs, acts, row_bytes, sums),
            2..4 => rows::<2>(kind, runs, acts, row_bytes, sums),
            _ => rows::<1>(kind, runs, acts, row_bytes, sums),
        };
    }
}

/// Activations `4 g` and `4 g + 2`, and the two between and after, as pairs of 16-bit integers.
struct Pairs {
    act: Act,
    even: [i32; 8],
    odd: [i32; 8],
}

#[target_feature(enable = "avx2,fma,f16c")]
fn pairs(a: &[u8]) -> Pairs {
    let act = Act::read(a);
    let (mut even, mut odd) = ([0; 8], [0; 8]);
    // SAFETY: 32 bytes are read and written each time.
    unsafe {
        let codes = _mm256_loadu_si256(act.codes.as_ptr().cast());
        let low = _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(codes));
        _mm256_storeu_si256(even.as_mut_ptr().cast(), low);
        _mm256_storeu_si256(odd.as_mut_ptr().cast(), _mm256_srai_epi16::<8>(codes));
    }
    Pairs { act, even, odd }
}

/// `M` rows. Returns `M`.
#[target_feature(enable = "avx2,fma,f16c")]
fn rows<const M: usize>(kind: Kind, runs: &[Run], acts: &[u8], row_bytes: usize, sums: &mut [[f32; 16]]) -> usize {
    let sums = &mut sums[..M];
    let bytes = _mm256_set1_epi32(0x00ff_00ff);
    for (b, run) in runs.iter().enumerate() {
        let blocks: [Pairs; M] = std::array::from_fn(|r| pairs(&acts[r * row_bytes + b * ACT_BLOCK..][..ACT_BLOCK]));
        for lanes in 0..2 {
            let at = lanes * 8;
            let mut dots: [[__m256i; M]; 2] =
                std::array::from_fn(|half| std::array::from_fn(|r| _mm256_set1_epi32(blocks[r].act.starts[half])));
            for (g, words) in run.codes.iter().enumerate() {
                // SAFETY: 8 of 16 words are read.
                let words = unsafe { _mm256_loadu_si256(words[at..at + 8].as_ptr().cast()) };
                let even = _mm256_and_si256(words, bytes);
                let odd = _mm256_and_si256(_mm256_srli_epi16::<8>(words), bytes);
                for (dot, block) in dots[g / 4].iter_mut().zip(&blocks) {
                    let first = _mm256_madd_epi16(even, _mm256_set1_epi32(block.even[g]));
                    let second = _mm256_madd_epi16(odd, _mm256_set1_epi32(block.odd[g]));
                    *dot = _mm256_add_epi32(*dot, _mm256_add_epi32(first, second));
                }
            }
            // SAFETY: 8 of 16 floats are read.
            let load = |values: &[f32; 16]| unsafe { _mm256_loadu_ps(values[at..at + 8].as_ptr()) };
            for r in 0..M {
                let act = &blocks[r].act;
                let mut acc = load(&sums[r]);
                let scaled = |acc: __m256, dot: __m256i, scales: &[f32; 16]| {
                    let scales = _mm256_mul_ps(load(scales), _mm256_set1_ps(act.scale));
                    _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), scales, acc)
                };
                if kind == Kind::One {
                    acc = scaled(acc, _mm256_add_epi32(dots[0][r], dots[1][r]), &run.scales[0]);
                } else {
                    acc = scaled(acc, dots[0][r], &run.scales[0]);
                    acc = scaled(acc, dots[1][r], &run.scales[1]);
                }
                if kind == Kind::TwoMins {
                    for (half, mins) in run.mins.iter().enumerate() {
                        acc = _mm256_fmadd_ps(load(mins), _mm256_set1_ps(act.sum(half)), acc);
                    }
                }
                // SAFETY: 8 of 16 floats are written.
                unsafe { _mm256_storeu_ps(sums[r][at..at + 8].as_mut_ptr(), acc) };
            }
        }
    }
    M
}
