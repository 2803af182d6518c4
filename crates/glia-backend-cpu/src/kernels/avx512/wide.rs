//! Many rows against one or two tiles: a stretch of the tiles is unpacked to 8-bit codes and F32 scales in the
//! first-level cache once, then all panels go through it, their sums waiting in memory. Two tiles share each broadcast of
//! activations, which keeps the load ports out of the way. The same operations in the same order as for few rows.

use std::arch::x86_64::*;
use std::cell::Cell;

use super::int8::codes;
use crate::kernels::int8::{ACT_BLOCK, Panels};
use crate::pack::{Format, Scales};

/// Rows whose sums are kept at a time.
const ROWS: usize = 8 * Panels::ROWS;
/// Runs of 32 columns that are unpacked at a time: a multiple of those of a unit.
const RUNS: usize = 16;

/// Unpacked runs.
#[repr(C, align(64))]
struct Stretch {
    codes: [[u8; 512]; RUNS],
    scales: [[[f32; 16]; 2]; RUNS],
    mins: [[f32; 16]; RUNS],
}

impl Stretch {
    const EMPTY: Stretch = Stretch {
        codes: [[0; 512]; RUNS],
        scales: [[[0.0; 16]; 2]; RUNS],
        mins: [[0.0; 16]; RUNS],
    };
}

/// What a pair of tiles needs besides registers.
struct Space {
    stretches: [Stretch; 2],
    sums: [[[f32; 16]; 2]; ROWS],
}

thread_local! {
    /// Kept from call to call: writing zeros to it took as long as one product in seventy.
    static SPACE: Cell<Option<Box<Space>>> = const { Cell::new(None) };
}

/// Consecutive tiles of `tile_bytes` for `m` prepared rows; `put(row, tile, values)` takes the results.
///
/// # Panics
/// When the lengths do not fit.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,f16c,fma,avx2")]
pub(in crate::kernels) fn tiles(
    format: Format,
    (tiles, tile_bytes): (&[u8], usize),
    acts: &[u8],
    m: usize,
    ask: &impl Fn(usize, usize),
    put: &mut impl FnMut(usize, usize, &[f32; 16]),
) {
    let mut space = SPACE.take().unwrap_or_else(|| {
        Box::new(Space {
            stretches: [const { Stretch::EMPTY }; 2],
            sums: [[[0.0; 16]; 2]; ROWS],
        })
    });
    for (pair, both) in tiles.chunks(2 * tile_bytes).enumerate() {
        let mut put = |row: usize, tile: usize, values: &[f32; 16]| put(row, pair * 2 + tile, values);
        let ask = |row: usize, tile: usize| ask(row, pair * 2 + tile);
        let Space { stretches, sums } = &mut *space;
        match both.split_at_checked(tile_bytes) {
            Some((one, other)) if other.len() == tile_bytes => {
                together(format, [one, other], acts, m, (stretches, sums), &ask, &mut put);
            }
            _ => {
                let ([stretch, _], mut sums) = (stretches, [[[0.0; 16]; 1]; ROWS]);
                together(
                    format,
                    [both],
                    acts,
                    m,
                    (std::array::from_mut(stretch), &mut sums),
                    &ask,
                    &mut put,
                );
            }
        }
    }
    SPACE.set(Some(space));
}

