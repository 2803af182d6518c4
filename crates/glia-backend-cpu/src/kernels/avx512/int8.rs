//! The int8 kernel for AVX-512 with VNNI: up to 8 rows against one tile of 16 columns, results in registers.

use std::arch::x86_64::*;

use crate::kernels::int8::ACT_BLOCK;
use crate::pack::Format;

/// One tile for `m` prepared rows.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,f16c,fma,avx2")]
pub(in crate::kernels) fn tile(
    format: Format,
    tile: &[u8],
    acts: &[u8],
    m: usize,
    put: &mut impl FnMut(usize, &[f32; 16]),
) {
    match (format.bits, format.has_min, format.n_scales) {
        (4, false, _) => rows::<4, false, 1>(format, tile, acts, m, put),
        (4, true, _) => rows::<4, true, 1>(format, tile, acts, m, put),
        (5, false, _) => rows::<5, false, 1>(format, tile, acts, m, put),
        (5, true, _) => rows::<5, true, 1>(format, tile, acts, m, put),
        (_, _, 2) => rows::<8, false, 2>(format, tile, acts, m, put),
        _ => rows::<8, false, 1>(format, tile, acts, m, put),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,f16c,fma,avx2")]
fn rows<const BITS: u8, const MIN: bool, const SCALES: usize>(
    format: Format,
    tile: &[u8],
    acts: &[u8],
    m: usize,
    put: &mut impl FnMut(usize, &[f32; 16]),
) {
    let n_blocks = tile.len() / format.block_bytes();
    let row_bytes = n_blocks * ACT_BLOCK;
    assert!(acts.len() >= m * row_bytes && format.bits == BITS && format.n_scales == SCALES && format.has_min == MIN);
    let mut row = 0;
    while row < m {
        let a = acts[row * row_bytes..].as_ptr();
        let (t, left) = (tile.as_ptr(), m - row);
        // SAFETY: `tile` holds `n_blocks` blocks of this format, `acts` as many rows from `a` on as are computed.
        let done = unsafe {
            match left {
                8.. => block::<8, BITS, MIN, SCALES>(t, a, n_blocks, row, put),
                4..8 => block::<4, BITS, MIN, SCALES>(t, a, n_blocks, row, put),
                2..4 => block::<2, BITS, MIN, SCALES>(t, a, n_blocks, row, put),
                _ => block::<1, BITS, MIN, SCALES>(t, a, n_blocks, row, put),
            }
        };
        row += done;
    }
}

/// `M` rows. Returns `M`.
///
/// # Safety
/// `tile` must hold `n_blocks` blocks of the format, `acts` `M` rows of as many prepared blocks.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,f16c,fma,avx2")]
unsafe fn block<const M: usize, const BITS: u8, const MIN: bool, const SCALES: usize>(
    tile: *const u8,
    acts: *const u8,
    n_blocks: usize,
    row: usize,
    put: &mut impl FnMut(usize, &[f32; 16]),
) -> usize {
    let code_bytes = match BITS {
        4 => 256,
        5 => 320,
        _ => 512,
    };
    let block_bytes = code_bytes + 32 * SCALES + if MIN { 32 } else { 0 };
    let row_bytes = n_blocks * ACT_BLOCK;
    let low = _mm512_set1_epi8(15);
    let sixteen = _mm512_set1_epi8(16);
    let mut acc = [_mm512_setzero_ps(); M];
    for b in 0..n_blocks {
        // SAFETY: block `b` of the tile and of each row lies within what the caller promised; loads are unaligned.
        unsafe {
            let w = tile.add(b * block_bytes);
            let a = acts.add(b * ACT_BLOCK);
            for s in 0..SCALES {
                let mut sums: [__m512i; M] = std::array::from_fn(|r| {
                    _mm512_set1_epi32(a.add(r * row_bytes + 36 + s * 4).cast::<i32>().read_unaligned())
                });
                for g in s * 8 / SCALES..(s + 1) * 8 / SCALES {
                    let codes = if BITS == 8 {
                        _mm512_loadu_si512(w.add(g * 64).cast())
                    } else {
                        let pair = _mm512_loadu_si512(w.add(g % 4 * 64).cast());
                        let four = if g < 4 { pair } else { _mm512_srli_epi16::<4>(pair) };
                        let four = _mm512_and_si512(four, low);
                        if BITS == 5 {
                            let bits = w.add(256 + g * 8).cast::<u64>().read_unaligned();
                            _mm512_mask_add_epi8(four, bits, four, sixteen)
                        } else {
                            four
                        }
                    };
                    for r in 0..M {
                        let four = a.add(r * row_bytes + g * 4).cast::<i32>().read_unaligned();
                        sums[r] = _mm512_dpbusd_epi32(sums[r], codes, _mm512_set1_epi32(four));
                    }
                }
                let scales = _mm512_cvtph_ps(_mm256_loadu_si256(w.add(code_bytes + s * 32).cast()));
                for r in 0..M {
                    let scale = _mm512_set1_ps(a.add(r * row_bytes + 32).cast::<f32>().read_unaligned());
                    acc[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[r]), _mm512_mul_ps(scales, scale), acc[r]);
                }
            }
            if MIN {
                let mins = _mm512_cvtph_ps(_mm256_loadu_si256(w.add(code_bytes + SCALES * 32).cast()));
                for r in 0..M {
                    let sum = _mm512_set1_ps(a.add(r * row_bytes + 44).cast::<f32>().read_unaligned());
                    acc[r] = _mm512_fmadd_ps(mins, sum, acc[r]);
                }
            }
        }
    }
    for (r, acc) in acc.iter().enumerate() {
        let mut values = [0f32; 16];
        // SAFETY: `values` has room for 16 floats.
        unsafe { _mm512_storeu_ps(values.as_mut_ptr(), *acc) };
        put(row + r, &values);
    }
    M
}
