//! What a lowered instruction is: a kernel that says how much work a step has, and does it chunk by chunk.

use glia_core::{BackendError, SeqRows};

use crate::arena::{Chunk, Partials, Values};
use crate::simd::Level;
use crate::state::SeqBlocks;

/// A running step as kernels see it.
pub(crate) struct StepCx<'a> {
    pub values: Values<'a>,
    /// Who owns which rows.
    pub rows: &'a [SeqRows],
    /// For each entry of `rows`, the memory of its sequence.
    pub seqs: &'a [SeqBlocks],
    pub n_threads: usize,
    pub level: Level,
    /// Results of parts of an instruction, between its stages.
    pub partials: Partials<'a>,
}

/// Memory of one thread that survives from chunk to chunk. Contents are arbitrary.
#[derive(Default)]
pub(crate) struct Scratch {
    pub floats: Vec<f32>,
    /// Sums of a product that `floats` holds the weights of.
    pub products: Vec<f32>,
    /// What is read from a file for once.
    pub bytes: Vec<u8>,
}

impl Scratch {
    /// At least `n` floats.
    pub fn floats(&mut self, n: usize) -> &mut [f32] {
        grown(&mut self.floats, n)
    }
}

/// The first `n` elements of a buffer that is grown when too short.
pub(crate) fn grown(buffer: &mut Vec<f32>, n: usize) -> &mut [f32] {
    if buffer.len() < n {
        buffer.resize(n, 0.0);
    }
    &mut buffer[..n]
}

/// How an instruction's work is cut in one step: `n_items` in chunks of `per_chunk`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    pub n_items: usize,
    pub per_chunk: usize,
}

impl Work {
    /// Chunks of about `GRAIN` operations where an item costs `ops`, but several per thread as long as they are not
    /// too small to hand out.
    pub fn split(n_items: usize, ops: usize, n_threads: usize) -> Work {
        const GRAIN: usize = 4096;
        let least = GRAIN.div_ceil(ops.max(1));
        let fair = n_items.div_ceil(n_threads.saturating_mul(8).max(1));
        Work {
            n_items,
            per_chunk: least.max(fair).max(1),
        }
    }

    /// One chunk per item.
    pub fn each(n_items: usize) -> Work {
        Work { n_items, per_chunk: 1 }
    }
}

/// A lowered instruction, or a part of one.
pub(crate) trait Kernel: Send + Sync {
    /// How much there is to do in this step. Checks what the step brings (ids in range); called by one thread before
    /// any work.
    ///
    /// # Errors
    /// [`BackendError`]: the step does not begin.
    fn work(&self, cx: &StepCx<'_>) -> Result<Work, BackendError>;

    /// Floats of [`StepCx::partials`] that this stage and the ones after it in its instruction need.
    ///
    /// # Errors
    /// As [`Kernel::work`].
    fn partial_floats(&self, _: &StepCx<'_>) -> Result<usize, BackendError> {
        Ok(0)
    }

    /// Does the items of a chunk. Every output element is computed whole in an order that does not depend on how the
    /// work was cut.
    ///
    /// # Errors
    /// [`BackendError`]: the step ends.
    fn run(&self, cx: &StepCx<'_>, chunk: &mut Chunk, scratch: &mut Scratch) -> Result<(), BackendError>;
}
