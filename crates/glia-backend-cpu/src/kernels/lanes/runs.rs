//! Products over runs, over [`Lanes`]: exact integer dots, then fused multiply-adds in order of k.

use super::{BITS_8, F32, Lanes};
use crate::kernels::int8::ACT_BLOCK;
use crate::kernels::runs::{Act, Kind, OFFSET, Run};

/// Rows that share the codes in registers.
const ROWS: usize = 4;

const _: () = assert!(OFFSET == 128, "what eight bits mean to `Lanes::dots`");

/// Adds the products of `runs` and as many prepared blocks of each row of a panel of `width` to the row's sums.
///
/// # Safety
/// The machine has the instructions of `L`.
///
/// # Panics
/// When `acts` is too short for the rows.
#[inline(always)]
pub(in crate::kernels) unsafe fn add<L: Lanes>(
    kind: Kind,
    runs: &[Run],
    acts: &[u8],
    width: usize,
    sums: &mut [[f32; 16]],
) {
    assert!(sums.len() <= width && acts.len() >= runs.len() * width * ACT_BLOCK);
    let mut row = 0;
    while row < sums.len() {
        let acts = acts[row * ACT_BLOCK..].as_ptr();
        let sums = &mut sums[row..];
        // SAFETY: from `acts` on lie a panel's blocks for every run, of as many rows as there are sums.
        row += unsafe {
            match sums.len() {
                ROWS.. => rows::<L, ROWS>(kind, runs, acts, width, sums),
                2.. => rows::<L, 2>(kind, runs, acts, width, sums),
                _ => rows::<L, 1>(kind, runs, acts, width, sums),
            }
        };
    }
}

/// `M` rows. Returns `M`.
///
/// # Safety
/// As of [`add`]; `acts` must be the first of `M` rows of a panel with blocks for every run.
#[inline(always)]
unsafe fn rows<L: Lanes, const M: usize>(
    kind: Kind,
    runs: &[Run],
    acts: *const u8,
    width: usize,
    sums: &mut [[f32; 16]],
) -> usize {
    // SAFETY: blocks lie within what the caller promised; the fields of a run are of 16 lanes each.
    unsafe {
        let mut acc = [L::zero(); M];
        for r in 0..M {
            acc[r] = load::<L>(&sums[r]);
        }
        for (b, run) in runs.iter().enumerate() {
            let a = acts.add(b * width * ACT_BLOCK);
            // No closures here: called twice, one would stay a function of its own, without the instructions.
            let w = run.codes.as_ptr().cast();
            let first = L::dots::<M, BITS_8>(w, a, 36, 0..1);
            let second = L::dots::<M, BITS_8>(w, a, 40, 1..2);
            let scales = load::<L>(&run.scales[0]);
            if kind == Kind::One {
                for r in 0..M {
                    let both = L::numbers(L::plus(first[r], second[r]));
                    acc[r] = L::fused(both, L::times(scales, scale(a, r)), acc[r]);
                }
                continue;
            }
            let others = load::<L>(&run.scales[1]);
            for r in 0..M {
                acc[r] = L::fused(L::numbers(first[r]), L::times(scales, scale(a, r)), acc[r]);
                acc[r] = L::fused(L::numbers(second[r]), L::times(others, scale(a, r)), acc[r]);
            }
            if kind == Kind::TwoMins {
                let (mins, others) = (load::<L>(&run.mins[0]), load::<L>(&run.mins[1]));
                for r in 0..M {
                    let act = Act::read(std::slice::from_raw_parts(a.add(r * ACT_BLOCK), ACT_BLOCK));
                    acc[r] = L::fused_by(mins, act.sum(0), acc[r]);
                    acc[r] = L::fused_by(others, act.sum(1), acc[r]);
                }
            }
        }
        for r in 0..M {
            sums[r] = L::store(acc[r]);
        }
    }
    M
}

/// 16 numbers.
///
/// # Safety
/// As of [`add`].
#[inline(always)]
unsafe fn load<L: Lanes>(lanes: &[f32; 16]) -> L::Floats {
    // SAFETY: as the caller promises; 16 numbers are read.
    unsafe { L::load::<F32>(lanes.as_ptr().cast()) }
}

/// The scale of row `r` of prepared blocks.
///
/// # Safety
/// There must be such a block behind `a`.
#[inline(always)]
unsafe fn scale(a: *const u8, r: usize) -> f32 {
    // SAFETY: as the caller promises.
    unsafe { a.add(r * ACT_BLOCK + 32).cast::<f32>().read_unaligned() }
}
