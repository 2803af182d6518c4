//! The forms that the kernel of a product has: which of them a number of rows takes.

use crate::gpu::Caps;
use crate::shader::{KernelKey, Source};

/// A kernel for some number of rows of x: a step runs one of those that a dispatch has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    pub source: Source,
    /// Rows of x that a workgroup takes together.
    pub rows: u32,
    /// Columns that a workgroup takes together.
    pub columns: u32,
    /// Rows and columns of a thread.
    each: [u32; 2],
    /// Taken for up to so many rows in all.
    most: usize,
}

/// On devices where every thread works alone: vectors of eight.
const ALONE: [Form; 3] = [form(1, 4, 1), form(4, 2, 4), form(8, 2, usize::MAX)];

const fn form(rows: u32, columns: u32, most: usize) -> Form {
    Form {
        source: Source::MatMulAlone,
        rows,
        columns: 8 * columns,
        each: [rows, columns],
        most,
    }
}

/// Where workgroups share: few rows by threads that share k, many in tiles.
const TOGETHER: [Form; 5] = [
    shared(1, 1),
    shared(2, 2),
    shared(4, 8),
    tiled(2, 24),
    tiled(8, usize::MAX),
];

const fn shared(rows: u32, most: usize) -> Form {
    Form {
        source: Source::MatMul,
        rows,
        columns: 4,
        each: [rows, 4],
        most,
    }
}

const fn tiled(run: u32, most: usize) -> Form {
    Form {
        source: Source::MatMulTiled,
        rows: 8 * run,
        columns: 64,
        each: [run, 4],
        most,
    }
}

/// The forms for a device and a width of x.
pub(super) fn forms(caps: &Caps, k: usize) -> &'static [Form] {
    if caps.alone(k.div_ceil(32)) { &ALONE } else { &TOGETHER }
}

/// The form for `m` rows, by its place.
pub(super) fn choose(forms: &[Form], m: usize) -> usize {
    forms.iter().position(|form| m <= form.most).unwrap_or(0)
}

impl Form {
    /// The definitions of the kernel, beside those of what it binds and of the weights.
    pub fn define(&self, key: KernelKey, caps: &Caps, k: usize) -> KernelKey {
        let alone = self.source == Source::MatMulAlone;
        let unit = if alone { 32 } else { 8 };
        let [rows, columns] = self.each;
        key.flag("MUL16", false)
            .flag("X4", k.is_multiple_of(4))
            .flag("TAIL", !k.is_multiple_of(unit))
            .flag("VEC4", alone)
            .flag("BROADCAST", alone && caps.subgroup8)
            .int("M", rows)
            .int("N", columns)
            .int("RUN", rows)
            .int("SUMS", rows * columns)
            .int("TWO", 2)
            .int("FOUR", 4)
            .int("EIGHT", 8)
    }
}
