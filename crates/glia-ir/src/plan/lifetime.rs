//! Lifetimes: after which instruction a value has no reader left. A view keeps its source alive.

use glia_core::{Segment, ValueId, ValueKind};

/// Index of the instruction that makes a value and of the last one that reads it or a view of it; `None` for what is
/// never freed: inputs, weights, states, and what is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// The instruction that makes it.
    pub made: usize,
    /// The last that reads it; the maker itself when nobody does.
    pub last: usize,
}

/// The lifetime of every value that has one.
pub(super) fn lifetimes(segment: &Segment) -> Vec<Option<Lifetime>> {
    let mut all: Vec<Option<Lifetime>> = vec![None; segment.values.len()];
    let root = |id: ValueId| segment.resolve(id).index();
    for (i, instr) in segment.instrs.iter().enumerate() {
        for &id in &instr.outputs {
            if matches!(segment.value(id).kind, ValueKind::Temp(_) | ValueKind::Dynamic) {
                all[id.index()] = Some(Lifetime { made: i, last: i });
            }
        }
        // Readers of a view read its source.
        for &id in instr.inputs.iter().chain(&instr.outputs) {
            if let Some(life) = &mut all[root(id)] {
                life.last = life.last.max(i);
            }
        }
    }
    for &id in &segment.outputs {
        all[root(id)] = None;
    }
    for i in 0..all.len() {
        if let ValueKind::Alias(_) = segment.values[i].kind {
            all[i] = all[root(ValueId(i as u32))];
        }
    }
    all
}

/// Writes the values that end with each instruction into its `frees`.
pub(super) fn fill_frees(segment: &mut Segment) {
    for (i, life) in lifetimes(segment).into_iter().enumerate() {
        if let Some(life) = life {
            segment.instrs[life.last].frees.push(ValueId(i as u32));
        }
    }
}
