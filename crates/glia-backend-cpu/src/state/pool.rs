//! The pool of sequences. Rows beyond a sequence's length are tentative: commit adds to the length, rollback gives
//! back what grew, and nothing that was there before a step is written to by it.

use std::collections::BTreeMap;
use std::sync::Arc;

use glia_core::{BackendError, SeqId, SeqRows, check_rows};

use super::block::{Block, SeqBlocks};
use super::layout::BLOCK_TOKENS;
use super::slab::Slabs;
use crate::error::invalid;

#[derive(Clone, Default)]
struct Sequence {
    len: usize,
    blocks: Vec<Arc<Block>>,
}

pub(crate) struct SequencePool {
    seqs: BTreeMap<SeqId, Sequence>,
    /// What the running step appends.
    pending: Vec<SeqRows>,
    block_bytes: usize,
    max_context: usize,
    max_state_bytes: usize,
    slabs: Arc<Slabs>,
}

impl SequencePool {
    /// A pool whose blocks take `block_bytes`; 0 for programs without state.
    pub fn new(block_bytes: usize, max_context: usize, max_state_bytes: usize) -> SequencePool {
        SequencePool {
            seqs: BTreeMap::new(),
            pending: Vec::new(),
            block_bytes,
            max_context,
            max_state_bytes,
            slabs: Slabs::new(block_bytes),
        }
    }

    /// Checks who owns which rows and makes room for them. Fills `views` with the memory of each entry of `rows`.
    ///
    /// # Errors
    /// [`BackendError::InvalidInput`], [`BackendError::UnknownId`], [`BackendError::ContextOverflow`] and
    /// [`BackendError::OutOfMemory`]; all before any work.
    pub fn begin(&mut self, rows: &[SeqRows], views: &mut Vec<SeqBlocks>) -> Result<(), BackendError> {
        if !self.pending.is_empty() {
            return Err(invalid("step", "the last step was neither committed nor rolled back"));
        }
        check_rows(rows, self.max_context, |seq| self.seqs.get(&seq).map(|s| s.len))?;
        self.check_memory(rows)?;
        self.pending.extend_from_slice(rows);
        views.truncate(rows.len());
        views.resize_with(rows.len(), SeqBlocks::default);
        for (row, view) in rows.iter().zip(views) {
            let seq = self.seqs.get_mut(&row.seq).ok_or(row.seq.unknown())?;
            if self.block_bytes > 0 {
                seq.make_room(row.n_rows, &self.slabs)?;
            }
            view.blocks.clear();
            view.blocks.extend(seq.blocks.iter().map(|b| b.address()));
        }
        Ok(())
    }

    fn check_memory(&self, rows: &[SeqRows]) -> Result<(), BackendError> {
        if self.max_state_bytes == 0 || self.block_bytes == 0 {
            return Ok(());
        }
        let new_blocks = |row: &SeqRows| self.seqs.get(&row.seq).map_or(0, |seq| seq.new_blocks(row.n_rows));
        let n: usize = rows.iter().map(new_blocks).fold(0, usize::saturating_add);
        let needed_bytes = self.state_bytes().saturating_add(n.saturating_mul(self.block_bytes));
        if n > 0 && needed_bytes > self.max_state_bytes {
            return Err(BackendError::OutOfMemory {
                what: "the KV state".to_owned(),
                needed_bytes,
                limit_bytes: self.max_state_bytes,
            });
        }
        Ok(())
    }

    pub fn commit(&mut self) {
        for row in self.pending.drain(..) {
            if let Some(seq) = self.seqs.get_mut(&row.seq) {
                seq.len = seq.len.saturating_add(row.n_rows);
            }
        }
    }

    pub fn rollback(&mut self) {
        for row in self.pending.drain(..) {
            if let Some(seq) = self.seqs.get_mut(&row.seq) {
                seq.shrink();
            }
        }
    }

    pub fn create(&mut self, seq: SeqId) -> Result<(), BackendError> {
        if self.seqs.contains_key(&seq) {
            return Err(seq.taken());
        }
        self.seqs.insert(seq, Sequence::default());
        Ok(())
    }

    pub fn fork(&mut self, from: SeqId, to: SeqId, len: usize) -> Result<usize, BackendError> {
        if self.seqs.contains_key(&to) {
            return Err(to.taken());
        }
        let mut copy = self.seqs.get(&from).ok_or(from.unknown())?.clone();
        copy.len = copy.len.min(len);
        copy.shrink();
        let reached = copy.len;
        self.seqs.insert(to, copy);
        Ok(reached)
    }

