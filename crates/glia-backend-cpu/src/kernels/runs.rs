//! Int8 products over runs: 32 columns of 16 rows as bytes with f32 scales, which a caller decodes a few at a time from
//! whatever form the weights have. Exact integer dots, then fused multiply-adds in order of k, whatever the rows.

use std::ops::Range;

use super::int8::{ACT_BLOCK, Panels};
use crate::isa::Isa;
use crate::simd::{Level, leveled};

/// 32 columns of 16 rows: `value = scale * (code - 128) + min`.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Run {
    /// Word `[g][row]` has columns `4 g` to `4 g + 3` of a row, the first in the low byte.
    pub codes: [[u32; 16]; 8],
    /// For the first and the second 16 columns; only the first where all 32 have one scale.
    pub scales: [[f32; 16]; 2],
    /// For the first and the second 16 columns, where the type has minima.
    pub mins: [[f32; 16]; 2],
}

impl Run {
    pub const ZERO: Run = Run {
        codes: [[0; 16]; 8],
        scales: [[0.0; 16]; 2],
        mins: [[0.0; 16]; 2],
    };
}

/// What the runs of a type have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One scale.
    One,
    /// A scale per 16 columns.
    Two,
    /// A scale and a minimum per 16 columns.
    TwoMins,
}

/// Subtracted from every code.
pub(crate) const OFFSET: i32 = 128;
/// Runs that are decoded at a time: 256 columns, the largest block of the file formats.
pub(crate) const RUNS: usize = 8;
/// Rows that share decoded runs; their sums stay on the stack.
const ROWS: usize = 8 * Panels::ROWS;

/// One tile of `k` columns for `m` rows, in [`Panels`], prepared with two scales and [`OFFSET`]. `fill` decodes a range of at most
/// [`RUNS`] runs, which begins at a multiple of that; lanes that it never writes are zero. `put` takes each row's 16
/// results.
pub(crate) fn tile(
    isa: Isa,
    kind: Kind,
    k: usize,
    acts: &[u8],
    m: usize,
    put: &mut impl FnMut(usize, &[f32; 16]),
    mut fill: impl FnMut(Range<usize>, &mut [Run]),
) {
    let n_runs = k / 32;
    let row_bytes = n_runs * ACT_BLOCK;
    let mut runs = [Run::ZERO; RUNS];
    for first in (0..m).step_by(ROWS) {
        let mut sums = [[0f32; 16]; ROWS];
        let sums = &mut sums[..ROWS.min(m - first)];
        for from in (0..n_runs).step_by(RUNS) {
            let range = from..n_runs.min(from + RUNS);
            let runs = &mut runs[..range.len()];
            fill(range, runs);
            let panels = Panels::of(sums.len());
            for rows in (0..panels.len()).map(|i| panels.rows(i)) {
                let acts = &acts[(first + rows.start) * row_bytes + from * rows.len() * ACT_BLOCK..];
                add(isa, kind, runs, acts, rows.len(), &mut sums[rows]);
            }
        }
        for (row, sums) in sums.iter().enumerate() {
            put(first + row, sums);
        }
    }
}

/// Values of runs as `[column][16]`, for products with f32 rows: the very numbers that the format defines.
pub(crate) fn columns(level: Level, kind: Kind, runs: &[Run], out: &mut [f32]) {
    widen(level, kind, runs, out);
}

leveled! {
    fn widen(kind: Kind, runs: &[Run], out: &mut [f32]) {
        for (run, out) in runs.iter().zip(out.as_chunks_mut::<16>().0.as_chunks_mut::<32>().0) {
            for (g, columns) in out.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                let half = if kind == Kind::One { 0 } else { g / 4 };
                let (words, scales, mins) = (&run.codes[g], &run.scales[half], &run.mins[half]);
                for (i, column) in columns.iter_mut().enumerate() {
                    for lane in 0..16 {
                        let code = (words[lane] >> (8 * i) & 255) as i32 - OFFSET;
                        column[lane] = code as f32 * scales[lane];
                    }
                    if kind == Kind::TwoMins {
                        for lane in 0..16 {
                            column[lane] += mins[lane];
                        }
                    }
                }
            }
        }
    }
}

