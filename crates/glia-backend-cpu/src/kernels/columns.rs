//! Products over packed tiles of single columns: two tiles of 16 columns at a time, up to 8 rows, results in registers,
//! k in order, whatever the rows. What a stored column is, and how it is added, is left to a [`Column`].
//!
//! Two tiles give a single row two independent chains of sums, and let 8 rows reuse each element of theirs.

/// Rows that share a pass over the weights.
const ROWS: usize = 8;

/// How far ahead of its reads a single row asks for weights, in bytes.
const AHEAD: usize = 4096;

/// 16 weights (or groups of them) that meet one element of a row, which has four bytes.
///
/// # Safety
/// Every function needs the instructions of its implementation, and pointers that are valid for what is read.
pub(in crate::kernels) trait Column {
    /// Bytes of a stored column.
    const BYTES: usize;

    /// A column as it is multiplied.
    type Weights: Copy;

    /// A sum per lane.
    type Sums: Copy;

    /// 16 zeros.
    unsafe fn zero() -> Self::Sums;

    /// A stored column, from any address.
    unsafe fn load(at: *const u8) -> Self::Weights;

    /// `sums` and the products of `weights` with the element `x`, as its bytes lie in memory.
    unsafe fn add(sums: Self::Sums, weights: Self::Weights, x: u32) -> Self::Sums;

    /// The lanes in memory.
    unsafe fn store(sums: Self::Sums) -> [f32; 16];

    /// Asks for memory that will be read soon; any address will do.
    #[inline(always)]
    fn prefetch(_: *const u8) {}
}

/// `m` rows of `k` elements by consecutive tiles of `k` columns; `put(row, tile, values)` takes the results.
///
/// # Safety
/// The machine has the instructions of `C`.
///
/// # Panics
/// When the lengths do not fit.
#[inline(always)]
pub(in crate::kernels) unsafe fn tiles<C: Column>(
    tiles: &[u8],
    k: usize,
    acts: &[u8],
    m: usize,
    put: &mut impl FnMut(usize, usize, &[f32; 16]),
) {
    let size = k * C::BYTES;
    assert!(k > 0 && tiles.len().is_multiple_of(size) && acts.len() >= m * k * 4);
    let n_tiles = tiles.len() / size;
    for first in (0..n_tiles).step_by(2) {
        let w = tiles[first * size..].as_ptr();
        // SAFETY: as many tiles as are computed follow `w`.
        unsafe {
            match n_tiles - first {
                1 => rows::<C, 1>(w, k, acts, m, first, put),
                _ => rows::<C, 2>(w, k, acts, m, first, put),
            }
        }
    }
}

/// # Safety
/// As of [`tiles`]; `w` must hold `T` tiles, `acts` `m` rows.
#[inline(always)]
unsafe fn rows<C: Column, const T: usize>(
    w: *const u8,
    k: usize,
    acts: &[u8],
    m: usize,
    first: usize,
    put: &mut impl FnMut(usize, usize, &[f32; 16]),
) {
    let mut row = 0;
    while row < m {
        let (a, to) = (acts[row * k * 4..m * k * 4].as_ptr(), (row, first));
        // SAFETY: as many rows of `k` elements follow `a` as are computed.
        row += unsafe {
            match m - row {
                ROWS.. => block::<C, T, ROWS>(w, k, a, to, put),
                4..ROWS => block::<C, T, 4>(w, k, a, to, put),
                2..4 => block::<C, T, 2>(w, k, a, to, put),
                _ => block::<C, T, 1>(w, k, a, to, put),
            }
        };
    }
}

/// `M` rows by `T` tiles; returns `M`.
///
/// # Safety
/// As of [`tiles`]; `w` must hold `T` tiles of `k` columns, `a` `M` rows of `k` elements (unaligned).
#[inline(always)]
unsafe fn block<C: Column, const T: usize, const M: usize>(
    w: *const u8,
    k: usize,
    a: *const u8,
    (row, first): (usize, usize),
    put: &mut impl FnMut(usize, usize, &[f32; 16]),
) -> usize {
    // SAFETY: column `i` of each tile and element `i` of each row lie within what the caller promised.
    unsafe {
        let mut sums = [[C::zero(); T]; M];
        for i in 0..k {
            if M == 1 && (i * C::BYTES).is_multiple_of(64) {
                // A single row reads weights as fast as memory gives them, and the machine's own prefetching ends at
                // each page.
                for t in 0..T {
                    C::prefetch(w.wrapping_add((t * k + i) * C::BYTES + AHEAD));
                }
            }
            let weights: [C::Weights; T] = std::array::from_fn(|t| C::load(w.add((t * k + i) * C::BYTES)));
            for r in 0..M {
                let x = a.add((r * k + i) * 4).cast::<u32>().read_unaligned();
                for t in 0..T {
                    sums[r][t] = C::add(sums[r][t], weights[t], x);
                }
            }
        }
        for r in 0..M {
            for t in 0..T {
                put(row + r, first + t, &C::store(sums[r][t]));
            }
        }
    }
    M
}
