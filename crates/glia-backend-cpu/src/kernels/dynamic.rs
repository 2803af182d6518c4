//! F32 products whose right-hand side is no constant, through `gemm`, in blocks whose shape does not depend on m.

/// Rows per call of `gemm`: shorter rests are padded with zeros.
const ROWS: usize = 16;
/// Elements of k per call: short enough that `gemm` never splits it again.
const SLICE_K: usize = 128;

/// `out = a bᵀ` with `a` `[m, k]` and `b` `[n, k]`; `put(row, values)` takes each row's `n` results.
///
/// One thread. A row of the result depends on `b` and that row only, not on how many rows there are.
///
/// # Panics
/// When a slice is not as long as its shape says.
pub(crate) fn matmul_f32(
    a: &[f32],
    b: &[f32],
    (m, k, n): (usize, usize, usize),
    scratch: &mut Vec<f32>,
    mut put: impl FnMut(usize, &[f32]),
) {
    assert!(
        a.len() == m * k && b.len() == k * n,
        "lengths of a product of {m} x {k} x {n}"
    );
    if n == 0 {
        return (0..m).for_each(|row| put(row, &[]));
    }
    let scratch = crate::kernel::grown(scratch, ROWS * (SLICE_K + n));
    let (rows, sums) = scratch.split_at_mut(ROWS * SLICE_K);
    for first in (0..m).step_by(ROWS) {
        let here = ROWS.min(m - first);
        sums.fill(0.0);
        for from in (0..k).step_by(SLICE_K) {
            let len = SLICE_K.min(k - from);
            rows.fill(0.0);
            for r in 0..here {
                rows[r * SLICE_K..][..len].copy_from_slice(&a[(first + r) * k + from..][..len]);
            }
            // SAFETY: `sums` is ROWS x n, `rows` ROWS x SLICE_K, and `b` n x k, as asserted above.
            unsafe {
                gemm::gemm(
                    ROWS,
                    n,
                    len,
                    sums.as_mut_ptr(),
                    1,
                    n as isize,
                    true,
                    rows.as_ptr(),
                    1,
                    SLICE_K as isize,
                    b.as_ptr().add(from),
                    k as isize,
                    1,
                    1.0f32,
                    1.0f32,
                    false,
                    false,
                    false,
                    gemm::Parallelism::None,
                );
            }
        }
        for (r, sums) in sums.chunks_exact(n).take(here).enumerate() {
            put(first + r, sums);
        }
    }
}
