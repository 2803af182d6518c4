//! Float products over [`Lanes`]: columns go from the tile to registers, k in order, whatever the rows.
//!
//! Few rows take several tiles at a time: independent chains of multiply-adds hide each other's latency.

use glia_core::DType;

use super::{BF16, F16, F32, Lanes};

/// Rows that share a column.
const ROWS: usize = 4;
/// Tiles that a single row takes at a time.
const TILES: usize = 4;

/// `m` rows of f32 activations (as bytes) by consecutive tiles `[k][16]`; `put(row, tile, values)` takes the results.
///
/// # Safety
/// The machine has the instructions of `L`.
///
/// # Panics
/// When the lengths do not fit.
#[inline(always)]
pub(in crate::kernels) unsafe fn tiles<L: Lanes>(
    dtype: DType,
    tiles: &[u8],
    k: usize,
    acts: &[u8],
    m: usize,
    put: &mut impl FnMut(usize, usize, &[f32; 16]),
) {
    // SAFETY: as the caller promises.
    unsafe {
        match dtype {
            DType::F32 => typed::<L, F32>(tiles, k, acts, m, put),
            DType::F16 => typed::<L, F16>(tiles, k, acts, m, put),
            _ => typed::<L, BF16>(tiles, k, acts, m, put),
        }
    }
}

/// Bytes of a stored column.
const fn column_bytes(d: u8) -> usize {
    if d == F32 { 64 } else { 32 }
}

/// # Safety
/// As of [`tiles`].
#[inline(always)]
unsafe fn typed<L: Lanes, const D: u8>(
    tiles: &[u8],
    k: usize,
    acts: &[u8],
    m: usize,
    put: &mut impl FnMut(usize, usize, &[f32; 16]),
) {
    let size = k * column_bytes(D);
    assert!(k > 0 && tiles.len().is_multiple_of(size) && acts.len() >= m * k * 4);
    let n_tiles = tiles.len() / size;
    let whole = m / ROWS * ROWS;
    for first in (0..n_tiles).step_by(TILES) {
        let end = n_tiles.min(first + TILES);
        // SAFETY: the tiles and rows from `at` on are there, as many as each block takes.
        unsafe {
            let at = |row: usize, tile: usize| (tiles[tile * size..].as_ptr(), acts[row * k * 4..].as_ptr().cast());
            for tile in first..end {
                for row in (0..whole).step_by(ROWS) {
                    block::<L, D, 1, ROWS>(at(row, tile), k, (row, tile), put);
                }
            }
            if m - whole >= 2 {
                let mut tile = first;
                while tile + 2 <= end {
                    block::<L, D, 2, 2>(at(whole, tile), k, (whole, tile), put);
                    tile += 2;
                }
                if tile < end {
                    block::<L, D, 1, 2>(at(whole, tile), k, (whole, tile), put);
                }
            }
            if m % 2 == 1 {
                if end - first == TILES {
                    block::<L, D, TILES, 1>(at(m - 1, first), k, (m - 1, first), put);
                } else {
                    for tile in first..end {
                        block::<L, D, 1, 1>(at(m - 1, tile), k, (m - 1, tile), put);
                    }
                }
            }
        }
    }
}

/// `M` rows by `T` tiles.
///
/// # Safety
/// As of [`tiles`]; the first pointer must be `T` tiles of `k` columns, the second `M` rows of `k` floats (unaligned).
#[inline(always)]
unsafe fn block<L: Lanes, const D: u8, const T: usize, const M: usize>(
    (w, a): (*const u8, *const f32),
    k: usize,
    (row, tile): (usize, usize),
    put: &mut impl FnMut(usize, usize, &[f32; 16]),
) {
    // SAFETY: column `i` of each tile and element `i` of each row lie within what the caller promised.
    unsafe {
        let mut acc = [[L::zero(); T]; M];
        for i in 0..k {
            let mut columns = [L::zero(); T];
            for t in 0..T {
                columns[t] = L::load::<D>(w.add((t * k + i) * column_bytes(D)));
            }
            for r in 0..M {
                let x = a.add(r * k + i).read_unaligned();
                for t in 0..T {
                    acc[r][t] = L::fused_by(columns[t], x, acc[r][t]);
                }
            }
        }
        for r in 0..M {
            for t in 0..T {
                put(row + r, tile + t, &L::store(acc[r][t]));
            }
        }
    }
}
