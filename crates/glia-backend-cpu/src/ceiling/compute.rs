//! Arithmetic that stays in registers: as many independent sums as hide the latency of the instruction.

use std::hint::black_box;

use super::Effort;
use super::together::Pool;
use crate::simd::{BASE_FMA, madd};

/// Independent sums: latency 4 to 5 times 2 units, and some more.
#[cfg(target_arch = "x86_64")]
const N_SUMS: usize = 12;

/// Operations per second, the best of some runs of `run(n)`, which does `n` turns of `ops` operations.
pub(super) fn rate(pool: &Pool, effort: Effort, ops: usize, run: &(dyn Fn(usize) -> f64 + Sync)) -> f64 {
    // The first run tells how long a turn takes, and wakes the units up.
    let n_first = 20_000;
    let first = pool.seconds(&|_| run(n_first)).max(1e-9);
    let n_turns = (n_first as f64 * effort.run_seconds / first).clamp(1000.0, 1e9) as usize;
    let best = (0..effort.n_runs.max(1))
        .map(|_| pool.seconds(&|_| run(n_turns)))
        .fold(f64::INFINITY, f64::min);
    n_turns as f64 * ops as f64 * pool.n_threads() as f64 / best.max(1e-9)
}

/// How f32 products are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum F32 {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl F32 {
    pub(super) fn all_available() -> Vec<F32> {
        #[cfg_attr(not(target_arch = "x86_64"), expect(unused_mut))]
        let mut all = vec![F32::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                all.push(F32::Avx2);
            }
            if is_x86_feature_detected!("avx512f") {
                all.push(F32::Avx512);
            }
        }
        all
    }

    pub(super) fn detect() -> F32 {
        F32::all_available().last().copied().unwrap_or(F32::Portable)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            F32::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            F32::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            F32::Avx512 => "avx512",
        }
    }

    /// Operations of one turn.
    pub(super) fn ops(self) -> usize {
        match self {
            F32::Portable => 2 * 32,
            #[cfg(target_arch = "x86_64")]
            F32::Avx2 => 2 * 8 * N_SUMS,
            #[cfg(target_arch = "x86_64")]
            F32::Avx512 => 2 * 16 * N_SUMS,
        }
    }

    /// Does so many turns; the sum of every lane.
    pub(super) fn run(self, n_turns: usize) -> f64 {
        // Factors that the compiler does not know; sums go to 1 and never to a subnormal number.
        let (x, y) = (black_box(0.999f32), black_box(0.001f32));
        match self {
            F32::Portable => fma_portable(n_turns, x, y),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: values of this kind are made where AVX2 and FMA were found.
            F32::Avx2 => unsafe { x86::fma_avx2(n_turns, x, y) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: values of this kind are made where AVX-512 F was found.
            F32::Avx512 => unsafe { x86::fma_avx512(n_turns, x, y) },
        }
    }
}

/// How int8 products are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Int8 {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni,
}

/// Bytes that the portable loop reads, from the first-level cache.
const PORTABLE_BYTES: usize = 256;

impl Int8 {
    pub(super) fn all_available() -> Vec<Int8> {
        #[cfg_attr(not(target_arch = "x86_64"), expect(unused_mut))]
        let mut all = vec![Int8::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") {
                all.push(Int8::Avx2);
            }
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni") {
                all.push(Int8::Avx512Vnni);
            }
        }
        all
    }

    pub(super) fn detect() -> Int8 {
        Int8::all_available().last().copied().unwrap_or(Int8::Portable)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Int8::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Int8::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Int8::Avx512Vnni => "avx512-vnni",
        }
    }

    /// Operations of one turn.
    pub(super) fn ops(self) -> usize {
        match self {
            Int8::Portable => 2 * PORTABLE_BYTES,
            #[cfg(target_arch = "x86_64")]
            Int8::Avx2 => 2 * 32 * N_SUMS,
            #[cfg(target_arch = "x86_64")]
            Int8::Avx512Vnni => 2 * 64 * N_SUMS,
        }
    }

    /// Does so many turns; the sum of every lane, wrapped.
    pub(super) fn run(self, n_turns: usize) -> f64 {
        let (x, y) = (black_box(1i8), black_box(2i8));
        match self {
            Int8::Portable => dot_portable(n_turns, x, y),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: values of this kind are made where AVX2 was found.
            Int8::Avx2 => unsafe { x86::dot_avx2(n_turns, x, y) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: values of this kind are made where AVX-512 F and VNNI were found.
            Int8::Avx512Vnni => unsafe { x86::dot_vnni(n_turns, x, y) },
        }
    }
}

