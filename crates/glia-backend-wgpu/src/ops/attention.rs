//! Scaled dot-product attention, over the cache or over dense keys and values.

use glia_core::{BackendError, Instr, Sdpa, StateId, ValueId, ValueKind};

use super::{GROUP, cache};
use crate::program::{BLOCK_TOKENS, BufId, Lower};
use crate::shader::{Call, KernelKey, Source};

/// Keys and values where they lie in a cache: both parts of one state, in one dtype.
fn cached(cx: &Lower<'_>, k: ValueId, v: ValueId) -> Option<StateId> {
    match (cx.kind(k), cx.kind(v)) {
        (ValueKind::State(a, 0), ValueKind::State(b, 1)) if a == b && cx.kv_dtype(0) == cx.kv_dtype(1) => Some(*a),
        _ => None,
    }
}

pub(super) fn lower(cx: &mut Lower<'_>, instr: &Instr, sdpa: &Sdpa) -> Result<(), BackendError> {
    let [q_id, k_id, v_id] = [instr.inputs[0], instr.inputs[1], instr.inputs[2]];
    let y = cx.value(instr.outputs[0])?;
    let q = cx.value(q_id)?;
    let state = if sdpa.mask { None } else { cached(cx, k_id, v_id) };
    let mut optional = instr.inputs[3..].iter();
    let mask = if sdpa.mask { optional.next() } else { None };
    let sinks = if sdpa.sinks { optional.next() } else { None };
    // What is not there is bound to something that is, and not read.
    let sinks_buf: BufId = sinks.map_or(Ok(q), |&id| cx.value(id))?;
    let (k, v, third) = match state {
        Some(state) => (cx.kv(state, 0), cx.kv(state, 1), cx.table()),
        None => {
            let third = mask.map_or(Ok(q), |&id| cx.value(id))?;
            (cx.value(k_id)?, cx.value(v_id)?, third)
        }
    };
    let dv = cx.ty(v_id).dims.last().and_then(|d| d.as_fixed()).unwrap_or(0);
    if let Some(state) = state {
        cache::row_elems(cx, state, 0)?;
        cache::row_elems(cx, state, 1)?;
    }
    let dtype = cx.kv_dtype(0);
    let mask_planes = mask.is_some_and(|&id| cx.ty(id).rank() == 3);
    let types = [q_id, k_id].map(|id| cx.ty(id).clone());
    let (causal, has_sinks, has_mask) = (sdpa.causal, sdpa.sinks, sdpa.mask);
    let key = |access: &[_]| {
        let key = KernelKey::new(Source::Attention, access)
            .flag("CACHED", state.is_some())
            .flag("CAUSAL", causal)
            .flag("SINKS", has_sinks)
            .flag("MASK", has_mask)
            .int("DV", dv.max(1) as u32)
            .int("BLOCK", BLOCK_TOKENS as u32);
        cache::define(key, dtype)
    };
    let (scale, window, softcap) = (sdpa.scale, sdpa.window, sdpa.softcap.unwrap_or(0.0));
    cx.kernel(key, &[q, k, v, third, sinks_buf], &[y], move |info| {
        let [q, k] = types.each_ref().map(|ty| info.shape(ty));
        let (rows, heads, d) = (q[0], q[1], q[2]);
        let n = if dv == 0 { 0 } else { rows * heads };
        let table = &info.table;
        // A window beyond every key is none; one of nothing sees nothing, which the shape rule excludes.
        let window = window.map_or(0, |w| w.min(i32::MAX as usize));
        Call::new(
            n.div_ceil(GROUP),
            &[rows, heads, k[1], d, 0, window, 0, k[0], usize::from(mask_planes)],
        )
        .float(4, scale)
        .float(6, softcap)
        .word(9, table.positions as u32)
        .word(10, table.seq_of_row as u32)
        .word(11, table.seqs as u32)
        .word(12, table.blocks as u32)
    })
}
