//! Blocks: memory for the rows of 64 tokens of all caches of a program. Counted references let forks share them; a
//! block is written to only by a sequence that holds it alone.

use std::sync::Arc;

use super::slab::{Place, Slabs};

pub(crate) struct Block(Place);

impl Block {
    /// A zeroed block, or `None` when memory is out.
    pub fn new(slabs: &Arc<Slabs>) -> Option<Block> {
        slabs.take().map(Block)
    }

    /// A copy.
    pub fn duplicate(&self) -> Option<Block> {
        let slabs = self.0.slabs();
        let copy = Block::new(slabs)?;
        // SAFETY: both have this size and are distinct; no step runs while the pool copies.
        unsafe { std::ptr::copy_nonoverlapping(self.0.start(), copy.0.start(), slabs.block_bytes()) };
        Some(copy)
    }

    pub fn address(&self) -> BlockPtr {
        BlockPtr(self.0.start())
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
