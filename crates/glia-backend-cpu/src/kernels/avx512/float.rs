//! Float products for AVX-512: two tiles of 16 columns at a time, up to 8 rows, results in registers, k in order.
//!
//! Two tiles give a single row two independent chains of multiply-adds, and let 8 rows reuse each broadcast.

use std::arch::x86_64::*;

use glia_core::DType;

/// Rows that share a pass over the weights.
const ROWS: usize = 8;

/// How far ahead of its reads a single row asks for weights, in bytes.
const AHEAD: usize = 4096;

/// What a column of a packed tile is stored as.
const F32: u8 = 0;
const F16: u8 = 1;
const BF16: u8 = 2;

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
    let size = k * 16 * dtype.block_bytes();
    assert!(k > 0 && tiles.len().is_multiple_of(size) && acts.len() >= m * k * 4);
    let n_tiles = tiles.len() / size;
    for first in (0..n_tiles).step_by(2) {
        let n = (n_tiles - first).min(2);
        let tiles = &tiles[first * size..(first + n) * size];
        match (dtype, n) {
            (DType::F32, 2) => rows::<F32, 2>(tiles, k, acts, m, first, put),
            (DType::F32, _) => rows::<F32, 1>(tiles, k, acts, m, first, put),
            (DType::F16, 2) => rows::<F16, 2>(tiles, k, acts, m, first, put),
            (DType::F16, _) => rows::<F16, 1>(tiles, k, acts, m, first, put),
            (_, 2) => rows::<BF16, 2>(tiles, k, acts, m, first, put),
            _ => rows::<BF16, 1>(tiles, k, acts, m, first, put),
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,f16c,fma,avx2")]
fn rows<const D: u8, const T: usize>(
    tiles: &[u8],
    k: usize,
    acts: &[u8],
    m: usize,
    first: usize,
    put: &mut impl FnMut(usize, usize, &[f32; 16]),
) {
    let mut row = 0;
    while row < m {
        let a = acts[row * k * 4..m * k * 4].as_ptr().cast::<f32>();
        let (w, to) = (tiles.as_ptr(), (row, first));
        // SAFETY: `tiles` holds `T` tiles of `k` columns, and as many rows of `k` activations follow `a` as are
        // computed.
        unsafe {
            match m - row {
                ROWS.. => block::<D, T, ROWS>(w, k, a, to, put),
                4..ROWS => block::<D, T, 4>(w, k, a, to, put),
                2..4 => block::<D, T, 2>(w, k, a, to, put),
                _ => block::<D, T, 1>(w, k, a, to, put),
            }
        }
        row += match m - row {
            ROWS.. => ROWS,
            4..ROWS => 4,
            2..4 => 2,
            _ => 1,
        };
    }
}

/// # Safety
/// `w` must hold `T` tiles of `k` columns, `a` `M` rows of `k` floats (unaligned).
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,f16c,fma,avx2")]
unsafe fn block<const D: u8, const T: usize, const M: usize>(
    w: *const u8,
    k: usize,
    a: *const f32,
    (row, first): (usize, usize),
    put: &mut impl FnMut(usize, usize, &[f32; 16]),
) {
    let step = if D == F32 { 64 } else { 32 };
    let mut acc = [[_mm512_setzero_ps(); T]; M];
    for i in 0..k {
        if M == 1 && (i * step).is_multiple_of(64) {
            // A single row reads weights as fast as memory gives them, and the machine's own prefetching ends at each
            // page.
            for t in 0..T {
                _mm_prefetch::<_MM_HINT_T0>(w.wrapping_add((t * k + i) * step + AHEAD).cast());
            }
        }
        // SAFETY: column `i` of each tile and element `i` of each row lie within what the caller promised.
        unsafe {
            let columns: [__m512; T] = std::array::from_fn(|t| {
                let at = w.add((t * k + i) * step);
                match D {
                    F32 => _mm512_loadu_ps(at.cast()),
                    F16 => _mm512_cvtph_ps(_mm256_loadu_si256(at.cast())),
                    _ => {
                        let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(at.cast()));
                        _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
                    }
                }
            });
            for r in 0..M {
                let x = _mm512_set1_ps(a.add(r * k + i).read_unaligned());
                for t in 0..T {
                    acc[r][t] = _mm512_fmadd_ps(x, columns[t], acc[r][t]);
                }
            }
        }
    }
    for (r, acc) in acc.iter().enumerate() {
        for (t, acc) in acc.iter().enumerate() {
            let mut values = [0f32; 16];
            // SAFETY: `values` has room for 16 floats.
            unsafe { _mm512_storeu_ps(values.as_mut_ptr(), *acc) };
            put(row + r, first + t, &values);
        }
    }
}
