//! Which values share memory: groups of the schedule, and slots of the arena for values that are not needed in the same
//! group.

use std::ops::Range;

use glia_core::Sizes;

use super::builder::{Key, Lowered, Place, Stage};

/// Cuts the schedule before every stage that conflicts with one since the last cut.
pub(super) fn groups(stages: &[Stage]) -> Vec<Range<usize>> {
    let mut groups = Vec::new();
    let mut start = 0;
    for (i, stage) in stages.iter().enumerate() {
        let conflicts = |earlier: &Stage| {
            let touched = |key: &Key| earlier.writes.contains(key) || earlier.reads.contains(key);
            stage.reads.iter().any(|key| earlier.writes.contains(key)) || stage.writes.iter().any(touched)
        };
        if stages[start..i].iter().any(conflicts) {
            groups.push(start..i);
            start = i;
        }
    }
    if start < stages.len() {
        groups.push(start..stages.len());
    }
    groups
}

/// A value of the arena: the groups from its maker's to its last reader's, and its bytes in the largest step.
struct Life {
    slot: u32,
    first: usize,
    last: usize,
    bytes: usize,
}

/// Puts values that never meet into one slot. Values of the same group are kept apart, whatever the order of their
/// stages: sharing costs no group. The largest choose first, so that small ones find room where large ones are not
/// needed; `largest` says how large they are.
pub(super) fn share(lowered: &mut Lowered, largest: &Sizes) {
    let bytes = slot_bytes(lowered, largest);
    let mut lives: Vec<Option<Life>> = (0..lowered.n_slots).map(|_| None).collect();
    for (group, stages) in lowered.groups.iter().enumerate() {
        for key in lowered.stages[stages.clone()]
            .iter()
            .flat_map(|s| s.reads.iter().chain(&s.writes))
        {
            if let Key::Slot(slot) = *key {
                let bytes = bytes.as_ref().map_or(0, |b| b[slot as usize]);
                lives[slot as usize]
                    .get_or_insert(Life {
                        slot,
                        first: group,
                        last: group,
                        bytes,
                    })
                    .last = group;
            }
        }
    }
    let mut moved: Vec<Option<u32>> = vec![None; lowered.n_slots];
    let mut taken: Vec<Vec<Range<usize>>> = Vec::new();
    let mut lives: Vec<Life> = lives.into_iter().flatten().collect();
    lives.sort_by_key(|life| (std::cmp::Reverse(life.bytes), life.first));
    for life in lives {
        let meets = |other: &Range<usize>| life.first < other.end && other.start <= life.last;
        // The last of those that are free is the smallest.
        let at = match taken.iter().rposition(|others| !others.iter().any(meets)) {
            Some(at) => at,
            None => {
                taken.push(Vec::new());
                taken.len() - 1
            }
        };
        taken[at].push(life.first..life.last + 1);
        moved[life.slot as usize] = Some(at as u32);
    }
    // What no stage touches keeps to itself.
    let mut n_slots = taken.len() as u32;
    let moved: Vec<u32> = moved
        .into_iter()
        .map(|slot| {
            slot.unwrap_or_else(|| {
                n_slots += 1;
                n_slots - 1
            })
        })
        .collect();
    lowered.n_slots = n_slots as usize;
    for place in &mut lowered.places {
        if let Place::Slot(slot) = place {
            *slot = moved[*slot as usize];
        }
    }
    for key in lowered
        .stages
        .iter_mut()
        .flat_map(|s| s.reads.iter_mut().chain(&mut s.writes))
    {
        if let Key::Slot(slot) = key {
            *slot = moved[*slot as usize];
        }
    }
}

