//! The sizes of one step, and the table that tells kernels which rows belong to which sequence.

use glia_core::{BackendError, Segment, SeqRows, Shape, Sizes, ValueKind, ValueType};

use super::seqs::{BLOCK_TOKENS, Seqs};

/// What kernels are told of a step.
pub(crate) struct StepInfo<'a> {
    pub sizes: Sizes,
    pub rows: &'a [SeqRows],
    pub table: TableHeader,
}

/// Where the parts of the step table begin, in words. The table is: for each row the place in the cache that it is
/// written to; for each row its position; for each row its sequence; for each sequence first row, rows, past and
/// first block in the list; the blocks of all sequences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableHeader {
    pub positions: usize,
    pub seq_of_row: usize,
    pub seqs: usize,
    pub blocks: usize,
    pub n_words: usize,
}

impl StepInfo<'_> {
    /// The shape of a value in this step. Sizes have been checked before.
    pub fn shape(&self, ty: &ValueType) -> Shape {
        ty.shape(&self.sizes).unwrap_or_else(|| Shape::new(&[0]))
    }

    /// The sizes of the step as each of its sequences sees them.
    pub fn seq_sizes(&self) -> impl Iterator<Item = Sizes> + '_ {
        self.rows.iter().map(|row| Sizes {
            t: row.n_rows,
            p: row.pos,
            n: 1,
            ..self.sizes
        })
    }

    /// Elements of a value in this step.
    pub fn n_elems(&self, ty: &ValueType) -> usize {
        self.shape(ty).checked_elems().unwrap_or(0)
    }
}

/// Checks that every value of the step can be indexed with 32 bits.
///
/// # Errors
/// [`BackendError::InvalidInput`], naming the value.
pub(super) fn check_sizes(segment: &Segment, sizes: &Sizes) -> Result<(), BackendError> {
    for def in &segment.values {
        // Past rows of several sequences are never one dense tensor.
        if matches!(def.kind, ValueKind::State(..) | ValueKind::Const(_)) {
            continue;
        }
        let n_elems = def.ty.shape(sizes).and_then(|s| s.checked_elems());
        if n_elems.is_none_or(|n| n >= u32::MAX as usize) {
            return Err(BackendError::InvalidInput {
                op: "step".to_owned(),
                reason: format!(
                    "`{}` {} has more elements than the device can index; run fewer tokens in a step",
                    def.name, def.ty
                ),
            });
        }
    }
    Ok(())
}

impl TableHeader {
    pub fn of(rows: &[SeqRows], seqs: &Seqs) -> TableHeader {
        let n_rows: usize = rows.iter().map(|r| r.n_rows).sum();
        let n_blocks: usize = rows.iter().map(|r| seqs.blocks(r.seq).len()).sum();
        let blocks = 3 * n_rows + 4 * rows.len();
        TableHeader {
            positions: n_rows,
            seq_of_row: 2 * n_rows,
            seqs: 3 * n_rows,
            blocks,
            n_words: blocks + n_blocks,
        }
    }
}

/// The words of the table.
pub(super) fn table_words(rows: &[SeqRows], seqs: &Seqs, header: &TableHeader) -> Vec<u32> {
    let word = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let mut words = vec![0; header.n_words];
    let mut next_block = 0;
    for (s, row) in rows.iter().enumerate() {
        let blocks = seqs.blocks(row.seq);
        for i in 0..row.n_rows {
            let (at, position) = (row.first_row + i, row.pos + i);
            let block = blocks.get(position / BLOCK_TOKENS).copied().unwrap_or(0) as usize;
            words[at] = word(block * BLOCK_TOKENS + position % BLOCK_TOKENS);
            words[header.positions + at] = word(position);
            words[header.seq_of_row + at] = word(s);
        }
        let seq = [row.first_row, row.n_rows, row.pos, next_block].map(word);
        words[header.seqs + 4 * s..][..4].copy_from_slice(&seq);
        words[header.blocks + next_block..][..blocks.len()].copy_from_slice(blocks);
        next_block += blocks.len();
    }
    words
}
