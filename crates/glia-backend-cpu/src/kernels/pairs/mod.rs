//! Products of BF16 weights with rows that are rounded to BF16 once, summed in F32 as `VDPBF16PS` does.
//!
//! Columns of k go in pairs: a tile is `[pair][16]`, a row `[pair]`, the number of the smaller k in the lower half. Behind
//! an odd k stands a zero. The model gives the bits that the instruction is defined to give, on any machine.

mod model;
#[cfg(test)]
mod tests;

use super::columns;
use crate::isa::Isa;

/// Pairs of a row of `k` numbers.
pub(crate) const fn n_pairs(k: usize) -> usize {
    k.div_ceil(2)
}

/// Bytes of a pair.
pub(crate) const PAIR_BYTES: usize = 4;

/// Rounds rows of `k` numbers to nearest even, each to [`n_pairs`] pairs. NaN stays NaN, subnormal numbers become zero.
///
/// # Panics
/// When `out` has not as many rows.
pub(crate) fn round(isa: Isa, x: &[f32], k: usize, out: &mut [u8]) {
    if k == 0 {
        return;
    }
    let row_bytes = n_pairs(k) * PAIR_BYTES;
    assert_eq!(
        x.len() / k * row_bytes,
        out.len(),
        "rows of {k} numbers and their pairs"
    );
    for (x, out) in x.chunks_exact(k).zip(out.chunks_exact_mut(row_bytes)) {
        out[k * 2..].fill(0);
        match isa {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a matrix is packed only for an instruction set that this machine has.
            Isa::Avx512Bf16 => unsafe { super::avx512::pairs::round(x, out) },
            _ => model::round(x, out),
        }
    }
}

/// `m` rows as [`round`] leaves them by consecutive tiles; `put(row, tile, values)` takes the results. A sum takes pairs
/// in order of k, and of each the larger k first.
///
/// # Panics
/// When the lengths do not fit.
pub(crate) fn tiles(
    isa: Isa,
    tiles: &[u8],
    k: usize,
    acts: &[u8],
    m: usize,
    put: &mut impl FnMut(usize, usize, &[f32; 16]),
) {
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Isa::Avx512Bf16 => unsafe { super::avx512::pairs::tiles(tiles, n_pairs(k), acts, m, put) },
        // SAFETY: plain code.
        _ => unsafe { columns::tiles::<model::Pairs>(tiles, n_pairs(k), acts, m, put) },
    }
}
