//! `KvCache`: appends the rows of a step to the blocks of their sequences.

use glia_core::BackendError;

use crate::arena::Chunk;
use crate::error::invalid;
use crate::kernel::{Kernel, Scratch, StepCx, Work};
use crate::state::{LANES, PartLayout, append_row};

pub(crate) struct Append {
    pub parts: [PartLayout; 2],
    pub new: [u32; 2],
}

impl Kernel for Append {
    fn work(&self, cx: &StepCx<'_>) -> Result<Work, BackendError> {
        let n: usize = cx.rows.iter().map(|r| r.n_rows).sum();
        let width = self.parts[0].n_heads * (self.parts[0].dim + self.parts[1].dim);
        let mut work = Work::split(n, width, cx.n_threads);
        if cx.rows.iter().any(|r| r.n_rows >= LANES) {
            // Tokens whose keys lie side by side belong to one thread: two would take each other's cache lines.
            work.per_chunk = work.per_chunk.next_multiple_of(LANES);
        }
        Ok(work)
    }

    fn run(&self, cx: &StepCx<'_>, chunk: &mut Chunk, _: &mut Scratch) -> Result<(), BackendError> {
        for row in chunk.items() {
            let found = cx
                .rows
                .iter()
                .zip(cx.seqs)
                .find(|(r, _)| (r.first_row..r.first_row + r.n_rows).contains(&row));
            let (rows, seq) = found.ok_or_else(|| invalid("kv_cache", format!("row {row} belongs to no sequence")))?;
            let pos = rows.pos + (row - rows.first_row);
            for (part, &id) in self.parts.iter().zip(&self.new) {
                let width = part.n_heads * part.dim;
                let new = cx.values.read::<f32>(id)?;
                let new = new
                    .get(row * width..(row + 1) * width)
                    .ok_or_else(|| invalid("kv_cache", "a row is missing"))?;
                // SAFETY: each row belongs to one chunk, and nobody reads the cache before the next group.
                unsafe { append_row(seq, part, pos, new)? };
            }
        }
        Ok(())
    }
}