/// `T` tiles.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,f16c,fma,avx2")]
fn together<const T: usize>(
    format: Format,
    tiles: [&[u8]; T],
    acts: &[u8],
    m: usize,
    (stretches, all): (&mut [Stretch; T], &mut [[[f32; 16]; T]; ROWS]),
    ask: &impl Fn(usize, usize),
    put: &mut impl FnMut(usize, usize, &[f32; 16]),
) {
    let n_runs = format.columns(tiles[0]) / 32;
    let row_bytes = n_runs * ACT_BLOCK;
    assert!(acts.len() >= m * row_bytes && tiles.iter().all(|t| t.len() == tiles[0].len()));
    for first in (0..m).step_by(ROWS) {
        let sums = &mut all[..ROWS.min(m - first)];
        sums.fill([[0.0; 16]; T]);
        let acts = &acts[first * row_bytes..];
        let size = RUNS / format.runs() * format.unit_bytes();
        for (index, at) in (0..n_runs).step_by(RUNS).enumerate() {
            for (tile, stretch) in tiles.iter().zip(&mut *stretches) {
                unpack(format, &tile[index * size..tile.len().min((index + 1) * size)], stretch);
                if first == 0 {
                    ask_for_more(tile, (index + 1) * size, size, T);
                }
            }
            let runs = RUNS.min(n_runs - at);
            if at + runs == n_runs {
                // Results go to as many pages as there are rows.
                (first..first + sums.len()).for_each(|row| (0..T).for_each(|tile| ask(row, tile)));
            }
            match (format.n_scales, format.has_min) {
                (1, false) => panels::<T, 1, false>(stretches, runs, acts, (at, n_runs), sums),
                (1, true) => panels::<T, 1, true>(stretches, runs, acts, (at, n_runs), sums),
                (_, false) => panels::<T, 2, false>(stretches, runs, acts, (at, n_runs), sums),
                (_, true) => panels::<T, 2, true>(stretches, runs, acts, (at, n_runs), sums),
            }
        }
        for (row, sums) in sums.iter().enumerate() {
            for (tile, sums) in sums.iter().enumerate() {
                put(first + row, tile, sums);
            }
        }
    }
}

