//! Zeroed memory from the system, in huge pages where it has them.
//!
//! A step reads weights and caches once, so the address translation of 4 KiB pages costs a good part of the bandwidth.

use memmap2::{MmapMut, MmapOptions};

/// From this size on, huge pages are asked for.
pub(crate) const HUGE_BYTES: usize = 2 << 20;

/// `len` zero bytes, which take memory as they are touched; `None` when they cannot be had.
pub(crate) fn zeroed(len: usize) -> Option<MmapMut> {
    let map = MmapOptions::new().len(len).map_anon().ok()?;
    #[cfg(target_os = "linux")]
    if len >= HUGE_BYTES {
        // A system without huge pages refuses: the memory is as good, only slower.
        let _ = map.advise(memmap2::Advice::HugePage);
    }
    Some(map)
}
