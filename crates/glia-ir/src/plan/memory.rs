//! What a plan takes in memory, as numbers that are checked against limits and printed.

use glia_core::{Sizes, StateKind, ValueKind};

use super::{Plan, PlanError};

/// Memory that a plan takes, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryPlan {
    /// All weights, in the dtypes in which they are given.
    pub weights_bytes: usize,
    /// Most intermediate memory of a step of `max_step_tokens` rows, all wanted, at the end of the context.
    pub peak_bytes: usize,
    /// Most intermediate memory of a step of one token at the end of the context; as `peak_bytes` for a graph that
    /// cannot run one.
    pub peak_one_token_bytes: usize,
    /// Growth of the KV state per token of a sequence.
    pub kv_bytes_per_token: usize,
}

impl Plan {
    /// Memory at the planned sizes.
    ///
    /// # Errors
    /// [`PlanError::TooLarge`] when a size overflows.
    pub fn memory(&self) -> Result<MemoryPlan, PlanError> {
        let too_large = || PlanError::TooLarge {
            value: "the sum of all intermediates".to_owned(),
            ty: String::new(),
            max_step_tokens: self.limits.max_step_tokens,
            max_context: self.limits.max_context,
        };
        let weight = |n: usize, id: &_| n.checked_add(self.graph.value(*id).ty.size_bytes(&Sizes::default())?);
        let peak_bytes = self.intermediate_bytes(&self.limits.largest()).ok_or_else(too_large)?;
        Ok(MemoryPlan {
            weights_bytes: self.weights.iter().try_fold(0, weight).ok_or_else(too_large)?,
            peak_bytes,
            // A slice may leave nothing of one row.
            peak_one_token_bytes: self.intermediate_bytes(&self.limits.one_token()).unwrap_or(peak_bytes),
            kv_bytes_per_token: self.kv_bytes_per_token().ok_or_else(too_large)?,
        })
    }

    /// Intermediate memory of a step of these sizes: the arenas of all regions, the most that lies on the heap at once,
    /// and copies at borders; `None` on overflow.
    pub fn intermediate_bytes(&self, sizes: &Sizes) -> Option<usize> {
        let mut total = self.copied_bytes(sizes)?;
        for region in &self.regions {
            let segment = &region.segment;
            total = total.checked_add(segment.arena_bytes(sizes)?)?;
            let (mut now, mut most) = (0usize, 0usize);
            for instr in &segment.instrs {
                let bytes = |id: &glia_core::ValueId| {
                    let def = segment.value(*id);
                    if def.kind == ValueKind::Dynamic {
                        def.ty.size_bytes(sizes)
                    } else {
                        Some(0)
                    }
                };
                for id in &instr.outputs {
                    now = now.checked_add(bytes(id)?)?;
                }
                most = most.max(now);
                for id in &instr.frees {
                    now = now.saturating_sub(bytes(id)?);
                }
            }
            total = total.checked_add(most)?;
        }
        Some(total)
    }

    fn kv_bytes_per_token(&self) -> Option<usize> {
        let states = self.regions.iter().flat_map(|r| &r.segment.states);
        let mut total = 0usize;
        for state in states.filter(|s| s.spec.kind == StateKind::Rows) {
            for (part, dtype) in state.spec.parts.iter().zip(self.limits.kv_dtypes) {
                let n = part.as_fixed()?.checked_elems()?;
                // Rows that are no whole blocks cannot be stored quantised; programs say so when they open.
                total = total.checked_add(dtype.size_bytes(n).or_else(|| part.dtype.size_bytes(n))?)?;
            }
        }
        Some(total)
    }
}
