//! Products of many rows by cooperative matrices: of F32 where the adapter has them, and, unless results are to be
//! exact, of F16 summed in F32.

use glia_core::{BackendError, Precision, ValueId};

use super::product::rows_of;
use super::way::{Tile, Way, X};
use crate::gpu::Caps;
use crate::program::{Lower, StepInfo};
use crate::shader::{Call, KernelKey, Source};
use crate::weights::Matrix;

/// Products of fewer rows read the weights about as fast as they come, whatever multiplies them.
const LEAST_ROWS: usize = 16;

/// Rows that a workgroup takes together, and the most for which it is so few.
const ROWS: [(u32, usize); 2] = [(32, 32), (64, usize::MAX)];

/// How a matrix is multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Coop {
    /// Rows and columns of a cooperative matrix.
    side: u32,
    /// Its elements are F16.
    half: bool,
    /// Threads of a subgroup.
    subgroup: u32,
}

/// The way by cooperative matrices, where the device has any that serve.
///
/// # Errors
/// When the kernel that makes the rows of x does not compile.
pub(super) fn way(cx: &mut Lower<'_>, x: ValueId, matrix: &Matrix) -> Result<Option<Way>, BackendError> {
    let Some(coop) = Coop::of(cx.caps(), cx.options.precision, matrix) else {
        return Ok(None);
    };
    let x = if coop.half {
        halved(cx, x, matrix.k)?
    } else {
        X::Plain(cx.value(x)?)
    };
    Ok(Some(Way {
        x,
        takes: LEAST_ROWS..=usize::MAX,
        tiles: ROWS.map(|(rows, most)| coop.tile(rows, most, matrix.k)).to_vec(),
    }))
}

/// Rows in F16, in steps that have enough of them.
fn halved(cx: &mut Lower<'_>, x: ValueId, k: usize) -> Result<X, BackendError> {
    let (buf, ty) = (cx.value(x)?, cx.ty(x).clone());
    let n_chunks = k.div_ceil(8);
    let n_rows = move |info: &StepInfo<'_>| match rows_of(&info.shape(&ty)) {
        m if m >= LEAST_ROWS => m,
        _ => 0,
    };
    let (of_rows, of_scales) = (n_rows.clone(), n_rows.clone());
    let rows = cx.scratch(move |info| 16 * (of_rows(info).max(1) * n_chunks) as u64);
    let scales = cx.scratch(move |info| 4 * of_scales(info).max(1) as u64);
    let key = |access: &[_]| {
        KernelKey::new(Source::Halve, access)
            .flag("X4", k.is_multiple_of(4))
            .flag("TAIL", !k.is_multiple_of(8))
    };
    cx.kernel(key, &[buf], &[rows, scales], move |info| {
        let m = n_rows(info);
        Call::new(m, &[0, m, k, n_chunks])
    })?;
    Ok(X::Packed { rows, scales })
}

/// The type of an element, and of the three operands.
const fn types(half: bool, side: u32) -> [&'static str; 4] {
    match (half, side) {
        (true, 16) => [
            "f16",
            "coop_mat16x16<f16,A>",
            "coop_mat16x16<f16,B>",
            "coop_mat16x16<f32,C>",
        ],
        (true, _) => ["f16", "coop_mat8x8<f16,A>", "coop_mat8x8<f16,B>", "coop_mat8x8<f32,C>"],
        (false, 16) => [
            "f32",
            "coop_mat16x16<f32,A>",
            "coop_mat16x16<f32,B>",
            "coop_mat16x16<f32,C>",
        ],
        (false, _) => ["f32", "coop_mat8x8<f32,A>", "coop_mat8x8<f32,B>", "coop_mat8x8<f32,C>"],
    }
}

impl Coop {
    fn of(caps: &Caps, precision: Precision, matrix: &Matrix) -> Option<Coop> {
        if caps.software {
            return None;
        }
        let half = caps
            .coop_f16
            .filter(|_| precision != Precision::Exact && matrix.fits_f16);
        let (side, half) = match (half, caps.coop_f32) {
            (Some(side), _) => (side, true),
            (None, Some(side)) => (side, false),
            (None, None) => return None,
        };
        caps.subgroup_size.map(|subgroup| Coop { side, half, subgroup })
    }

    fn tile(&self, rows: u32, most: usize, k: usize) -> Tile {
        // Workgroup memory: rows of x and of the weights, and the results of four subgroups, within 16 KiB.
        let depth = if self.half { 32 } else { 16 };
        let [t, a, b, c] = types(self.half, self.side);
        let key = KernelKey::new(Source::MatMulCoop, &[])
            .text("T", t)
            .text("A", a)
            .text("B", b)
            .text("C", c)
            .flag("MUL8", false)
            .flag("MUL16", self.half)
            .flag("X4", k.is_multiple_of(4))
            .flag("TAIL", !k.is_multiple_of(8))
            .flag("VEC4", false)
            .int("SIDE", self.side)
            .int("DEPTH", depth)
            .int("STEPS", depth / self.side)
            .int("DOWN", rows / 2 / self.side)
            .int("RIGHT", 32 / self.side)
            .int("THREADS", 4 * self.subgroup)
            .int("FOUR", 4);
        // Two subgroups side by side have 32 columns each.
        Tile::new(key, [rows, 64], 2, most)
    }
}