/// Bytes of every slot in a step; `None` on overflow.
pub(crate) fn slot_bytes(lowered: &Lowered, sizes: &Sizes) -> Option<Vec<usize>> {
    let mut bytes = vec![0usize; lowered.n_slots];
    for (place, ty) in lowered.places.iter().zip(&lowered.types) {
        if let Place::Slot(slot) = place {
            let slot = &mut bytes[*slot as usize];
            *slot = (*slot).max(ty.size_bytes(sizes)?.checked_next_multiple_of(64)?);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use glia_core::{BackendError, DType, Dim, ValueType};

    use super::*;
    use crate::arena::Chunk;
    use crate::kernel::{Kernel, Scratch, StepCx, Work};

    struct Nothing;

    impl Kernel for Nothing {
        fn work(&self, _: &StepCx<'_>) -> Result<Work, BackendError> {
            Ok(Work::each(0))
        }

        fn run(&self, _: &StepCx<'_>, _: &mut Chunk, _: &mut Scratch) -> Result<(), BackendError> {
            Ok(())
        }
    }

    /// A schedule of stages given as the values that each reads and the one that it makes; values are as wide as said.
    fn lowered(widths: &[usize], stages: &[(&[u32], u32)]) -> Lowered {
        let keys = |ids: &[u32]| ids.iter().map(|&id| Key::Slot(id)).collect();
        let stage = |&(reads, write): &(&[u32], u32)| Stage {
            kernel: Box::new(Nothing),
            instr: 0,
            reads: keys(reads),
            writes: keys(&[write]),
        };
        let stages: Vec<Stage> = stages.iter().map(stage).collect();
        Lowered {
            groups: groups(&stages),
            stages,
            places: (0..widths.len() as u32).map(Place::Slot).collect(),
            types: widths
                .iter()
                .map(|&w| ValueType::new(DType::F32, [Dim::T, w.into()]))
                .collect(),
            consts: Vec::new(),
            n_slots: widths.len(),
            fresh: Vec::new(),
        }
    }

    fn sizes(t: usize) -> Sizes {
        Sizes { t, ..Sizes::default() }
    }

    #[test]
    fn a_residual_keeps_no_wide_slot_from_the_others() {
        // Residual, norm, gate, up, gated, down, sum, and the same again.
        let widths = [16, 16, 64, 64, 64, 16, 16, 16, 64, 64, 64, 16, 16];
        let mut lowered = lowered(
            &widths,
            &[
                (&[], 0),
                (&[0], 1),
                (&[1], 2),
                (&[1], 3),
                (&[2, 3], 4),
                (&[4], 5),
                (&[0, 5], 6),
                (&[6], 7),
                (&[7], 8),
                (&[7], 9),
                (&[8, 9], 10),
                (&[10], 11),
                (&[6, 11], 12),
            ],
        );
        let before = lowered.groups.clone();
        share(&mut lowered, &sizes(10));
        // Three wide values meet, and beside them the residuals, of which two do.
        let total: usize = slot_bytes(&lowered, &sizes(16)).unwrap().iter().sum();
        assert_eq!(total, (3 * 64 + 2 * 16) * 4 * 16);
        assert_eq!(groups(&lowered.stages), before, "sharing costs no group");
    }

    #[test]
    fn values_of_one_group_are_kept_apart() {
        let mut seed = 7u32;
        let mut below = |n: usize| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 8) as usize % n
        };
        for _ in 0..50 {
            let n = 2 + below(40);
            let widths: Vec<usize> = (0..n).map(|_| 16 << below(4)).collect();
            let reads: Vec<Vec<u32>> = (0..n)
                .map(|i| (0..below(3).min(i)).map(|_| below(i) as u32).collect())
                .collect();
            let stages: Vec<(&[u32], u32)> = reads.iter().enumerate().map(|(i, r)| (&r[..], i as u32)).collect();
            let mut lowered = lowered(&widths, &stages);
            share(&mut lowered, &sizes(3));
            let life = |value: u32| {
                let touches = |s: &usize| stages[*s].1 == value || stages[*s].0.contains(&value);
                let mut groups = lowered.groups.iter().enumerate();
                let first = groups.position(|(_, g)| g.clone().any(|s| touches(&s))).unwrap();
                let last = lowered.groups.iter().rposition(|g| g.clone().any(|s| touches(&s)));
                first..last.unwrap() + 1
            };
            for a in 0..n as u32 {
                for b in 0..a {
                    let (x, y) = (life(a), life(b));
                    let apart = x.end <= y.start || y.end <= x.start;
                    let shared = lowered.places[a as usize] == lowered.places[b as usize];
                    assert!(apart || !shared, "{a} and {b} meet: {x:?} {y:?}");
                }
            }
        }
    }
}