/// Adds the products of `runs` and as many prepared blocks of each row of a panel of `width` to the row's sums.
fn add(isa: Isa, kind: Kind, runs: &[Run], acts: &[u8], width: usize, sums: &mut [[f32; 16]]) {
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a matrix is packed only for an instruction set that this machine has.
        Isa::Avx512Vnni => unsafe { super::avx512::runs::add(kind, runs, acts, width, sums) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Isa::Avx2 => unsafe { super::avx2::add_runs(kind, runs, acts, width, sums) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above; the machine has one of the two encodings.
        Isa::Avx2Vnni => unsafe {
            if is_x86_feature_detected!("avxvnni") {
                super::avx2::add_runs_vnni(kind, runs, acts, width, sums);
            } else {
                super::avx2::add_runs_vl(kind, runs, acts, width, sums);
            }
        },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above.
        Isa::NeonDot => unsafe { super::neon::add_runs(kind, runs, acts, width, sums) },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above.
        Isa::NeonI8mm => unsafe { super::neon::add_runs_i8mm(kind, runs, acts, width, sums) },
        _ => add_plain(kind, runs, acts, width, sums),
    }
}

fn add_plain(kind: Kind, runs: &[Run], acts: &[u8], width: usize, sums: &mut [[f32; 16]]) {
    for (row, acc) in sums.iter_mut().enumerate() {
        let blocks = acts[row * ACT_BLOCK..].chunks_exact(ACT_BLOCK).step_by(width);
        for (run, a) in runs.iter().zip(blocks) {
            let a = Act::read(a);
            let mut dots = a.starts.map(|s| [s; 16]);
            for (g, words) in run.codes.iter().enumerate() {
                let four: [i32; 4] = std::array::from_fn(|i| i32::from(a.codes[g * 4 + i]));
                for (dot, w) in dots[g / 4].iter_mut().zip(words) {
                    *dot += (w & 255) as i32 * four[0]
                        + (w >> 8 & 255) as i32 * four[1]
                        + (w >> 16 & 255) as i32 * four[2]
                        + (w >> 24) as i32 * four[3];
                }
            }
            let mut scaled = |dots: [i32; 16], scales: &[f32; 16]| {
                for lane in 0..16 {
                    acc[lane] = (dots[lane] as f32).mul_add(scales[lane] * a.scale, acc[lane]);
                }
            };
            if kind == Kind::One {
                scaled(std::array::from_fn(|i| dots[0][i] + dots[1][i]), &run.scales[0]);
            } else {
                scaled(dots[0], &run.scales[0]);
                scaled(dots[1], &run.scales[1]);
            }
            if kind == Kind::TwoMins {
                for half in 0..2 {
                    let sum = a.sum(half);
                    for lane in 0..16 {
                        acc[lane] = run.mins[half][lane].mul_add(sum, acc[lane]);
                    }
                }
            }
        }
    }
}

/// A prepared block of 32 activations.
pub(super) struct Act {
    pub codes: [i8; 32],
    pub scale: f32,
    /// Minus [`OFFSET`] times the sum of codes of each half.
    pub starts: [i32; 2],
}

impl Act {
    #[inline(always)]
    pub(super) fn read(a: &[u8]) -> Act {
        let word = |at: usize| i32::from_ne_bytes([a[at], a[at + 1], a[at + 2], a[at + 3]]);
        Act {
            codes: std::array::from_fn(|i| a[i] as i8),
            scale: f32::from_bits(word(32) as u32),
            starts: [word(36), word(40)],
        }
    }

    /// The sum of half the block's values.
    #[inline(always)]
    pub(super) fn sum(&self, half: usize) -> f32 {
        self.scale * (self.starts[half] as f32 * MINUS_INVERSE)
    }
}

/// Turns a start back into the sum it was made of, exactly.
pub(super) const MINUS_INVERSE: f32 = -1.0 / OFFSET as f32;