    pub fn truncate(&mut self, seq: SeqId, len: usize) -> usize {
        let Some(seq) = self.seqs.get_mut(&seq) else { return 0 };
        seq.len = seq.len.min(len);
        seq.shrink();
        seq.len
    }

    pub fn free(&mut self, seq: SeqId) {
        self.seqs.remove(&seq);
    }

    pub fn state_bytes(&self) -> usize {
        self.slabs.live_bytes()
    }
}

impl Sequence {
    /// Blocks that an append of `n_rows` allocates: behind the last one, and a copy of the last one if shared.
    fn new_blocks(&self, n_rows: usize) -> usize {
        let fresh = self
            .len
            .saturating_add(n_rows)
            .div_ceil(BLOCK_TOKENS)
            .saturating_sub(self.blocks.len());
        fresh + usize::from(self.shares_last())
    }

    fn shares_last(&self) -> bool {
        !self.len.is_multiple_of(BLOCK_TOKENS)
            && self
                .blocks
                .get(self.len / BLOCK_TOKENS)
                .is_some_and(|b| Arc::strong_count(b) > 1)
    }

    fn make_room(&mut self, n_rows: usize, slabs: &Arc<Slabs>) -> Result<(), BackendError> {
        let out_of_memory = || BackendError::OutOfMemory {
            what: "a block of the KV state".to_owned(),
            needed_bytes: slabs.block_bytes(),
            limit_bytes: isize::MAX as usize,
        };
        if self.shares_last() {
            let last = &mut self.blocks[self.len / BLOCK_TOKENS];
            *last = Arc::new(last.duplicate().ok_or_else(out_of_memory)?);
        }
        while self.blocks.len() < self.len.saturating_add(n_rows).div_ceil(BLOCK_TOKENS) {
            self.blocks.push(Arc::new(Block::new(slabs).ok_or_else(out_of_memory)?));
        }
        Ok(())
    }

    /// Gives back blocks behind the length.
    fn shrink(&mut self) {
        self.blocks.truncate(self.len.div_ceil(BLOCK_TOKENS));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(seq: u64, pos: usize, n_rows: usize) -> SeqRows {
        SeqRows {
            seq: SeqId(seq),
            first_row: 0,
            n_rows,
            pos,
        }
    }

    #[test]
    fn forks_share_until_written_and_rollback_gives_back() {
        let mut pool = SequencePool::new(64, 1000, 0);
        let mut views = Vec::new();
        pool.create(SeqId(1)).unwrap();
        pool.begin(&[rows(1, 0, 70)], &mut views).unwrap();
        pool.commit();
        assert_eq!(pool.state_bytes(), 128);
        assert_eq!(pool.fork(SeqId(1), SeqId(2), 68).unwrap(), 68);
        assert_eq!(pool.state_bytes(), 128);
        pool.begin(&[rows(2, 68, 1)], &mut views).unwrap();
        assert_eq!(pool.state_bytes(), 192);
        pool.rollback();
        pool.begin(&[rows(2, 68, 100)], &mut views).unwrap();
        assert_eq!(pool.state_bytes(), 256);
        pool.rollback();
        assert_eq!(pool.state_bytes(), 192);
        assert_eq!(pool.truncate(SeqId(2), 3), 3);
        pool.free(SeqId(1));
        assert_eq!(pool.state_bytes(), 64);
        pool.free(SeqId(2));
        assert_eq!(pool.state_bytes(), 0);
    }

    #[test]
    fn limits_are_errors_before_work() {
        let mut pool = SequencePool::new(64, 100, 64);
        let mut views = Vec::new();
        pool.create(SeqId(1)).unwrap();
        let err = pool.begin(&[rows(1, 0, 65)], &mut views).unwrap_err();
        assert!(matches!(
            err,
            BackendError::OutOfMemory {
                needed_bytes: 128,
                limit_bytes: 64,
                ..
            }
        ));
        let err = pool.begin(&[rows(1, 0, 101)], &mut views).unwrap_err();
        assert!(matches!(err, BackendError::ContextOverflow { needed: 101, max: 100 }));
        pool.begin(&[rows(1, 0, 64)], &mut views).unwrap();
        assert!(pool.begin(&[rows(1, 0, 1)], &mut views).is_err());
    }
}
