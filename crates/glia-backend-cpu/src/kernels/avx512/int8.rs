//! The int8 kernels for AVX-512 with VNNI: a panel of rows against one tile of 16 columns, results in registers.
//!
//! Per row and 32 columns of k: 8 dots of four, and a conversion, a product and a multiply-add for each scale, on the
//! same two ports. Few rows unpack the codes in registers; many rows share codes that are unpacked to the first-level
//! cache once ([`super::wide`]).

use std::arch::x86_64::*;

use crate::kernels::int8::{ACT_BLOCK, Panels};
use crate::pack::{Format, Scales};

/// How far ahead of its reads a single row asks for weights, in bytes.
const AHEAD: usize = 4096;

/// One tile for `m` prepared rows.
///
/// # Panics
/// When the lengths do not fit.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,f16c,fma,avx2")]
pub(in crate::kernels) fn tile(
    format: Format,
    tile: &[u8],
    acts: &[u8],
    m: usize,
    put: &mut impl FnMut(usize, &[f32; 16]),
) {
    match (format.bits, format.has_min, format.scales) {
        (4, false, Scales::Half) => panels::<4, false, 1, false>(format, tile, acts, m, put),
        (4, true, Scales::Half) => panels::<4, true, 1, false>(format, tile, acts, m, put),
        (5, false, Scales::Half) => panels::<5, false, 1, false>(format, tile, acts, m, put),
        (5, true, Scales::Half) => panels::<5, true, 1, false>(format, tile, acts, m, put),
        (_, _, Scales::Half) => panels::<8, false, 1, false>(format, tile, acts, m, put),
        (4, _, Scales::Super) => panels::<4, true, 1, true>(format, tile, acts, m, put),
        (5, _, Scales::Super) => panels::<5, true, 1, true>(format, tile, acts, m, put),
        (_, _, Scales::Super) => panels::<6, false, 2, true>(format, tile, acts, m, put),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,f16c,fma,avx2")]
fn panels<const BITS: u8, const MIN: bool, const SCALES: usize, const SUPER: bool>(
    format: Format,
    tile: &[u8],
    acts: &[u8],
    m: usize,
    put: &mut impl FnMut(usize, &[f32; 16]),
) {
    let n_units = tile.len() / format.unit_bytes();
    let row_bytes = format.columns(tile) / 32 * ACT_BLOCK;
    assert!(acts.len() >= m * row_bytes && (format.bits, format.has_min, format.n_scales) == (BITS, MIN, SCALES));
    assert!((format.scales == Scales::Super) == SUPER);
    let panels = Panels::of(m);
    for rows in (0..panels.len()).map(|i| panels.rows(i)) {
        let (t, a) = (tile.as_ptr(), acts[rows.start * row_bytes..].as_ptr());
        // SAFETY: `tile` holds `n_units` units of this format, and from `a` on lies a panel of as many rows.
        unsafe {
            match rows.len() {
                // Twelve rows with two scales do not fit in registers.
                12 if SCALES == 2 => {
                    panel::<6, 12, BITS, MIN, SCALES, SUPER>(t, a, n_units, rows.start, put);
                    panel::<6, 12, BITS, MIN, SCALES, SUPER>(t, a.add(6 * ACT_BLOCK), n_units, rows.start + 6, put);
                }
                12 => panel::<12, 12, BITS, MIN, SCALES, SUPER>(t, a, n_units, rows.start, put),
                8 => panel::<8, 8, BITS, MIN, SCALES, SUPER>(t, a, n_units, rows.start, put),
                4 => panel::<4, 4, BITS, MIN, SCALES, SUPER>(t, a, n_units, rows.start, put),
                2 => panel::<2, 2, BITS, MIN, SCALES, SUPER>(t, a, n_units, rows.start, put),
                _ => panel::<1, 1, BITS, MIN, SCALES, SUPER>(t, a, n_units, rows.start, put),
            }
        }
    }
}

/// `M` rows of a panel of `P`.
///
/// # Safety
/// `tile` must hold `n_units` units of the format, `acts` a panel of `P` rows of as many prepared blocks as these have
/// runs, from the first of the `M` rows on.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,f16c,fma,avx2")]
unsafe fn panel<
    const M: usize,
    const P: usize,
    const BITS: u8,
    const MIN: bool,
    const SCALES: usize,
    const SUPER: bool,
>(
    tile: *const u8,
    acts: *const u8,
    n_units: usize,
    row: usize,
    put: &mut impl FnMut(usize, &[f32; 16]),
) {
    let code_bytes = BITS as usize * 64;
    let lane_bytes = if SUPER { 16 } else { 32 };
    let run_bytes = code_bytes + lane_bytes * (SCALES + MIN as usize);
    let runs = if SUPER { 8 } else { 1 };
    let (mut w, mut a) = (tile, acts);
    let mut acc = [_mm512_setzero_ps(); M];
    for _ in 0..n_units {
        // SAFETY: the unit, and as many blocks of each row as it has runs, lie within what the caller promised; loads
        // are unaligned.
        unsafe {
            let unit = |i: usize| match SUPER {
                true => _mm512_cvtph_ps(_mm256_loadu_si256(w.add(8 * run_bytes + i * 32).cast())),
                false => _mm512_setzero_ps(),
            };
            let (unit, min_unit) = (unit(0), if MIN { unit(1) } else { unit(0) });
            for _ in 0..runs {
                if M == 1 {
                    // A single row reads weights as fast as memory gives them, and the machine's own prefetching ends
                    // at each page.
                    for line in (0..run_bytes).step_by(64) {
                        _mm_prefetch::<_MM_HINT_T0>(w.wrapping_add(AHEAD + line).cast());
                    }
                }
                let lanes = |i: usize, unit: __m512| {
                    let at = w.add(code_bytes + i * lane_bytes);
                    if SUPER {
                        let steps = _mm512_cvtepi8_epi32(_mm_loadu_si128(at.cast()));
                        _mm512_mul_ps(_mm512_cvtepi32_ps(steps), unit)
                    } else {
                        _mm512_cvtph_ps(_mm256_loadu_si256(at.cast()))
                    }
                };
                let starts = |s: usize| -> [__m512i; M] {
                    std::array::from_fn(|r| {
                        _mm512_set1_epi32(a.add(r * ACT_BLOCK + 36 + s * 4).cast::<i32>().read_unaligned())
                    })
                };
                let mut sums = starts(0);
                // Written out: as loops they are not unrolled, and sums move through memory.
                macro_rules! dots {
                    ($($g:literal)*) => { $(
                        let four_codes = codes::<BITS, $g>(w);
                        for r in 0..M {
                            let four = a.add(r * ACT_BLOCK + $g * 4).cast::<i32>().read_unaligned();
                            sums[r] = _mm512_dpbusd_epi32(sums[r], four_codes, _mm512_set1_epi32(four));
                        }
                    )* };
                }
                let scale = |r: usize| _mm512_set1_ps(a.add(r * ACT_BLOCK + 32).cast::<f32>().read_unaligned());
                dots!(0 1 2 3);
                if SCALES == 2 {
                    let scales = lanes(0, unit);
                    let first: [__m512; M] =
                        std::array::from_fn(|r| _mm512_mul_ps(_mm512_cvtepi32_ps(sums[r]), scales));
                    sums = starts(1);
                    dots!(4 5 6 7);
                    let scales = lanes(1, unit);
                    for r in 0..M {
                        let both = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[r]), scales, first[r]);
                        acc[r] = _mm512_fmadd_ps(both, scale(r), acc[r]);
                    }
                } else {
                    dots!(4 5 6 7);
                    let scales = lanes(0, unit);
                    for r in 0..M {
                        let scales = _mm512_mul_ps(scales, scale(r));
                        acc[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[r]), scales, acc[r]);
                    }
                }
                if MIN {
                    let mins = lanes(SCALES, min_unit);
                    for r in 0..M {
                        let sum = _mm512_set1_ps(a.add(r * ACT_BLOCK + 44).cast::<f32>().read_unaligned());
                        acc[r] = _mm512_fmadd_ps(mins, sum, acc[r]);
                    }
                }
                (w, a) = (w.add(run_bytes), a.add(P * ACT_BLOCK));
            }
            if SUPER {
                w = w.add(if MIN { 64 } else { 32 });
            }
        }
    }
    for (r, acc) in acc.iter().enumerate() {
        let mut values = [0f32; 16];
        // SAFETY: `values` has room for 16 floats.
        unsafe { _mm512_storeu_ps(values.as_mut_ptr(), *acc) };
        put(row + r, &values);
    }
}

