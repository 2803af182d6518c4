//! F32 products over tiles of any dtype: a chunk of k is widened once to `[k][16]` f32, then shared by all rows.

use std::ops::Range;

use glia_core::DType;

use crate::isa::Isa;
use crate::simd::BASE_FMA;

/// Rows that share a widened chunk; sums of so many rows stay on the stack.
const ROWS: usize = 64;
/// Columns of k that are widened at a time: one 256-element block at most.
pub(crate) const CHUNK_K: usize = 256;

/// Consecutive tiles `[k][16]` of F32, F16 or BF16 for `m` rows of f32 activations (as bytes), k in order whatever `m`.
/// `put(row, tile, values)` takes the results.
pub(crate) fn tiles(
    isa: Isa,
    dtype: DType,
    tiles: &[u8],
    k: usize,
    acts: &[u8],
    m: usize,
    put: &mut impl FnMut(usize, usize, &[f32; 16]),
) {
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a matrix is packed only for an instruction set that this machine has.
        Isa::Avx512Vnni => return unsafe { super::avx512::float::tiles(dtype, tiles, k, acts, m, put) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Isa::Avx2 | Isa::Avx2Vnni => return unsafe { super::avx2::float_tiles(dtype, tiles, k, acts, m, put) },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above.
        Isa::NeonDot | Isa::NeonI8mm => return unsafe { super::neon::float_tiles(dtype, tiles, k, acts, m, put) },
        _ => {}
    }
    let step = 16 * dtype.block_bytes();
    for (index, tile) in tiles.chunks_exact((k * step).max(1)).enumerate() {
        let mut put = |row: usize, values: &[f32; 16]| put(row, index, values);
        self::tile(isa, k, acts, m, &mut put, |ks, out| {
            widen(isa, dtype, &tile[ks.start * step..ks.end * step], out);
        });
    }
}

/// One tile for `m` rows of f32 activations (as bytes), k in order, whatever `m`. `fill` widens a range of at most
/// [`CHUNK_K`] columns.
pub(crate) fn tile(
    isa: Isa,
    k: usize,
    acts: &[u8],
    m: usize,
    put: &mut impl FnMut(usize, &[f32; 16]),
    mut fill: impl FnMut(Range<usize>, &mut [f32]),
) {
    let mut scratch = [0f32; CHUNK_K * 16];
    for first in (0..m).step_by(ROWS) {
        let mut sums = [[0f32; 16]; ROWS];
        let sums = &mut sums[..ROWS.min(m - first)];
        let acts = &acts[first * k * 4..];
        for from in (0..k).step_by(CHUNK_K) {
            let ks = from..k.min(from + CHUNK_K);
            let w = &mut scratch[..ks.len() * 16];
            fill(ks.clone(), w);
            let w = w.as_chunks().0;
            match isa {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: as above.
                Isa::Avx512Vnni => unsafe { add_avx512(w, acts, k, ks.start, sums) },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: as above.
                Isa::Avx2 | Isa::Avx2Vnni => unsafe { add_avx2(w, acts, k, ks.start, sums) },
                _ => add_all::<{ BASE_FMA }, 4>(w, acts, k, ks.start, sums),
            }
        }
        for (row, sums) in sums.iter().enumerate() {
            put(first + row, sums);
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")]
fn add_avx512(w: &[[f32; 16]], acts: &[u8], k: usize, from: usize, sums: &mut [[f32; 16]]) {
    add_all::<true, 8>(w, acts, k, from, sums);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn add_avx2(w: &[[f32; 16]], acts: &[u8], k: usize, from: usize, sums: &mut [[f32; 16]]) {
    add_all::<true, 4>(w, acts, k, from, sums);
}

/// `MOST` rows (4 or 8) at a time have their sums in registers.
#[inline(always)]
fn add_all<const FMA: bool, const MOST: usize>(
    w: &[[f32; 16]],
    acts: &[u8],
    k: usize,
    from: usize,
    sums: &mut [[f32; 16]],
) {
    let mut row = 0;
    while row < sums.len() {
        let acts = &acts[(row * k + from) * 4..];
        row += match &mut sums[row..] {
            [a, b, c, d, e, f, g, h, ..] if MOST == 8 => add::<FMA, 8>(w, acts, k, [a, b, c, d, e, f, g, h]),
            [a, b, c, d, ..] => add::<FMA, 4>(w, acts, k, [a, b, c, d]),
            [a, b, ..] => add::<FMA, 2>(w, acts, k, [a, b]),
            [a, ..] => add::<FMA, 1>(w, acts, k, [a]),
            [] => return,
        };
    }
}

#[inline(always)]
fn add<const FMA: bool, const M: usize>(w: &[[f32; 16]], acts: &[u8], k: usize, sums: [&mut [f32; 16]; M]) -> usize {
    let mut acc: [[f32; 16]; M] = std::array::from_fn(|r| *sums[r]);
    let rows: [&[[u8; 4]]; M] = std::array::from_fn(|r| &acts[r * k * 4..].as_chunks().0[..w.len()]);
    for (i, w) in w.iter().enumerate() {
        for r in 0..M {
            let x = f32::from_ne_bytes(rows[r][i]);
            for lane in 0..16 {
                let (a, w) = (&mut acc[r][lane], w[lane]);
                *a = if FMA { x.mul_add(w, *a) } else { x * w + *a };
            }
        }
    }
    for (sum, acc) in sums.into_iter().zip(acc) {
        *sum = acc;
    }
    M
}

/// Widens F32, F16 or BF16 bytes to f32.
fn widen(isa: Isa, dtype: DType, bytes: &[u8], out: &mut [f32]) {
    match (dtype, isa) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as in `tile`.
        (DType::F16, Isa::Avx2 | Isa::Avx2Vnni | Isa::Avx512Vnni) => unsafe { widen_f16(bytes, out) },
        (DType::F16, _) => {
            for (o, b) in out.iter_mut().zip(bytes.as_chunks().0) {
                *o = half::f16::from_le_bytes(*b).to_f32();
            }
        }
        (DType::BF16, _) => {
            for (o, b) in out.iter_mut().zip(bytes.as_chunks().0) {
                *o = f32::from_bits(u32::from(u16::from_le_bytes(*b)) << 16);
            }
        }
        _ => {
            for (o, b) in out.iter_mut().zip(bytes.as_chunks().0) {
                *o = f32::from_le_bytes(*b);
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
fn widen_f16(bytes: &[u8], out: &mut [f32]) {
    use std::arch::x86_64::*;
    for (o, b) in out.as_chunks_mut::<8>().0.iter_mut().zip(bytes.as_chunks::<16>().0) {
        // SAFETY: 16 bytes are read, 8 floats written, both unaligned.
        unsafe { _mm256_storeu_ps(o.as_mut_ptr(), _mm256_cvtph_ps(_mm_loadu_si128(b.as_ptr().cast()))) };
    }
}
