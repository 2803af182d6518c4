//! Int8 products of packed tiles over [`Lanes`]: exact integer dots, then fused multiply-adds in order of k.

use super::{BITS_4, BITS_5, BITS_6, BITS_8, F16, Lanes};
use crate::kernels::int8::{ACT_BLOCK, Panels};
use crate::pack::{Format, Scales};

/// Rows that share the codes in registers.
const ROWS: usize = 4;

/// How far ahead of its reads a single row asks for weights, in bytes.
const AHEAD: usize = 4096;

/// One tile for `m` prepared rows in [`Panels`]; `put` takes each row's 16 results.
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
        match (format.bits, format.has_min, format.scales) {
            (4, false, Scales::Half) => panels::<L, BITS_4, false, 1, false>(format, tile, acts, m, put),
            (4, true, Scales::Half) => panels::<L, BITS_4, true, 1, false>(format, tile, acts, m, put),
            (5, false, Scales::Half) => panels::<L, BITS_5, false, 1, false>(format, tile, acts, m, put),
            (5, true, Scales::Half) => panels::<L, BITS_5, true, 1, false>(format, tile, acts, m, put),
            (_, _, Scales::Half) => panels::<L, BITS_8, false, 1, false>(format, tile, acts, m, put),
            (4, _, Scales::Super) => panels::<L, BITS_4, true, 1, true>(format, tile, acts, m, put),
            (5, _, Scales::Super) => panels::<L, BITS_5, true, 1, true>(format, tile, acts, m, put),
            (_, _, Scales::Super) => panels::<L, BITS_6, false, 2, true>(format, tile, acts, m, put),
        }
    }
}

/// # Safety
/// As of [`tile`].
#[inline(always)]
unsafe fn panels<L: Lanes, const CODES: u8, const MIN: bool, const SCALES: usize, const SUPER: bool>(
    format: Format,
    tile: &[u8],
    acts: &[u8],
    m: usize,
    put: &mut impl FnMut(usize, &[f32; 16]),
) {
    let row_bytes = format.columns(tile) / 32 * ACT_BLOCK;
    assert!(acts.len() >= m * row_bytes && (format.bits, format.has_min, format.n_scales) == (CODES, MIN, SCALES));
    assert!((format.scales == Scales::Super) == SUPER && (CODES != BITS_8 || format.offset == 128));
    let panels = Panels::of(m);
    for rows in (0..panels.len()).map(|i| panels.rows(i)) {
        let (width, mut row) = (rows.len(), rows.start);
        while row < rows.end {
            let a = acts[rows.start * row_bytes + (row - rows.start) * ACT_BLOCK..].as_ptr();
            // SAFETY: `tile` holds units of this format, and from `a` on lie the rows of a panel from this one on.
            row += unsafe {
                match rows.end - row {
                    ROWS.. => block::<L, ROWS, CODES, MIN, SCALES, SUPER>(format, tile, (a, width), row, put),
                    2.. => block::<L, 2, CODES, MIN, SCALES, SUPER>(format, tile, (a, width), row, put),
                    _ => block::<L, 1, CODES, MIN, SCALES, SUPER>(format, tile, (a, width), row, put),
                }
            };
        }
    }
}

/// `M` rows of a panel. Returns `M`.
///
/// # Safety
/// As of [`tile`]; `a` must be the first of `M` rows of a panel of `width` with as many blocks as the tile has runs.
#[inline(always)]
unsafe fn block<L: Lanes, const M: usize, const CODES: u8, const MIN: bool, const SCALES: usize, const SUPER: bool>(
    format: Format,
    tile: &[u8],
    (mut a, width): (*const u8, usize),
    row: usize,
    put: &mut impl FnMut(usize, &[f32; 16]),
) -> usize {
    let run_bytes = format.run_bytes();
    // SAFETY: the runs of each unit, its tail, and as many blocks of each row lie within what the caller promised; loads
    // are unaligned.
    unsafe {
        let mut acc = [L::zero(); M];
        for unit in tile.chunks_exact(format.unit_bytes()) {
            let (mut w, tail) = (unit.as_ptr(), unit.as_ptr().add(format.runs() * run_bytes));
            let units = [
                if SUPER { L::load::<F16>(tail) } else { L::zero() },
                if SUPER && MIN {
                    L::load::<F16>(tail.add(32))
                } else {
                    L::zero()
                },
            ];
            for _ in 0..format.runs() {
                if M == 1 {
                    ask_for(w.wrapping_add(AHEAD), run_bytes);
                }
                let lanes = |at: usize, unit: L::Floats| {
                    if SUPER {
                        L::product(L::load_bytes(w.add(at)), unit)
                    } else {
                        L::load::<F16>(w.add(at))
                    }
                };
                let float = |r: usize, at: usize| a.add(r * ACT_BLOCK + at).cast::<f32>().read_unaligned();
                let scales = lanes(format.scale_at(0), units[0]);
                if SCALES == 2 {
                    let others = lanes(format.scale_at(1), units[0]);
                    let first = L::dots::<M, CODES>(w, a, 36, 0..1);
                    let second = L::dots::<M, CODES>(w, a, 40, 1..2);
                    for r in 0..M {
                        let both = L::product(L::numbers(first[r]), scales);
                        let both = L::fused(L::numbers(second[r]), others, both);
                        acc[r] = L::fused_by(both, float(r, 32), acc[r]);
                    }
                } else {
                    let sums = L::dots::<M, CODES>(w, a, 36, 0..2);
                    for r in 0..M {
                        acc[r] = L::fused(L::numbers(sums[r]), L::times(scales, float(r, 32)), acc[r]);
                    }
                }
                if MIN {
                    let mins = lanes(format.min_at(), units[1]);
                    for r in 0..M {
                        acc[r] = L::fused_by(mins, float(r, 44), acc[r]);
                    }
                }
                (w, a) = (w.add(run_bytes), a.wrapping_add(width * ACT_BLOCK));
            }
        }
        for r in 0..M {
            put(row + r, &L::store(acc[r]));
        }
    }
    M
}

/// Asks for lines of memory that will be read: a single row reads weights as fast as memory gives them, and the machine's
/// own prefetching ends at each page.
#[inline(always)]
fn ask_for(at: *const u8, n_bytes: usize) {
    for line in (0..n_bytes).step_by(64) {
        crate::simd::ask(at.wrapping_add(line));
    }
}
