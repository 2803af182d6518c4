//! Products of few rows in signed bytes (`dot4I8Packed`), unless results are to be exact: only where it was measured to
//! be faster, by a table, so that the same model on the same adapter always gives the same results.

use glia_core::{BackendError, Precision, ValueId};

use super::product::rows_of;
use super::way::{Tile, Way, X};
use crate::gpu::{ByteDots, Gpu};
use crate::program::{Lower, StepInfo};
use crate::shader::{Call, KernelKey, Source};
use crate::weights::{Format, Matrix, Scale};

/// What was measured of adapters whose name contains a text: for which shapes the product in bytes took less time, with
/// the time for its rows of x, than that in F32.
struct Measured {
    name: &'static str,
    /// Up to how many rows.
    most_rows: usize,
    /// For matrices of at least so many elements: what is small does not pay for a kernel more.
    least_elems: usize,
}

/// `cargo bench -p glia-backend-wgpu --bench matmul -- --dots` measures an adapter; those that are not here compute in
/// F32. On llvmpipe (Mesa 22.3, AVX-512, two cores, builds beside it) one row by 49152 x 576 and 49152 x 768 took 0.52
/// to 0.96 of the time for Q8_0, Q4_0, Q4_1 and Q4_K, but for one run of three in which Q8_0 took 2.03; by 1536 x 576
/// and 2048 x 2048, 0.22 to 1.98; more rows, 0.48 to 2.5, mostly above 1.
const TABLE: [Measured; 1] = [Measured {
    name: "llvmpipe",
    most_rows: 1,
    least_elems: 1 << 24,
}];

/// Rows and columns of a thread, and the most rows.
const ALONE: [([u32; 2], usize); 2] = [([1, 4], 1), ([4, 2], usize::MAX)];
const TOGETHER: [([u32; 2], usize); 2] = [([1, 4], 1), ([4, 4], usize::MAX)];

/// Whether the codes are whole numbers with a scale per 32, and perhaps a minimum, as the kernel takes them.
fn fits(format: &Format) -> bool {
    let scaled = matches!(
        format.scale,
        Scale::Half | Scale::HalfMin | Scale::Super32Min | Scale::Word(32)
    );
    let tabled = format.is_tabled();
    scaled && !tabled && format.high == 0 && matches!(format.low, 4 | 8)
}

/// Up to how many rows products in bytes are used.
fn most_rows(gpu: &Gpu, matrix: &Matrix) -> usize {
    match gpu.byte_dots {
        ByteDots::Never => 0,
        ByteDots::Always => usize::MAX,
        ByteDots::Measured => {
            let n_elems = matrix.n.saturating_mul(matrix.k);
            let is_it = |entry: &&Measured| gpu.entry.name.contains(entry.name) && n_elems >= entry.least_elems;
            TABLE.iter().find(is_it).map_or(0, |entry| entry.most_rows)
        }
    }
}

/// The way in bytes, where it is used.
///
/// # Errors
/// When the kernel that makes the rows of x does not compile.
pub(super) fn way(cx: &mut Lower<'_>, x: ValueId, matrix: &Matrix) -> Result<Option<Way>, BackendError> {
    let (k, format) = (matrix.k, &matrix.format);
    let most = most_rows(cx.gpu, matrix);
    if cx.options.precision == Precision::Exact || most == 0 || !fits(format) {
        return Ok(None);
    }
    let alone = cx.caps().alone(k.div_ceil(32));
    let broadcast = alone && cx.caps().subgroup8;
    let tiles = if alone { ALONE } else { TOGETHER };
    let tile = |([rows, columns], most): ([u32; 2], usize)| {
        let key = KernelKey::new(Source::MatMulDots, &[])
            .flag("MUL8", true)
            .flag("MUL16", false)
            .flag("VEC4", true)
            .flag("ALONE", alone)
            .flag("BROADCAST", broadcast)
            .int("M", rows)
            .int("SUMS", rows * columns);
        let wide = if alone { 8 * columns } else { 4 * columns };
        Tile::new(key, [rows, wide], columns, most)
    };
    Ok(Some(Way {
        x: quantized(cx, x, k, most, format.low == 4)?,
        takes: 1..=most,
        tiles: tiles.map(tile).to_vec(),
    }))
}

/// Rows in bytes, in steps that have few enough of them.
fn quantized(cx: &mut Lower<'_>, x: ValueId, k: usize, most: usize, apart: bool) -> Result<X, BackendError> {
    let (buf, ty) = (cx.value(x)?, cx.ty(x).clone());
    let n_blocks = k.div_ceil(32);
    let n_rows = move |info: &StepInfo<'_>| match rows_of(&info.shape(&ty)) {
        m if m <= most => m,
        _ => 0,
    };
    let (of_rows, of_scales) = (n_rows.clone(), n_rows.clone());
    let rows = cx.scratch(move |info| 32 * (of_rows(info).max(1) * n_blocks) as u64);
    let scales = cx.scratch(move |info| 8 * (of_scales(info).max(1) * n_blocks) as u64);
    // On software devices a workgroup is a vector.
    let threads = if cx.caps().software { 8 } else { 64 };
    let key = |access: &[_]| {
        KernelKey::new(Source::Quantize, access)
            .flag("X4", k.is_multiple_of(4))
            .flag("TAIL", !k.is_multiple_of(32))
            .flag("APART", apart)
            .int("THREADS", threads)
            .int("TWO", 2)
            .int("EIGHT", 8)
    };
    cx.kernel(key, &[buf], &[rows, scales], move |info| {
        let m = n_rows(info);
        Call::new((m * n_blocks).div_ceil(threads as usize), &[0, m, k, n_blocks])
    })?;
    Ok(X::Packed { rows, scales })
}