fn fma_portable(n_turns: usize, x: f32, y: f32) -> f64 {
    let mut sums = [0.1f32; 32];
    for _ in 0..n_turns {
        for sum in &mut sums {
            *sum = madd::<BASE_FMA>(*sum, x, y);
        }
    }
    sums.iter().map(|&s| f64::from(s)).sum()
}

fn dot_portable(n_turns: usize, x: i8, y: i8) -> f64 {
    let (x, y) = ([x; PORTABLE_BYTES], [y; PORTABLE_BYTES]);
    let mut total = 0i32;
    for _ in 0..n_turns {
        // The compiler must not take the products out of the loop.
        let (x, y) = (black_box(&x), black_box(&y));
        let dot: i32 = x.iter().zip(y).map(|(&a, &b)| i32::from(a) * i32::from(b)).sum();
        total = total.wrapping_add(dot);
    }
    f64::from(total)
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::asm;
    use std::arch::x86_64::*;

    use super::N_SUMS;

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn fma_avx2(n_turns: usize, x: f32, y: f32) -> f64 {
        let (x, y) = (_mm256_set1_ps(x), _mm256_set1_ps(y));
        let mut sums = [_mm256_set1_ps(0.1); N_SUMS];
        for _ in 0..n_turns {
            for sum in &mut sums {
                *sum = _mm256_fmadd_ps(*sum, x, y);
            }
        }
        // All lanes are alike.
        sums.iter().map(|&s| 8.0 * f64::from(_mm256_cvtss_f32(s))).sum()
    }

    #[target_feature(enable = "avx512f")]
    pub(super) fn fma_avx512(n_turns: usize, x: f32, y: f32) -> f64 {
        let (x, y) = (_mm512_set1_ps(x), _mm512_set1_ps(y));
        let mut sums = [_mm512_set1_ps(0.1); N_SUMS];
        for _ in 0..n_turns {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(*sum, x, y);
            }
        }
        sums.iter().map(|&s| 16.0 * f64::from(_mm512_cvtss_f32(s))).sum()
    }

    #[target_feature(enable = "avx512f,avx512vnni")]
    pub(super) fn dot_vnni(n_turns: usize, x: i8, y: i8) -> f64 {
        let (x, y) = (_mm512_set1_epi8(x), _mm512_set1_epi8(y));
        let mut sums = [_mm512_setzero_si512(); N_SUMS];
        for _ in 0..n_turns {
            for sum in &mut sums {
                *sum = _mm512_dpbusd_epi32(*sum, x, y);
            }
        }
        sums.iter()
            .map(|&s| 16.0 * f64::from(_mm_cvtsi128_si32(_mm512_castsi512_si128(s))))
            .sum()
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn dot_avx2(n_turns: usize, x: i8, y: i8) -> f64 {
        let (mut x, y, ones) = (_mm256_set1_epi8(x), _mm256_set1_epi8(y), _mm256_set1_epi16(1));
        let mut sums = [_mm256_setzero_si256(); N_SUMS];
        for _ in 0..n_turns {
            for sum in &mut sums {
                // SAFETY: no instruction at all: the compiler must take `x` for another value, so that it multiplies
                // anew for each sum.
                unsafe { asm!("/* {0} */", inout(ymm_reg) x, options(nomem, nostack, preserves_flags)) };
                *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(_mm256_maddubs_epi16(x, y), ones));
            }
        }
        sums.iter()
            .map(|&s| 8.0 * f64::from(_mm_cvtsi128_si32(_mm256_castsi256_si128(s))))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_turn_is_left_out() {
        for kernel in F32::all_available() {
            let lanes = kernel.ops() / 2;
            assert!((kernel.run(0) - 0.1 * lanes as f64).abs() < 1e-5, "{kernel:?}");
            // s -> 0.999 s + 0.001, a thousand times from 0.1: 1 - 0.9 * 0.999^1000.
            let expected = (1.0 - 0.9 * 0.999f64.powi(1000)) * lanes as f64;
            assert!((kernel.run(1000) - expected).abs() < 1e-3 * expected, "{kernel:?}");
        }
        for kernel in Int8::all_available() {
            // Each product is 2.
            assert_eq!(kernel.run(1000), 1000.0 * kernel.ops() as f64, "{kernel:?}");
            assert_eq!(kernel.run(0), 0.0);
        }
    }
}
