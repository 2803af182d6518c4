//! Memory of packed weights: one zeroed region for a whole program.

use std::ops::Range;
use std::sync::Arc;

use memmap2::{Mmap, MmapMut};

use crate::memory;

/// Zeroed memory that is being filled.
pub(super) struct Region(Option<MmapMut>);

impl Region {
    /// `len` zero bytes; `None` when the memory cannot be had.
    pub(super) fn zeroed(len: usize) -> Option<Region> {
        if len == 0 {
            return Some(Region(None));
        }
        memory::zeroed(len).map(|map| Region(Some(map)))
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [u8] {
        self.0.as_deref_mut().unwrap_or_default()
    }

    /// The filled region, which nobody writes any more.
    pub(super) fn freeze(self) -> Option<Frozen> {
        let map = self.0.map(MmapMut::make_read_only).transpose().ok()?;
        Some(Frozen(Arc::new(map)))
    }
}

/// A filled region.
#[derive(Clone)]
pub(super) struct Frozen(Arc<Option<Mmap>>);

impl Frozen {
    /// The bytes at `range`.
    ///
    /// # Panics
    /// When the range leaves the region.
    pub(super) fn part(&self, range: Range<usize>) -> PackedBytes {
        let len = self.0.as_ref().as_ref().map_or(0, |m| m.len());
        assert!(
            range.start <= range.end && range.end <= len,
            "{range:?} of {len} packed bytes"
        );
        PackedBytes {
            region: self.clone(),
            range,
        }
    }
}

/// The bytes of one packed matrix.
pub(super) struct PackedBytes {
    region: Frozen,
    range: Range<usize>,
}

impl PackedBytes {
    pub(super) fn len(&self) -> usize {
        self.range.len()
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        let all: &[u8] = self.region.0.as_ref().as_deref().unwrap_or_default();
        &all[self.range.clone()]
    }
}
