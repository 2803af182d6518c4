//! Products of many rows by cooperative matrices: of F32 where the adapter has them, and, unless results are to be
//! exact, of F16 summed in F32.

use glia_core::{BackendError, Precision, ValueId};

use super::product::{X, rows_of};
use crate::gpu::Caps;
use crate::program::{Lower, StepInfo};
use crate::shader::{Call, KernelKey, Source};
use crate::weights::Matrix;

/// Products of fewer rows read the weights about as fast as they come, whatever multiplies them.
const LEAST_ROWS: usize = 16;

/// Rows that a workgroup takes together, by form.
pub(super) const ROWS: [u32; 2] = [32, 64];

/// Columns that a workgroup takes together.
pub(super) const COLUMNS: u32 = 64;

/// How a matrix is multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Coop {
    /// Rows and columns of a cooperative matrix.
    side: u32,
    /// Its elements are F16.
    half: bool,
    /// Threads of a subgroup.
    subgroup: u32,
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
    /// How the device multiplies with a matrix, if by cooperative matrices.
    pub fn of(caps: &Caps, precision: Precision, matrix: &Matrix) -> Option<Coop> {
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

    /// Whether it takes so many rows.
    pub fn takes(n_rows: usize) -> bool {
        n_rows >= LEAST_ROWS
    }

    /// The rows of x as the kernel reads them: made by a kernel of its own in steps that have rows for it.
    ///
    /// # Errors
    /// When that kernel does not compile.
    pub fn operand(&self, cx: &mut Lower<'_>, x: ValueId, k: usize) -> Result<X, BackendError> {
        let buf = cx.value(x)?;
        if !self.half {
            return Ok(X::Plain(buf));
        }
        let ty = cx.ty(x).clone();
        let n_chunks = k.div_ceil(8);
        let rows = move |info: &StepInfo<'_>| Some(rows_of(&info.shape(&ty))).filter(|&m| Coop::takes(m));
        let n_rows = rows.clone();
        let halves = cx.scratch(move |info| n_rows(info).map_or(16, |m| 16 * (m * n_chunks) as u64));
        let n_rows = rows.clone();
        let unscale = cx.scratch(move |info| n_rows(info).map_or(4, |m| 4 * m as u64));
        let key = |access: &[_]| {
            KernelKey::new(Source::Halve, access)
                .flag("X4", k.is_multiple_of(4))
                .flag("TAIL", !k.is_multiple_of(8))
        };
        cx.kernel(key, &[buf], &[halves, unscale], move |info| {
            let m = rows(info).unwrap_or(0);
            Call::new(m, &[0, m, k, n_chunks])
        })?;
        Ok(X::Halved { halves, unscale })
    }

    /// The form for `m` rows, by its place in [`ROWS`].
    pub fn choose(m: usize) -> usize {
        usize::from(m > 32)
    }

    /// The kernel for so many rows of a workgroup.
    pub fn define(&self, key: KernelKey, rows: u32, k: usize) -> KernelKey {
        // Workgroup memory: rows of x and of the weights, and the results of four subgroups, within 16 KiB.
        let depth = if self.half { 32 } else { 16 };
        let [t, a, b, c] = types(self.half, self.side);
        key.text("T", t)
            .text("A", a)
            .text("B", b)
            .text("C", c)
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
            .int("FOUR", 4)
    }
}
