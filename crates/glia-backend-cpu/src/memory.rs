//! Zeroed memory from the system, in huge pages where it has them and they pay.
//!
//! A step reads weights and caches once, so the address translation of 4 KiB pages costs a good part of the bandwidth.

use memmap2::{MmapMut, MmapOptions};

/// From this size on, huge pages are asked for.
pub(crate) const HUGE_BYTES: usize = 2 << 20;

/// `len` zero bytes in pages of the usual size, for what is used in parts; `None` when they cannot be had.
pub(crate) fn zeroed_small(len: usize) -> Option<MmapMut> {
    MmapOptions::new().len(len).map_anon().ok()
}

/// `len` zero bytes in huge pages as far as whole ones fit, so that none takes more than is used; `None` when they
/// cannot be had.
pub(crate) fn zeroed_within(len: usize) -> Option<MmapMut> {
    let map = zeroed_small(len)?;
    #[cfg(target_os = "linux")]
    {
        let before = map.as_ptr().align_offset(HUGE_BYTES);
        let whole = len.saturating_sub(before) / HUGE_BYTES * HUGE_BYTES;
        if whole > 0 {
            // As below.
            let _ = map.advise_range(memmap2::Advice::HugePage, before, whole);
        }
    }
    Some(map)
}

/// `len` zero bytes in huge pages, which take memory as they are touched; `None` when they cannot be had.
pub(crate) fn zeroed(len: usize) -> Option<MmapMut> {
    let map = zeroed_small(len)?;
    #[cfg(target_os = "linux")]
    if len >= HUGE_BYTES {
        // A system without huge pages refuses: the memory is as good, only slower.
        let _ = map.advise(memmap2::Advice::HugePage);
    }
    Some(map)
}