/// Codes of group `G`: four of each of 16 rows.
///
/// # Safety
/// `run` must hold the codes of a run.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,f16c,fma,avx2")]
pub(super) unsafe fn codes<const BITS: u8, const G: usize>(run: *const u8) -> __m512i {
    // SAFETY: all loads are of the run's codes.
    unsafe {
        if BITS == 8 {
            return _mm512_loadu_si512(run.add(G * 64).cast());
        }
        let pair = _mm512_loadu_si512(run.add(G % 4 * 64).cast());
        let four = if G < 4 { pair } else { _mm512_srli_epi16::<4>(pair) };
        let four = _mm512_and_si512(four, _mm512_set1_epi8(15));
        match BITS {
            5 => {
                let bits = run.add(256 + G * 8).cast::<u64>().read_unaligned();
                _mm512_mask_add_epi8(four, bits, four, _mm512_set1_epi8(16))
            }
            6 => {
                let plane = _mm512_loadu_si512(run.add(256 + G / 4 * 64).cast());
                let high = match G % 4 {
                    0 => _mm512_slli_epi16::<4>(plane),
                    1 => _mm512_slli_epi16::<2>(plane),
                    2 => plane,
                    _ => _mm512_srli_epi16::<2>(plane),
                };
                // four | (high & 0x30)
                _mm512_ternarylogic_epi32::<0xf8>(four, high, _mm512_set1_epi8(0x30))
            }
            _ => four,
        }
    }
}
