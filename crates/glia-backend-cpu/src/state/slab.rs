//! Memory for blocks: slabs of several, so that they lie in huge pages. A slab goes back to the system with its last
//! block.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use memmap2::MmapMut;

use crate::memory::{self, HUGE_BYTES};

/// About what a slab takes; memory is taken as blocks are used.
const SLAB_BYTES: usize = 4 * HUGE_BYTES;
/// What each of the first slabs takes: less than would be given huge pages, since a short conversation would pay for what
/// it does not use.
const FIRST_BYTES: usize = HUGE_BYTES - 1;
/// So many of them: then a huge page is little beside the cache, and begins to save time.
const N_FIRST: usize = 12;
/// Blocks of a slab at most.
const MOST_BLOCKS: usize = 64;

/// Gives out blocks of one size.
pub(crate) struct Slabs {
    block_bytes: usize,
    live_bytes: AtomicUsize,
    slabs: Mutex<Vec<Weak<Slab>>>,
}

/// Memory for several blocks.
struct Slab {
    /// Keeps the memory; touched through `start` only.
    _map: MmapMut,
    start: *mut u8,
    places: Mutex<Places>,
}

// SAFETY: plain memory, of which every place belongs to one block.
unsafe impl Send for Slab {}
// SAFETY: as above.
unsafe impl Sync for Slab {}

struct Places {
    n: usize,
    /// Places that were never used: from this one on, and still zero.
    fresh: usize,
    free: Vec<usize>,
}

/// A block's place in its slab.
pub(super) struct Place {
    slabs: Arc<Slabs>,
    slab: Arc<Slab>,
    index: usize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

impl Slabs {
    /// For blocks of at least `block_bytes`, at multiples of 64.
    pub fn new(block_bytes: usize) -> Arc<Slabs> {
        Arc::new(Slabs {
            block_bytes: block_bytes.max(1).checked_next_multiple_of(64).unwrap_or(block_bytes),
            live_bytes: AtomicUsize::new(0),
            slabs: Mutex::default(),
        })
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// Bytes of all blocks in use.
    pub fn live_bytes(&self) -> usize {
        self.live_bytes.load(Ordering::Relaxed)
    }

    /// A zeroed block's place, or `None` when memory is out.
    pub(super) fn take(self: &Arc<Self>) -> Option<Place> {
        let mut slabs = lock(&self.slabs);
        slabs.retain(|slab| slab.strong_count() > 0);
        let found = slabs.iter().find_map(|slab| {
            let slab = slab.upgrade()?;
            let index = slab.take(self.block_bytes)?;
            Some((slab, index))
        });
        let (slab, index) = match found {
            Some(found) => found,
            None => {
                let bytes = if slabs.len() < N_FIRST { FIRST_BYTES } else { SLAB_BYTES };
                let slab = Arc::new(Slab::new(self.block_bytes, bytes)?);
                slabs.push(Arc::downgrade(&slab));
                let index = slab.take(self.block_bytes)?;
                (slab, index)
            }
        };
        drop(slabs);
        self.live_bytes.fetch_add(self.block_bytes, Ordering::Relaxed);
        Some(Place {
            slabs: self.clone(),
            slab,
            index,
        })
    }
}

impl Slab {
    /// Room for as many blocks as about `bytes` hold, at least one.
    fn new(block_bytes: usize, bytes: usize) -> Option<Slab> {
        let n = (bytes / block_bytes).clamp(1, MOST_BLOCKS);
        let mut map = memory::zeroed(n.checked_mul(block_bytes)?)?;
        let start = map.as_mut_ptr();
        let (fresh, free) = (0, Vec::new());
        Some(Slab {
            _map: map,
            start,
            places: Mutex::new(Places { n, fresh, free }),
        })
    }

    fn take(&self, block_bytes: usize) -> Option<usize> {
        let mut places = lock(&self.places);
        if let Some(index) = places.free.pop() {
            // SAFETY: the place lies in the slab and belongs to nobody.
            unsafe { self.start.add(index * block_bytes).write_bytes(0, block_bytes) };
            return Some(index);
        }
        let index = (places.fresh < places.n).then_some(places.fresh)?;
        places.fresh += 1;
        Some(index)
    }
}

impl Place {
    /// Where the block begins: [`Slabs::block_bytes`] that are this place's alone.
    pub(super) fn start(&self) -> *mut u8 {
        // SAFETY: places lie within the slab.
        unsafe { self.slab.start.add(self.index * self.slabs.block_bytes) }
    }

    /// Who gave it.
    pub(super) fn slabs(&self) -> &Arc<Slabs> {
        &self.slabs
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.slab.places).free.push(self.index);
        self.slabs
            .live_bytes
            .fetch_sub(self.slabs.block_bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_zero_and_used_again_and_slabs_go_back() {
        let slabs = Slabs::new(1000);
        assert_eq!(slabs.block_bytes(), 1024);
        let mut places: Vec<Place> = (0..MOST_BLOCKS + 1).map(|_| slabs.take().unwrap()).collect();
        let mut starts: Vec<usize> = places.iter().map(|p| p.start().addr()).collect();
        starts.sort_unstable();
        assert!(
            starts
                .windows(2)
                .all(|w| w[1] - w[0] >= 1024 && w[0].is_multiple_of(64))
        );
        assert_eq!(
            (slabs.live_bytes(), lock(&slabs.slabs).len()),
            ((MOST_BLOCKS + 1) * 1024, 2)
        );
        let used = places.remove(3);
        // SAFETY: the place is ours.
        unsafe { used.start().write_bytes(7, 1024) };
        let at = used.start().addr();
        drop(used);
        let again = slabs.take().unwrap();
        // SAFETY: the place is ours.
        let bytes = unsafe { std::slice::from_raw_parts(again.start(), 1024) };
        assert!(again.start().addr() == at && bytes.iter().all(|&b| b == 0));
        places.pop();
        drop(places);
        assert_eq!((slabs.live_bytes(), slabs.take().is_some()), (1024, true));
        assert_eq!(lock(&slabs.slabs).len(), 1);
    }

    #[test]
    fn a_short_context_gets_no_huge_page() {
        let slabs = Slabs::new(HUGE_BYTES / 4 * 3);
        let _places: Vec<Place> = (0..N_FIRST + 1).map(|_| slabs.take().unwrap()).collect();
        let sizes: Vec<usize> = lock(&slabs.slabs)
            .iter()
            .filter_map(Weak::upgrade)
            .map(|slab| lock(&slab.places).n * slabs.block_bytes())
            .collect();
        assert_eq!(sizes.len(), N_FIRST + 1);
        assert!(sizes[..N_FIRST].iter().all(|&bytes| bytes < HUGE_BYTES), "{sizes:?}");
        assert!(sizes[N_FIRST] > HUGE_BYTES, "{sizes:?}");
    }
}
