//! The ways in which a product is computed: what each reads of x, and the kernels that it has for numbers of rows.

use std::ops::RangeInclusive;

use crate::program::BufId;
use crate::shader::KernelKey;

/// The rows of x as a kernel reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum X {
    /// F32.
    Plain(BufId),
    /// In a form of their own, and numbers beside them for each row, or each block of a row.
    Packed { rows: BufId, scales: BufId },
}

/// A kernel for some number of rows.
#[derive(Clone, Debug)]
pub(super) struct Tile {
    /// Rows of x that a workgroup takes together.
    pub rows: u32,
    /// Columns that a workgroup takes together.
    columns: u32,
    /// Columns of a thread, or however many lie side by side: an even number.
    pub each: u32,
    /// Taken for up to so many rows in all.
    pub most: usize,
    /// The kernel without what it binds and the form of the weights.
    pub key: KernelKey,
}

impl Tile {
    /// A kernel for up to `most` rows whose workgroups take so many rows and columns.
    pub fn new(key: KernelKey, [rows, columns]: [u32; 2], each: u32, most: usize) -> Tile {
        Tile {
            rows,
            columns,
            each,
            most,
            key,
        }
    }

    /// Results beside each other that a workgroup makes: two columns make one where they are halves.
    pub fn results(&self, halves: bool) -> u32 {
        if halves { self.columns / 2 } else { self.columns }
    }
}

/// One way: a dispatch that runs in steps with a number of rows that it takes.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub x: X,
    pub takes: RangeInclusive<usize>,
    pub tiles: Vec<Tile>,
}

impl Way {
    /// Its kernel for `m` rows, by place; `None` where another way computes them.
    pub fn choose(&self, m: usize) -> Option<usize> {
        let tile = self.tiles.iter().position(|tile| m <= tile.most);
        tile.filter(|_| self.takes.contains(&m))
    }
}
