//! How many rows a step may have, so that no value is larger than what its backend can allocate at once.

use std::sync::Arc;

use glia_core::{Backend, Sizes, ValueKind};

use super::{Plan, PlanLimits};

impl Plan {
    /// The most rows of a step, when they are fewer than planned: with them every value of a region fits into
    /// [`max_alloc_bytes`](glia_core::MemoryHints::max_alloc_bytes) of the region's backend. `None` where all fit as
    /// they are, where runs cannot be split, and where one row is too much already: then the backend says so.
    pub fn fewer_rows(&self, backends: &[Arc<dyn Backend>]) -> Option<usize> {
        let limits: Vec<usize> = self
            .regions
            .iter()
            .map(|region| {
                backends
                    .get(region.backend)
                    .map_or(0, |b| b.memory_hints().max_alloc_bytes)
            })
            .collect();
        let fits = |n: usize| {
            let sizes = self.limits.with_rows(n).largest();
            let mut regions = self.regions.iter().zip(&limits).filter(|(_, limit)| **limit > 0);
            regions.all(|(region, &limit)| largest(&region.segment, &sizes).is_some_and(|bytes| bytes <= limit))
        };
        let planned = self.limits.max_step_tokens.min(self.limits.max_context);
        if self.rows.why_not_split().is_some() || fits(planned) || !fits(1) {
            return None;
        }
        // More rows never need less: what fits is below what does not.
        let (mut low, mut high) = (1, planned);
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            if fits(middle) {
                low = middle;
            } else {
                high = middle;
            }
        }
        Some(low)
    }
}

impl PlanLimits {
    /// These limits with another number of rows of a step.
    #[must_use]
    pub fn with_rows(mut self, n: usize) -> PlanLimits {
        self.max_step_tokens = n;
        self
    }
}

/// Bytes of the largest value that a segment makes or is given; states grow by blocks and weights are as they are.
/// `None` on overflow.
fn largest(segment: &glia_core::Segment, sizes: &Sizes) -> Option<usize> {
    let values = segment.values.iter();
    let made = values.filter(|def| !matches!(def.kind, ValueKind::State(..) | ValueKind::Const(_)));
    made.map(|def| def.ty.size_bytes(sizes))
        .try_fold(0, |most, bytes| Some(bytes?.max(most)))
}
