//! Int8 products of packed tiles over [`Lanes`]: exact integer dots, one fused multiply-add per block in order of k.

use super::{BITS_4, BITS_5, BITS_6, BITS_8, F16, F32, Lanes};
use crate::kernels::int8::{ACT_BLOCK, Panels};
use crate::pack::{Format, PackedRun, Scales};

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
        match (format.bits, format.has_min) {
            (4, false) => panels::<L, BITS_4, false, 1>(format, tile, acts, m, put),
            (4, true) => panels::<L, BITS_4, true, 1>(format, tile, acts, m, put),
            (5, false) => panels::<L, BITS_5, false, 1>(format, tile, acts, m, put),
            (5, true) => panels::<L, BITS_5, true, 1>(format, tile, acts, m, put),
            (6, _) => panels::<L, BITS_6, false, 2>(format, tile, acts, m, put),
            _ => panels::<L, BITS_8, false, 1>(format, tile, acts, m, put),
        }
    }
}

/// # Safety
/// As of [`tile`].
#[inline(always)]
unsafe fn panels<L: Lanes, const CODES: u8, const MIN: bool, const SCALES: usize>(
    format: Format,
    tile: &[u8],
    acts: &[u8],
    m: usize,
    put: &mut impl FnMut(usize, &[f32; 16]),
) {
    let row_bytes = format.columns(tile) / 32 * ACT_BLOCK;
    assert!(acts.len() >= m * row_bytes && format.n_scales == SCALES && format.has_min == MIN);
    assert!(format.bits == CODES && (CODES != BITS_8 || format.offset == 128));
    let panels = Panels::of(m);
    for rows in (0..panels.len()).map(|i| panels.rows(i)) {
        let (width, mut row) = (rows.len(), rows.start);
        let panel = &acts[rows.start * row_bytes..rows.end * row_bytes];
        while row < rows.end {
            let a = panel[(row - rows.start) * ACT_BLOCK..].as_ptr();
            // SAFETY: `tile` holds blocks of this format, and from `a` on lies as much of a panel of `width` as is read.
            row += unsafe {
                match rows.end - row {
                    ROWS.. => block::<L, ROWS, CODES, MIN, SCALES>(format, tile, (a, width), row, put),
                    2.. => block::<L, 2, CODES, MIN, SCALES>(format, tile, (a, width), row, put),
                    _ => block::<L, 1, CODES, MIN, SCALES>(format, tile, (a, width), row, put),
                }
            };
        }
    }
}

/// `M` rows. Returns `M`.
///
/// # Safety
/// As of [`tile`]; `a` must be `M` rows of a panel of `width` rows, with as many prepared blocks as the tile has runs.
#[inline(always)]
unsafe fn block<L: Lanes, const M: usize, const CODES: u8, const MIN: bool, const SCALES: usize>(
    format: Format,
    tile: &[u8],
    (a, width): (*const u8, usize),
    row: usize,
    put: &mut impl FnMut(usize, &[f32; 16]),
) -> usize {
    // SAFETY: a run of the tile, and its block of each row, lie within what the caller promised; loads are unaligned.
    unsafe {
        let mut acc = [L::zero(); M];
        let mut a = a;
        for run in PackedRun::of_tile(format, tile) {
            let w = run.bytes().as_ptr();
            let number = |r: usize, at: usize| a.add(r * ACT_BLOCK + at).cast::<f32>().read_unaligned();
            let scales = |s: usize| match format.scales {
                Scales::Half => L::load::<F16>(w.add(format.scale_at(s))),
                Scales::Super => L::load::<F32>(run.scales(s).as_ptr().cast()),
            };
            if SCALES == 2 {
                let first = L::dots::<M, CODES>(w, a, ACT_BLOCK, 36, 0..1);
                let second = L::dots::<M, CODES>(w, a, ACT_BLOCK, 40, 1..2);
                let (low, high) = (scales(0), scales(1));
                for r in 0..M {
                    let both = L::product(L::numbers(first[r]), low);
                    let both = L::fused(L::numbers(second[r]), high, both);
                    acc[r] = L::fused_by(both, number(r, 32), acc[r]);
                }
            } else {
                let sums = L::dots::<M, CODES>(w, a, ACT_BLOCK, 36, 0..2);
                let scales = scales(0);
                for r in 0..M {
                    acc[r] = L::fused(L::numbers(sums[r]), L::times(scales, number(r, 32)), acc[r]);
                }
            }
            if MIN {
                let mins = match format.scales {
                    Scales::Half => L::load::<F16>(w.add(format.min_at())),
                    Scales::Super => L::load::<F32>(run.mins().as_ptr().cast()),
                };
                for r in 0..M {
                    acc[r] = L::fused_by(mins, number(r, 44), acc[r]);
                }
            }
            a = a.add(width * ACT_BLOCK);
        }
        for r in 0..M {
            put(row + r, &L::store(acc[r]));
        }
    }
    M
}
