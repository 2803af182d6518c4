//! Table lookups: rows of a table of any dtype, decoded to F32.
//!
//! Rows of a table in a file are read, not mapped: a row that is touched would map its neighbours too, and a prompt of
//! many words the whole table.

use glia_core::{BackendError, DType, Tensor, quant};

use super::ints;
use crate::arena::Chunk;
use crate::error::invalid;
use crate::kernel::{Kernel, Scratch, StepCx, Work};

pub(crate) struct TokenEmbed {
    pub ids: u32,
    pub table: u32,
    /// The table, where it is a constant.
    pub rows: Option<Tensor>,
    pub out: u32,
}

impl Kernel for TokenEmbed {
    fn work(&self, cx: &StepCx<'_>) -> Result<Work, BackendError> {
        let table = cx.values.shape(self.table)?;
        let n = cx.values.shape(self.ids)?.n_elems();
        Ok(Work::split(n, table.last_dim(), cx.n_threads))
    }

    fn run(&self, cx: &StepCx<'_>, chunk: &mut Chunk, scratch: &mut Scratch) -> Result<(), BackendError> {
        let &[vocab, width] = &cx.values.shape(self.table)?[..] else {
            return Err(invalid("token_embed", "the table must have rank 2"));
        };
        let table = cx.values.bytes(self.table)?;
        let dtype: DType = cx.values.get(self.table)?.dtype;
        let row_bytes = table.len() / vocab.max(1);
        let items = chunk.items();
        let out: &mut [f32] = cx.values.write(chunk, self.out, width)?;
        if width == 0 {
            return Ok(());
        }
        for (i, row) in items.zip(out.chunks_exact_mut(width)) {
            let id = ints::index("token_embed", &cx.values, self.ids, i, vocab, "the vocabulary size is")?;
            let range = id * row_bytes..(id + 1) * row_bytes;
            let raw = match &self.rows {
                Some(rows) => rows.fetch(range, &mut scratch.bytes)?,
                None => &table[range],
            };
            quant::dequantize(dtype, raw, row).map_err(|e| invalid("token_embed", e.to_string()))?;
        }
        Ok(())
    }
}
