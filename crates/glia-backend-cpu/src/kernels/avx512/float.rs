//! Float products for AVX-512: columns of F32, F16 or BF16 are widened in registers and fused multiply-adds take them.

use std::arch::x86_64::*;

use glia_core::DType;

use crate::kernels::columns::{self, Column};

/// What a column of a packed tile is stored as.
const F32: u8 = 0;
const F16: u8 = 1;
const BF16: u8 = 2;

/// 16 numbers stored as `D`.
struct Numbers<const D: u8>;

impl<const D: u8> Column for Numbers<D> {
    const BYTES: usize = if D == F32 { 64 } else { 32 };

    type Weights = __m512;

    type Sums = __m512;

    #[inline(always)]
    unsafe fn zero() -> __m512 {
        // SAFETY: as the caller promises.
        unsafe { _mm512_setzero_ps() }
    }

    #[inline(always)]
    unsafe fn load(at: *const u8) -> __m512 {
        // SAFETY: as the caller promises; loads are unaligned.
        unsafe {
            match D {
                F32 => _mm512_loadu_ps(at.cast()),
                F16 => _mm512_cvtph_ps(_mm256_loadu_si256(at.cast())),
                _ => {
                    let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(at.cast()));
                    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn add(sums: __m512, weights: __m512, x: u32) -> __m512 {
        // SAFETY: as the caller promises.
        unsafe { _mm512_fmadd_ps(_mm512_set1_ps(f32::from_bits(x)), weights, sums) }
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

/// `m` rows of f32 activations (as bytes) by consecutive tiles `[k][16]`; `put(row, tile, values)` takes the results.
///
/// # Panics
/// When the lengths do not fit.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,f16c,fma,avx2")]
pub(in crate::kernels) fn tiles(
    dtype: DType,
    tiles: &[u8],
    k: usize,
    acts: &[u8],
    m: usize,
    put: &mut impl FnMut(usize, usize, &[f32; 16]),
) {
    // SAFETY: this function has the instructions.
    unsafe {
        match dtype {
            DType::F32 => columns::tiles::<Numbers<F32>>(tiles, k, acts, m, put),
            DType::F16 => columns::tiles::<Numbers<F16>>(tiles, k, acts, m, put),
            _ => columns::tiles::<Numbers<BF16>>(tiles, k, acts, m, put),
        }
    }
}
