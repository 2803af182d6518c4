//! Blocks: memory for the rows of 64 tokens of all caches of a program. Counted references let forks share them; a
//! block is written to only by a sequence that holds it alone.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of all live blocks of a pool.
pub(crate) type Meter = Arc<AtomicUsize>;

pub(crate) struct Block {
    ptr: *mut u8,
    layout: Layout,
    meter: Meter,
}

// SAFETY: plain memory; the pool lets one step write to unshared blocks, and nobody else meanwhile.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    /// A zeroed block, or `None` when memory is out.
    pub fn new(bytes: usize, meter: &Meter) -> Option<Block> {
        let layout = Layout::from_size_align(bytes.max(64), 64).ok()?;
        // SAFETY: the layout has a size above 0.
        let ptr = unsafe { alloc_zeroed(layout) };
        if ptr.is_null() {
            return None;
        }
        meter.fetch_add(layout.size(), Ordering::Relaxed);
        Some(Block {
            ptr,
            layout,
            meter: meter.clone(),
        })
    }

    /// A copy.
    pub fn duplicate(&self) -> Option<Block> {
        let copy = Block::new(self.layout.size(), &self.meter)?;
        // SAFETY: both have this size and are distinct; no step runs while the pool copies.
        unsafe { std::ptr::copy_nonoverlapping(self.ptr, copy.ptr, self.layout.size()) };
        Some(copy)
    }

    pub fn address(&self) -> BlockPtr {
        BlockPtr(self.ptr)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.meter.fetch_sub(self.layout.size(), Ordering::Relaxed);
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.ptr, self.layout) };
    }
}

/// Address of a block during a step.
#[derive(Clone, Copy)]
pub(crate) struct BlockPtr(pub *mut u8);

// SAFETY: the pool keeps the block alive during the step; writers hold distinct rows.
unsafe impl Send for BlockPtr {}
// SAFETY: as above.
unsafe impl Sync for BlockPtr {}

/// The blocks of one sequence during a step: rows of the past and room for the new ones.
#[derive(Default)]
pub(crate) struct SeqBlocks {
    pub(super) blocks: Vec<BlockPtr>,
}
