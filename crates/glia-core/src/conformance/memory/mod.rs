//! Memory: neighbours of every output, outputs that must outlive the next step, inputs that belong to others.

mod donated;
mod middles;
mod nodes;

use middles::MIDDLES;

use super::case::{Cx, Failure, List, Outcome, guarded};
use super::data::{Guarded, Random, noise};
use super::ran::Ran;
use super::segment::{Action, Built, Check, SegmentBuilder, Setup, Slots, Wanted, attention_layer, check};
use crate::{
    Binary, CompileOptions, DType, Dim, InterpretedProgram, Op, Precision, SeqId, SeqRows, StateOptions, Step, Tensor,
    Unary, ValueId,
};

/// Guards before and behind the slots of the nodes in the middle, made before them and returned after. Rows of
/// 64 bytes fill their slots to the brim.
fn between_guards(middle: fn(&mut SegmentBuilder, ValueId) -> ValueId) -> Built {
    let mut b = SegmentBuilder::default();
    let x = b.input("x", DType::F32, [Dim::T, 16.into()]);
    let mut outputs = Vec::new();
    for i in 0..2 {
        let factor = 0.5 + i as f32;
        outputs.push(b.one(&format!("guard{i}"), Op::Scale { factor }, &[x]));
    }
    outputs.push(middle(&mut b, x));
    b.finish(&outputs, Slots::Apart)
}

pub(super) fn add(list: &mut List) {
    for &(name, middle) in MIDDLES {
        list.check("memory", format!("around_{name}"), move |cx| {
            let step = |tokens| Action::Step(vec![(1, tokens)], Wanted::All);
            let script = vec![Action::Create(1), step(0..1), step(1..4), step(4..20), step(20..21)];
            let built = behind(between_guards(middle));
            check(
                cx,
                &Check::new(format!("values around {name}"), built, Setup::default(), script),
            )
        });
    }
    list.check("memory", "outputs_outlive_later_steps", |cx| {
        let step = |seqs: &[(u64, std::ops::Range<i32>)]| Action::Step(seqs.to_vec(), Wanted::All);
        let script = vec![
            Action::Create(1),
            step(&[(1, 0..5)]),
            step(&[(1, 5..10)]),
            Action::Create(2),
            step(&[(2, 50..55)]),
            Action::Truncate(1, 3),
            step(&[(1, 60..65), (2, 55..56)]),
            Action::Free(1),
            step(&[(2, 70..75)]),
        ];
        check(
            cx,
            &Check::new("outputs that are kept", attention_layer(None), Setup::default(), script),
        )
    });
    list.check("memory", "keys_that_are_returned_stay", keys_that_are_returned_stay);
    list.check("memory", "inputs_of_programs_are_unchanged", inputs_of_programs);
    donated::add(list);
    nodes::add(list);
}

/// Puts the slot of the first value behind all others, so that guards lie on both sides of what is between them.
fn behind(built: Built) -> Built {
    use crate::{SlotId, ValueKind};
    let mut segment = (*built.segment).clone();
    let n = segment.slots.len() as u32;
    // Slot 1, the second guard, goes to the end; those behind it move up.
    let moved = |slot: u32| match slot {
        0 => 0,
        1 => n - 1,
        other => other - 1,
    };
    for def in &mut segment.values {
        if let ValueKind::Temp(slot) = &mut def.kind {
            *slot = SlotId(moved(slot.0));
        }
    }
    let slot = segment.slots.remove(1);
    segment.slots.push(slot);
    Built {
        segment: segment.into(),
        weights: built.weights,
    }
}

/// A segment that returns all keys so far: they stay what they were, whatever is appended, truncated or freed later.
fn keys_that_are_returned_stay(cx: &Cx) -> Outcome {
    let mut b = SegmentBuilder::default();
    let x = b.input("x", DType::F32, [Dim::T, 16.into()]);
    let y = b.one("y", Op::Scale { factor: 2.0 }, &[x]);
    let heads = b.one("heads", Op::Reshape { dims: vec![-1, 2, 8] }, &[y]);
    let cache = b.node("cache", Op::KvCache, &[heads, heads]);
    let built = b.finish(&[cache[0], cache[1]], Slots::Shared);
    let step = |tokens| Action::Step(vec![(1, tokens)], Wanted::All);
    let script = vec![
        Action::Create(1),
        step(0..5),
        step(5..6),
        Action::Truncate(1, 2),
        step(50..53),
        Action::RolledBack(vec![(1, 60..62)]),
        step(53..54),
        Action::Free(1),
        Action::Create(1),
        step(70..75),
    ];
    check(
        cx,
        &Check::new("keys and values that are returned", built, Setup::default(), script),
    )
}

/// Inputs and weights between guard bytes, through a compiled or interpreted program, twice.
fn inputs_of_programs(cx: &Cx) -> Outcome {
    let mut random = Random::of(&cx.name);
    let original = [
        noise(DType::F32, &[3, 32], 1.0, &mut random),
        noise(DType::F32, &[9, 32], 1.0, &mut random),
        noise(DType::Q8_0, &[9, 32], 1.0, &mut random),
    ];
    let (tensors, guards): (Vec<Tensor>, Vec<_>) = original.iter().map(Guarded::tensor).unzip();
    let mut b = SegmentBuilder::default();
    let x = b.input("x", DType::F32, [Dim::T, 32.into()]);
    let w = b.weight("w", tensors[1].clone());
    let q = b.weight("q", tensors[2].clone());
    let a = b.one("a", Op::MatMul, &[x, w]);
    let c = b.one("c", Op::MatMul, &[x, q]);
    let sum = b.one("sum", Op::Binary(Binary::Add), &[a, c]);
    let relu = b.one("relu", Op::Unary(Unary::Relu), &[x]);
    let built = b.finish(&[sum, relu], Slots::Shared);
    let (all, any) = super::segment::support(&*cx.backend, &built);
    if !any || !all {
        return Outcome::Unsupported(format!("{} does not run all of {}", cx.backend.name(), cx.name));
    }
    let ran = guarded(|| {
        let options = CompileOptions::new(&*built.weights, Precision::Exact);
        let program = match cx.backend.compile(&built.segment, &options)? {
            Some(program) => {
                cx.programs.note(&Ran::Compiled);
                program
            }
            None => {
                cx.programs.note(&Ran::Declined);
                InterpretedProgram::new(cx.backend.clone(), built.segment.clone(), &options)?
            }
        };
        let mut state = program.open(&StateOptions::default())?;
        state.create(SeqId(1))?;
        for pos in [0, 3] {
            let rows = [SeqRows {
                seq: SeqId(1),
                first_row: 0,
                n_rows: 3,
                pos,
            }];
            state.run(&Step::new(&rows, &tensors[..1], &[]))?;
            state.commit();
        }
        Ok(())
    });
    let failed = |what: String| Outcome::Failed(Failure::new("two products", "a program", what));
    if let Err(e) = ran {
        return failed(e.to_string());
    }
    for (name, (guard, original)) in ["input x", "weight w", "weight q"]
        .into_iter()
        .zip(guards.iter().zip(&original))
    {
        if let Some(damage) = guard.damage(original) {
            return failed(format!("{name}: {damage}"));
        }
    }
    Outcome::Passed
}
