//! The bookkeeping of cached rows: sequences own blocks of a fixed number of tokens; forks share them until one is
//! written. Touches no device.

use std::collections::BTreeMap;

use glia_core::{BackendError, SeqId, SeqRows};

/// Tokens in a block.
pub(crate) const BLOCK_TOKENS: usize = 32;

#[derive(Clone, Default)]
struct Sequence {
    len: usize,
    blocks: Vec<u32>,
}

/// A block whose rows must be copied before a step writes to the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockCopy {
    pub from: u32,
    pub to: u32,
}

/// All sequences of a program.
#[derive(Default)]
pub(crate) struct Seqs {
    seqs: BTreeMap<SeqId, Sequence>,
    /// For each block how many sequences hold it.
    refs: Vec<u32>,
    free: Vec<u32>,
    /// What the open step appends, with the blocks of each sequence before it.
    pending: Vec<(SeqRows, Vec<u32>)>,
    in_step: bool,
}

impl Seqs {
    /// Whether a step waits for commit or rollback.
    pub fn in_step(&self) -> bool {
        self.in_step
    }

    /// Tokens of a sequence.
    pub fn len(&self, seq: SeqId) -> Option<usize> {
        self.seqs.get(&seq).map(|s| s.len)
    }

    /// Blocks of a sequence, those of the open step included.
    pub fn blocks(&self, seq: SeqId) -> &[u32] {
        self.seqs.get(&seq).map_or(&[], |s| &s.blocks)
    }

    /// Blocks that memory is needed for.
    pub fn n_blocks(&self) -> usize {
        self.refs.len()
    }

    /// Blocks in use.
    pub fn n_used(&self) -> usize {
        self.refs.len() - self.free.len()
    }

    /// Begins a step: gives each sequence blocks for its new rows, its own where others share them.
    pub fn begin(&mut self, rows: &[SeqRows]) -> Result<Vec<BlockCopy>, BackendError> {
        let mut copies = Vec::new();
        self.in_step = true;
        for row in rows {
            let before = self.seqs.get(&row.seq).ok_or(row.seq.unknown())?.blocks.clone();
            let mut blocks = before.clone();
            self.pending.push((*row, before));
            let (first, last) = (row.pos / BLOCK_TOKENS, (row.pos + row.n_rows - 1) / BLOCK_TOKENS);
            if let Some(&block) = blocks.get(first)
                && self.refs[block as usize] > 1
            {
                let own = self.take();
                copies.push(BlockCopy { from: block, to: own });
                self.refs[block as usize] -= 1;
                blocks[first] = own;
            }
            while blocks.len() <= last {
                blocks.push(self.take());
            }
            if let Some(seq) = self.seqs.get_mut(&row.seq) {
                seq.blocks = blocks;
            }
        }
        Ok(copies)
    }

    fn take(&mut self) -> u32 {
        let block = self.free.pop().unwrap_or_else(|| {
            self.refs.push(0);
            // Fewer than 2^32: each has rows in memory.
            (self.refs.len() - 1) as u32
        });
        self.refs[block as usize] = 1;
        block
    }

    fn drop_ref(&mut self, block: u32) {
        let refs = &mut self.refs[block as usize];
        *refs -= 1;
        if *refs == 0 {
            self.free.push(block);
        }
    }

    pub fn commit(&mut self) {
        self.in_step = false;
        for (row, _) in std::mem::take(&mut self.pending) {
            if let Some(seq) = self.seqs.get_mut(&row.seq) {
                seq.len = row.pos + row.n_rows;
            }
        }
    }

