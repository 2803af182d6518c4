//! Int8 products of packed tiles over [`Lanes`]: exact integer dots, one fused multiply-add per block in order of k.

use super::{BITS_4, BITS_5, BITS_6, BITS_8, F16, Lanes};
use crate::kernels::int8::ACT_BLOCK;
use crate::pack::Format;

/// Rows that share the codes in registers.
const ROWS: usize = 4;

/// One tile for `m` prepared rows; `put` takes each row's 16 results.
///
/// # Safety
/// The machine has the instructions of `L`.
///
/// # Panics
/// When `acts` is not `m` rows.
#[inline(always)]
pub(in crate::kernels) unsafe fn tile<L: Lanes>(
    format: Format,
    tile: &[u8],
    acts: &[u8],
    m: usize,
    put: &mut impl FnMut(usize, &[f32; 16]),
) {
    // SAFETY: as the caller promises.
    unsafe {
        match (format.bits, format.has_min, format.n_scales) {
            (4, false, _) => rows::<L, BITS_4, false, 1>(format, tile, acts, m, put),
            (4, true, _) => rows::<L, BITS_4, true, 1>(format, tile, acts, m, put),
            (5, false, _) => rows::<L, BITS_5, false, 1>(format, tile, acts, m, put),
            (5, true, _) => rows::<L, BITS_5, true, 1>(format, tile, acts, m, put),
            (_, _, 2) => rows::<L, BITS_6, false, 2>(format, tile, acts, m, put),
            _ => rows::<L, BITS_8, false, 1>(format, tile, acts, m, put),
        }
    }
}

/// # Safety
/// As of [`tile`].
#[inline(always)]
unsafe fn rows<L: Lanes, const CODES: u8, const MIN: bool, const SCALES: usize>(
    format: Format,
    tile: &[u8],
    acts: &[u8],
    m: usize,
    put: &mut impl FnMut(usize, &[f32; 16]),
) {
    let n_blocks = tile.len() / format.block_bytes();
    let row_bytes = n_blocks * ACT_BLOCK;
    assert!(acts.len() >= m * row_bytes && format.n_scales == SCALES && format.has_min == MIN && !format.wide);
    let offset = if CODES == BITS_6 { 32 } else { 128 };
    assert!(matches!(CODES, BITS_4 | BITS_5) || format.offset == offset);
    let mut row = 0;
    while row < m {
        let a = acts[row * row_bytes..].as_ptr();
        // SAFETY: `tile` holds `n_blocks` blocks of this format, `acts` as many rows from `a` on as are computed.
        row += unsafe {
            match m - row {
                ROWS.. => block::<L, ROWS, CODES, MIN, SCALES>(format, tile, a, row, put),
                2.. => block::<L, 2, CODES, MIN, SCALES>(format, tile, a, row, put),
                _ => block::<L, 1, CODES, MIN, SCALES>(format, tile, a, row, put),
            }
        };
    }
}

/// `M` rows. Returns `M`.
///
/// # Safety
/// As of [`tile`]; `a` must be `M` rows of prepared blocks, as many as the tile has.
#[inline(always)]
unsafe fn block<L: Lanes, const M: usize, const CODES: u8, const MIN: bool, const SCALES: usize>(
    format: Format,
    tile: &[u8],
    a: *const u8,
    row: usize,
    put: &mut impl FnMut(usize, &[f32; 16]),
) -> usize {
    let n_blocks = tile.len() / format.block_bytes();
    let row_bytes = n_blocks * ACT_BLOCK;
    // SAFETY: block `b` of the tile and of each row lies within what the caller promised; loads are unaligned.
    unsafe {
        let mut acc = [L::zero(); M];
        for b in 0..n_blocks {
            let w = tile.as_ptr().add(b * format.block_bytes());
            let a = a.add(b * ACT_BLOCK);
            for s in 0..SCALES {
                let halves = if SCALES == 2 { s..s + 1 } else { 0..2 };
                let sums = L::dots::<M, CODES>(w, a, row_bytes, 36 + s * 4, halves);
                let scales = L::load::<F16>(w.add(format.scale_at(s)));
                for r in 0..M {
                    let scale = a.add(r * row_bytes + 32).cast::<f32>().read_unaligned();
                    acc[r] = L::fused(L::numbers(sums[r]), L::times(scales, scale), acc[r]);
                }
            }
            if MIN {
                let mins = L::load::<F16>(w.add(format.min_at()));
                for r in 0..M {
                    let sum = a.add(r * row_bytes + 44).cast::<f32>().read_unaligned();
                    acc[r] = L::fused_by(mins, sum, acc[r]);
                }
            }
        }
        for r in 0..M {
            put(row + r, &L::store(acc[r]));
        }
    }
    M
}
