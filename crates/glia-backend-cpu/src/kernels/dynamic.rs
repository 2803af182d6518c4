//! F32 products whose right-hand side is no constant, through `gemm`, in blocks whose shape does not depend on m.

/// Rows per call of `gemm`: shorter rests are padded with zeros.
const ROWS: usize = 16;
/// Elements of k per call: short enough that `gemm` never splits it again.
const SLICE_K: usize = 128;

/// `out = a bᵀ` (`b` is `[n, k]`) or `a b` (`b` is `[k, n]`, `transposed` false), `a` `[m, k]`, `out` `[m, n]`.
///
/// One thread. A row of the result does not depend on how many rows there are.
///
/// # Panics
/// When a slice is not as long as its shape says.
#[allow(dead_code)] // Called by the ops as they come.
pub(crate) fn matmul_f32(a: &[f32], b: &[f32], out: &mut [f32], m: usize, k: usize, n: usize, transposed: bool) {
    assert!(
        a.len() == m * k && b.len() == k * n && out.len() == m * n,
        "lengths of {m} x {k} x {n}"
    );
    out.fill(0.0);
    let (b_row, b_col) = if transposed { (1, k) } else { (n, 1) };
    let mut rows = vec![0f32; ROWS * SLICE_K];
    let mut sums = vec![0f32; ROWS * n];
    for first in (0..m).step_by(ROWS) {
        let here = ROWS.min(m - first);
        sums.fill(0.0);
        for from in (0..k).step_by(SLICE_K) {
            let len = SLICE_K.min(k - from);
            rows.fill(0.0);
            for r in 0..here {
                rows[r * SLICE_K..][..len].copy_from_slice(&a[(first + r) * k + from..][..len]);
            }
            // SAFETY: `sums` is ROWS x n, `rows` ROWS x SLICE_K, and `b` k x n in either order, as asserted above.
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
                    b.as_ptr().add(from * b_row),
                    b_col as isize,
                    b_row as isize,
                    1.0f32,
                    1.0f32,
                    false,
                    false,
                    false,
                    gemm::Parallelism::None,
                );
            }
        }
        out[first * n..][..here * n].copy_from_slice(&sums[..here * n]);
    }
}
