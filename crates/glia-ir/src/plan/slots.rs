//! The arena: values whose lifetimes do not meet share a slot. Greedy in order of the schedule, best fit at the
//! largest step.

use glia_core::{Segment, Sizes, Slot, SlotId, ValueKind};

use super::{PlanError, PlanLimits};

/// Chooses a slot for every intermediate. Outputs are placed before inputs are freed, so no instruction writes where
/// it reads; returned values keep their slot to the end.
pub(super) fn fill_slots(segment: &mut Segment, limits: &PlanLimits) -> Result<(), PlanError> {
    let largest = limits.largest();
    let mut arena = Arena::default();
    for i in 0..segment.instrs.len() {
        for &id in &segment.instrs[i].outputs {
            let def = &mut segment.values[id.index()];
            if matches!(def.kind, ValueKind::Temp(_)) {
                let bytes = size(&def.ty, &largest).ok_or_else(|| PlanError::TooLarge {
                    value: def.name.clone(),
                    ty: def.ty.to_string(),
                    max_step_tokens: limits.max_step_tokens,
                    max_context: limits.max_context,
                })?;
                let slot = arena.take(bytes);
                arena.slots[slot].0.users.push(def.ty.clone());
                def.kind = ValueKind::Temp(SlotId(slot as u32));
            }
        }
        for &id in &segment.instrs[i].frees {
            if let ValueKind::Temp(slot) = segment.value(id).kind {
                arena.free.push(slot.index());
            }
        }
    }
    segment.slots = arena.slots.into_iter().map(|(slot, _)| slot).collect();
    for slot in &mut segment.slots {
        let mut unique = Vec::new();
        for user in slot.users.drain(..) {
            if !unique.contains(&user) {
                unique.push(user);
            }
        }
        slot.users = unique;
    }
    Ok(())
}

fn size(ty: &glia_core::ValueType, sizes: &Sizes) -> Option<usize> {
    ty.size_bytes(sizes)?.checked_next_multiple_of(64)
}

#[derive(Default)]
struct Arena {
    /// Slots and their sizes at the largest step.
    slots: Vec<(Slot, usize)>,
    free: Vec<usize>,
}

impl Arena {
    /// The smallest free slot that fits, else the largest free one (which grows), else a new one.
    fn take(&mut self, bytes: usize) -> usize {
        let fits = self.free.iter().enumerate().filter(|&(_, &s)| self.slots[s].1 >= bytes);
        let best = fits.min_by_key(|&(_, &s)| (self.slots[s].1, s));
        let largest = || self.free.iter().enumerate().max_by_key(|&(_, &s)| (self.slots[s].1, s));
        match best.or_else(largest).map(|(at, _)| at) {
            Some(at) => {
                let slot = self.free.remove(at);
                self.slots[slot].1 = self.slots[slot].1.max(bytes);
                slot
            }
            None => {
                self.slots.push((Slot { users: Vec::new() }, bytes));
                self.slots.len() - 1
            }
        }
    }
}
