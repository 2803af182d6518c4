//! Memory of packed weights: zeroed, aligned to huge pages when it is large.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

const HUGE_BYTES: usize = 2 << 20;

/// Zeroed bytes, aligned to a cache line (2 MiB from 1 MiB on).
pub(super) struct PackedBytes {
    ptr: NonNull<u8>,
    layout: Layout,
    len: usize,
}

// SAFETY: `PackedBytes` owns its memory exclusively, as a `Vec<u8>` does.
unsafe impl Send for PackedBytes {}
// SAFETY: shared access only reads.
unsafe impl Sync for PackedBytes {}

impl PackedBytes {
    /// `None` when the memory cannot be had.
    pub(super) fn zeroed(len: usize) -> Option<PackedBytes> {
        let align = if len >= HUGE_BYTES / 2 { HUGE_BYTES } else { 64 };
        let layout = Layout::from_size_align(len.max(64), align).ok()?;
        // SAFETY: the size is not zero.
        let ptr = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(PackedBytes { ptr, layout, len })
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        // SAFETY: `ptr` owns at least `len` initialised bytes.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl Drop for PackedBytes {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, freed once.
        unsafe { dealloc(self.ptr.as_ptr(), self.layout) }
    }
}
