//! Attention with few query rows over many keys: splits of the keys are computed by different threads and merged in
//! order. Splits lie at fixed positions, so that it does not matter who computed them, or whether they were cut at all.

use std::sync::Arc;

use glia_core::BackendError;

use super::tile::{Rows, finish, merge};
use super::{Attention, Dims, SPLIT_KEYS};
use crate::arena::Chunk;
use crate::error::invalid;
use crate::kernel::{Kernel, Scratch, StepCx, Work};

/// How a step cuts attention along its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub n_pieces: usize,
    /// Splits of the longest sequence; all pieces have so many, some empty.
    pub n_splits: usize,
    /// Floats of the results of one split.
    pub floats: usize,
}

impl Cut {
    /// The cut of a step; `None` when the pieces alone keep all threads busy.
    pub fn of(attention: &Attention, cx: &StepCx<'_>, dims: &Dims) -> Result<Option<Cut>, BackendError> {
        /// Pieces per thread that share the work evenly enough.
        const ENOUGH: usize = 8;
        let (n_pieces, longest) = attention.extent(cx, dims)?;
        let n_splits = longest.div_ceil(SPLIT_KEYS);
        let busy = cx.n_threads == 1 || n_pieces >= cx.n_threads * ENOUGH;
        let rows = Attention::rows_per_piece(dims) * (dims.n_heads / dims.n_kv);
        Ok((!busy && n_splits > 1).then_some(Cut {
            n_pieces,
            n_splits,
            floats: rows * (dims.v_dim + 2),
        }))
    }

    /// Floats of the results of all splits.
    pub fn all_floats(&self) -> usize {
        self.n_pieces.saturating_mul(self.n_splits).saturating_mul(self.floats)
    }
}

/// Merges the splits of each piece.
pub(crate) struct Merge(pub Arc<Attention>);

impl Kernel for Merge {
    fn work(&self, cx: &StepCx<'_>) -> Result<Work, BackendError> {
        let dims = self.0.dims(cx)?;
        let cut = Cut::of(&self.0, cx, &dims)?;
        Ok(Work::each(cut.map_or(0, |cut| cut.n_pieces)))
    }

    fn run(&self, cx: &StepCx<'_>, chunk: &mut Chunk, scratch: &mut Scratch) -> Result<(), BackendError> {
        let dims = self.0.dims(cx)?;
        let cut = Cut::of(&self.0, cx, &dims)?.ok_or_else(|| invalid("sdpa", "nothing to merge"))?;
        for item in chunk.items() {
            let piece = self.0.piece(cx, &dims, item)?;
            let n_rows = piece.n * (dims.n_heads / dims.n_kv);
            let width = dims.v_dim + 2;
            let mut total = Rows::new(scratch.floats(n_rows * width), n_rows, dims.v_dim);
            total.clear();
            for split in 0..cut.n_splits {
                let part = cx
                    .partials
                    .read((item * cut.n_splits + split) * cut.floats, n_rows * width)?;
                for (r, part) in part.chunks_exact(width).enumerate() {
                    merge(cx.level, total.row(r), part);
                }
            }
            self.0.put(cx, &dims, &piece, chunk, |r, sink, out| {
                finish(total.row(r), sink, out);
            })?;
        }
        Ok(())
    }
}