/// Asks for `size` bytes of a tile from `at` on, for the second-level cache; where the tile ends, for the first bytes of
/// the one that comes `step` tiles later.
#[target_feature(enable = "avx512f")]
fn ask_for_more(tile: &[u8], at: usize, size: usize, step: usize) {
    let from = if at < tile.len() { at } else { step * tile.len() };
    for line in (0..size).step_by(64) {
        // A prefetch of any address is no access.
        _mm_prefetch::<_MM_HINT_T1>(tile.as_ptr().wrapping_add(from + line).cast());
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,f16c,fma,avx2")]
fn unpack(format: Format, units: &[u8], to: &mut Stretch) {
    match (format.bits, format.has_min, format.scales) {
        (4, false, Scales::Half) => unpack_as::<4, false, 1, false>(format, units, to),
        (4, true, Scales::Half) => unpack_as::<4, true, 1, false>(format, units, to),
        (5, false, Scales::Half) => unpack_as::<5, false, 1, false>(format, units, to),
        (5, true, Scales::Half) => unpack_as::<5, true, 1, false>(format, units, to),
        (_, _, Scales::Half) => unpack_as::<8, false, 1, false>(format, units, to),
        (4, _, Scales::Super) => unpack_as::<4, true, 1, true>(format, units, to),
        (5, _, Scales::Super) => unpack_as::<5, true, 1, true>(format, units, to),
        (_, _, Scales::Super) => unpack_as::<6, false, 2, true>(format, units, to),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,f16c,fma,avx2")]
fn unpack_as<const BITS: u8, const MIN: bool, const SCALES: usize, const SUPER: bool>(
    format: Format,
    units: &[u8],
    to: &mut Stretch,
) {
    assert!((format.bits, format.has_min, format.n_scales) == (BITS, MIN, SCALES));
    let (run_bytes, runs) = (format.run_bytes(), format.runs());
    for (u, unit) in units.chunks_exact(format.unit_bytes()).enumerate() {
        for j in 0..runs {
            let run = &unit[j * run_bytes..];
            let i = u * runs + j;
            let (out, scales, mins) = (&mut to.codes[i], &mut to.scales[i], &mut to.mins[i]);
            // SAFETY: a run's codes, scales and minima lie in the run, the units of a super-block in its tail; the
            // stores have room for 512 bytes and 16 floats.
            unsafe {
                let (w, out) = (run.as_ptr(), out.as_mut_ptr());
                macro_rules! store {
                    ($($g:literal)*) => { $(
                        _mm512_storeu_si512(out.add($g * 64).cast(), codes::<BITS, $g>(w));
                    )* };
                }
                store!(0 1 2 3 4 5 6 7);
                let lanes = |at: usize, which: usize| {
                    if SUPER {
                        let tail = unit.as_ptr().add(runs * run_bytes + which * 32);
                        let steps = _mm512_cvtepi8_epi32(_mm_loadu_si128(w.add(at).cast()));
                        _mm512_mul_ps(
                            _mm512_cvtepi32_ps(steps),
                            _mm512_cvtph_ps(_mm256_loadu_si256(tail.cast())),
                        )
                    } else {
                        _mm512_cvtph_ps(_mm256_loadu_si256(w.add(at).cast()))
                    }
                };
                for s in 0..SCALES {
                    _mm512_storeu_ps(scales[s].as_mut_ptr(), lanes(format.scale_at(s), 0));
                }
                if MIN {
                    _mm512_storeu_ps(mins.as_mut_ptr(), lanes(format.min_at(), 1));
                }
            }
        }
    }
}

/// All rows through `n` unpacked runs, which begin at run `at` of the tiles' `n_runs`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,f16c,fma,avx2")]
fn panels<const T: usize, const SCALES: usize, const MIN: bool>(
    stretches: &[Stretch; T],
    n: usize,
    acts: &[u8],
    (at, n_runs): (usize, usize),
    sums: &mut [[[f32; 16]; T]],
) {
    let m = sums.len();
    assert!(n <= RUNS && at + n <= n_runs && acts.len() >= m * n_runs * ACT_BLOCK);
    let panels = Panels::of(m);
    for rows in (0..panels.len()).map(|i| panels.rows(i)) {
        let first = (rows.start * n_runs + at * rows.len()) * ACT_BLOCK;
        let (a, to) = (&acts[first..], &mut sums[rows.clone()]);
        // SAFETY: a panel of as many rows lies in `acts`, and its blocks from run `at` on begin at `a`.
        unsafe {
            match (rows.len(), T * SCALES) {
                (12, 1) => passes::<12, 12, T, SCALES, MIN>(stretches, n, a, to),
                (12, 2) => passes::<6, 12, T, SCALES, MIN>(stretches, n, a, to),
                (12, _) => passes::<4, 12, T, SCALES, MIN>(stretches, n, a, to),
                (8, 1) => passes::<8, 8, T, SCALES, MIN>(stretches, n, a, to),
                (8, _) => passes::<4, 8, T, SCALES, MIN>(stretches, n, a, to),
                (4, _) => passes::<4, 4, T, SCALES, MIN>(stretches, n, a, to),
                (2, _) => passes::<2, 2, T, SCALES, MIN>(stretches, n, a, to),
                _ => passes::<1, 1, T, SCALES, MIN>(stretches, n, a, to),
            }
        }
    }
}

/// A panel of `P` rows through `n` runs, `M` at a time: as many as fit in registers.
///
/// # Safety
/// `acts` must hold `n` blocks of the panel's rows.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,f16c,fma,avx2")]
unsafe fn passes<const M: usize, const P: usize, const T: usize, const SCALES: usize, const MIN: bool>(
    stretches: &[Stretch; T],
    n: usize,
    acts: &[u8],
    sums: &mut [[[f32; 16]; T]],
) {
    for (pass, sums) in sums.as_chunks_mut::<M>().0.iter_mut().enumerate() {
        // SAFETY: as the caller promised.
        unsafe { dots::<M, P, T, SCALES, MIN>(stretches, n, acts.as_ptr().add(pass * M * ACT_BLOCK), sums) };
    }
}

/// `M` rows of a panel of `P` through `n` runs.
///
/// # Safety
/// `acts` must hold `n` blocks of the panel's rows, from the first of the `M` on.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,f16c,fma,avx2")]
unsafe fn dots<const M: usize, const P: usize, const T: usize, const SCALES: usize, const MIN: bool>(
    stretches: &[Stretch; T],
    n: usize,
    acts: *const u8,
    sums: &mut [[[f32; 16]; T]; M],
) {
    type Rows<V, const T: usize, const M: usize> = [[V; T]; M];
    let mut acc: Rows<__m512, T, M> = std::array::from_fn(|r| {
        // SAFETY: the sums are arrays of 16 floats; loads and stores are unaligned.
        std::array::from_fn(|t| unsafe { _mm512_loadu_ps(sums[r][t].as_ptr()) })
    });
    let mut a = acts;
    for i in 0..n {
        // SAFETY: 512 bytes of codes and 16 lanes of scales and minima are there; block `i` of each row lies within what
        // the caller promised.
        unsafe {
            let starts = |s: usize| -> Rows<__m512i, T, M> {
                std::array::from_fn(|r| {
                    [_mm512_set1_epi32(a.add(r * ACT_BLOCK + 36 + s * 4).cast::<i32>().read_unaligned()); T]
                })
            };
            let float = |r: usize, at: usize| _mm512_set1_ps(a.add(r * ACT_BLOCK + at).cast::<f32>().read_unaligned());
            let scales = |s: usize| -> [__m512; T] {
                std::array::from_fn(|t| _mm512_loadu_ps(stretches[t].scales[i][s].as_ptr()))
            };
            let mut ints = starts(0);
            // Written out: as loops they are not unrolled, and sums move through memory.
            macro_rules! dots {
                ($($g:literal)*) => { $(
                    let codes: [__m512i; T] = std::array::from_fn(|t| {
                        _mm512_loadu_si512(stretches[t].codes[i].as_ptr().add($g * 64).cast())
                    });
                    for r in 0..M {
                        let four = a.add(r * ACT_BLOCK + $g * 4).cast::<i32>().read_unaligned();
                        let four = _mm512_set1_epi32(four);
                        for t in 0..T {
                            ints[r][t] = _mm512_dpbusd_epi32(ints[r][t], codes[t], four);
                        }
                    }
                )* };
            }
            dots!(0 1 2 3);
            if SCALES == 2 {
                let low = scales(0);
                let first: Rows<__m512, T, M> = std::array::from_fn(|r| {
                    std::array::from_fn(|t| _mm512_mul_ps(_mm512_cvtepi32_ps(ints[r][t]), low[t]))
                });
                ints = starts(1);
                dots!(4 5 6 7);
                let high = scales(1);
                for r in 0..M {
                    let scale = float(r, 32);
                    for t in 0..T {
                        let both = _mm512_fmadd_ps(_mm512_cvtepi32_ps(ints[r][t]), high[t], first[r][t]);
                        acc[r][t] = _mm512_fmadd_ps(both, scale, acc[r][t]);
                    }
                }
            } else {
                dots!(4 5 6 7);
                let scales = scales(0);
                for r in 0..M {
                    let scale = float(r, 32);
                    for t in 0..T {
                        let scales = _mm512_mul_ps(scales[t], scale);
                        acc[r][t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(ints[r][t]), scales, acc[r][t]);
                    }
                }
            }
            if MIN {
                let mins: [__m512; T] = std::array::from_fn(|t| _mm512_loadu_ps(stretches[t].mins[i].as_ptr()));
                for r in 0..M {
                    let sum = float(r, 44);
                    for t in 0..T {
                        acc[r][t] = _mm512_fmadd_ps(mins[t], sum, acc[r][t]);
                    }
                }
            }
            a = a.add(P * ACT_BLOCK);
        }
    }
    for (to, acc) in sums.iter_mut().zip(acc) {
        for (to, acc) in to.iter_mut().zip(acc) {
            // SAFETY: as above.
            unsafe { _mm512_storeu_ps(to.as_mut_ptr(), acc) };
        }
    }
}