    pub fn rollback(&mut self) {
        self.in_step = false;
        for (row, before) in std::mem::take(&mut self.pending) {
            let Some(seq) = self.seqs.get_mut(&row.seq) else {
                continue;
            };
            let after = std::mem::replace(&mut seq.blocks, before.clone());
            // A block that was copied for writing has lost a holder, who is back.
            for (i, &block) in after.iter().enumerate() {
                match before.get(i) {
                    Some(&old) if old == block => {}
                    Some(&old) => {
                        self.refs[old as usize] += 1;
                        self.drop_ref(block);
                    }
                    None => self.drop_ref(block),
                }
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
        let source = self.seqs.get(&from).ok_or(from.unknown())?;
        let len = len.min(source.len);
        let blocks = source.blocks[..len.div_ceil(BLOCK_TOKENS)].to_vec();
        for &block in &blocks {
            self.refs[block as usize] += 1;
        }
        self.seqs.insert(to, Sequence { len, blocks });
        Ok(len)
    }

    pub fn truncate(&mut self, seq: SeqId, len: usize) -> usize {
        let Some(sequence) = self.seqs.get_mut(&seq) else {
            return 0;
        };
        sequence.len = sequence.len.min(len);
        let len = sequence.len;
        let dropped = sequence
            .blocks
            .split_off(len.div_ceil(BLOCK_TOKENS).min(sequence.blocks.len()));
        dropped.into_iter().for_each(|block| self.drop_ref(block));
        len
    }

    pub fn free(&mut self, seq: SeqId) {
        if let Some(sequence) = self.seqs.remove(&seq) {
            sequence.blocks.into_iter().for_each(|block| self.drop_ref(block));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SeqId = SeqId(1);
    const B: SeqId = SeqId(2);

    fn rows(seq: SeqId, pos: usize, n_rows: usize) -> [SeqRows; 1] {
        [SeqRows {
            seq,
            first_row: 0,
            n_rows,
            pos,
        }]
    }

    fn with_a(n: usize) -> Seqs {
        let mut seqs = Seqs::default();
        seqs.create(A).unwrap();
        assert_eq!(seqs.begin(&rows(A, 0, n)).unwrap(), []);
        seqs.commit();
        seqs
    }

    #[test]
    fn forks_share_until_written() {
        let mut seqs = with_a(BLOCK_TOKENS + 3);
        assert_eq!(seqs.fork(A, B, BLOCK_TOKENS + 2).unwrap(), BLOCK_TOKENS + 2);
        assert_eq!(seqs.n_used(), 2);
        let copies = seqs.begin(&rows(B, BLOCK_TOKENS + 2, 1)).unwrap();
        assert_eq!(copies, [BlockCopy { from: 1, to: 2 }]);
        assert_eq!(seqs.blocks(A), [0, 1]);
        assert_eq!(seqs.blocks(B), [0, 2]);
        seqs.rollback();
        assert_eq!(seqs.blocks(B), [0, 1]);
        assert_eq!(seqs.refs[..2], [2, 2]);
        assert_eq!(seqs.n_used(), 2);
        seqs.free(A);
        assert_eq!(seqs.n_used(), 2);
        // Nobody shares it any more.
        assert_eq!(seqs.begin(&rows(B, BLOCK_TOKENS + 2, 1)).unwrap(), []);
        seqs.commit();
        seqs.free(B);
        assert_eq!(seqs.n_used(), 0);
    }

    #[test]
    fn truncate_and_rollback_give_blocks_back() {
        let mut seqs = with_a(3 * BLOCK_TOKENS);
        assert_eq!(seqs.truncate(A, BLOCK_TOKENS), BLOCK_TOKENS);
        assert_eq!((seqs.n_used(), seqs.len(A)), (1, Some(BLOCK_TOKENS)));
        seqs.begin(&rows(A, BLOCK_TOKENS, 2 * BLOCK_TOKENS)).unwrap();
        assert_eq!((seqs.n_used(), seqs.n_blocks()), (3, 3));
        seqs.rollback();
        assert_eq!((seqs.n_used(), seqs.len(A)), (1, Some(BLOCK_TOKENS)));
        assert_eq!(seqs.truncate(A, 999), BLOCK_TOKENS);
        assert_eq!(seqs.truncate(B, 0), 0);
        assert!(seqs.create(A).is_err() && seqs.fork(B, SeqId(3), 1).is_err() && seqs.fork(A, A, 1).is_err());
    }
}
