//! On random graphs, a plan never frees or overwrites a value that is still to be read or returned.

mod common;

use std::sync::Arc;

use glia_core::testing::NullBackend;
use glia_core::{Segment, ValueId, ValueKind};
use glia_ir::{Plan, PlanError, PlanLimits};
use proptest::prelude::*;

/// Walks the schedule as a machine with the planned memory would, and finds each operand where the plan put it.
fn check(segment: &Segment) {
    let mut slots: Vec<Option<ValueId>> = vec![None; segment.slots.len()];
    let mut alive = vec![false; segment.values.len()];
    for (i, def) in segment.values.iter().enumerate() {
        alive[i] = matches!(def.kind, ValueKind::Input(_) | ValueKind::Const(_));
    }
    let readable = |id: ValueId, slots: &[Option<ValueId>], alive: &[bool]| {
        let root = segment.resolve(id);
        assert!(
            alive[id.index()] && alive[root.index()],
            "`{}` is not alive",
            segment.value(id).name
        );
        if let ValueKind::Temp(slot) = segment.value(root).kind {
            assert_eq!(
                slots[slot.index()],
                Some(root),
                "`{}` was overwritten",
                segment.value(id).name
            );
        }
    };
    for instr in &segment.instrs {
        for &id in &instr.outputs {
            if let ValueKind::Temp(slot) = segment.value(id).kind {
                assert_eq!(
                    slots[slot.index()],
                    None,
                    "`{}` lands on a live value",
                    segment.value(id).name
                );
                assert!(segment.slots[slot.index()].users.contains(&segment.value(id).ty));
                slots[slot.index()] = Some(id);
            }
            alive[id.index()] = true;
        }
        // After the outputs have landed: an instruction must not write where it reads.
        instr.inputs.iter().for_each(|&id| readable(id, &slots, &alive));
        for &id in &instr.frees {
            assert!(std::mem::replace(&mut alive[id.index()], false), "freed twice");
            match segment.value(id).kind {
                ValueKind::Temp(slot) => slots[slot.index()] = None,
                ValueKind::Input(_) | ValueKind::Const(_) | ValueKind::State(..) => panic!("freed `{id}`"),
                ValueKind::Dynamic | ValueKind::Alias(_) => {}
            }
        }
    }
    segment.outputs.iter().for_each(|&id| readable(id, &slots, &alive));
    // What is not returned has been freed: nothing lies around.
    let returned: Vec<ValueId> = segment.outputs.iter().map(|&id| segment.resolve(id)).collect();
    for (slot, held) in slots.iter().enumerate() {
        assert!(
            held.is_none_or(|id| returned.contains(&id)),
            "slot {slot} is never freed"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn no_value_is_lost_before_its_last_reader(recipe in common::recipes(24)) {
        let graph = Arc::new(common::build(&recipe));
        match Plan::new(graph, &[Arc::new(NullBackend::new())], PlanLimits::new(16, 64)) {
            Ok(plan) => plan.regions.iter().for_each(|r| check(&r.segment)),
            // Repeats of repeats.
            Err(e) => prop_assert!(matches!(e, PlanError::TooLarge { .. }), "{e}"),
        }
    }
}
