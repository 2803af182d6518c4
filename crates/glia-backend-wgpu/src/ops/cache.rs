//! The KV cache: rows in blocks, in the dtype that the caller chose.

use glia_core::{BackendError, DType, Instr, StateId, StateKind, ValueId};

use super::GROUP;
use crate::program::{BLOCK_TOKENS, BufId, Lower};
use crate::shader::{Call, KernelKey, Source};

/// Bytes of a cached row of `n` elements.
pub(crate) fn row_bytes(dtype: DType, n: usize) -> usize {
    match dtype {
        DType::F16 | DType::BF16 => 2 * n,
        DType::Q8_0 => n + n / 32 * 4,
        _ => 4 * n,
    }
}

/// The definitions that the kernel part `kv` needs.
pub(super) fn define(key: KernelKey, dtype: DType) -> KernelKey {
    key.flag("KV_F32", dtype == DType::F32)
        .flag("KV_F16", dtype == DType::F16)
        .flag("KV_BF16", dtype == DType::BF16)
        .flag("KV_Q8", dtype == DType::Q8_0)
}

/// Elements that are written together.
pub(super) fn unit(dtype: DType) -> usize {
    match dtype {
        DType::F16 | DType::BF16 => 2,
        DType::Q8_0 => 32,
        _ => 1,
    }
}

/// Elements of a row of one part.
pub(super) fn row_elems(cx: &Lower<'_>, state: StateId, part: usize) -> Result<usize, BackendError> {
    let ty = &cx.segment.states[state.index()].spec.parts[part];
    let n = ty.as_fixed().and_then(|s| s.checked_elems());
    let dtype = cx.kv_dtype(part);
    n.filter(|n| n.is_multiple_of(unit(dtype)))
        .ok_or_else(|| BackendError::InvalidInput {
            op: "kv_cache".to_owned(),
            reason: format!("a cache of {dtype} cannot hold rows of {ty}; take f32"),
        })
}

pub(super) fn append(cx: &mut Lower<'_>, instr: &Instr) -> Result<(), BackendError> {
    let rows = instr.state.filter(|id| {
        let spec = &cx.segment.states[id.index()].spec;
        spec.kind == StateKind::Rows && spec.parts.len() == 2
    });
    let state = rows.ok_or_else(|| BackendError::InvalidInput {
        op: "kv_cache".to_owned(),
        reason: "states of other kinds than rows of two parts are not kept here".to_owned(),
    })?;
    for (part, &id) in instr.inputs.iter().enumerate() {
        let n = row_elems(cx, state, part)?;
        let dtype = cx.kv_dtype(part);
        let (x, table, cache) = (cx.value(id)?, cx.table(), cx.kv(state, part));
        let key = |access: &[_]| define(KernelKey::new(Source::KvAppend, access), dtype);
        cx.kernel(key, &[x, table], &[cache], move |info| {
            let rows = info.sizes.t;
            Call::new((rows * n / unit(dtype)).div_ceil(GROUP), &[rows, n])
        })?;
    }
    Ok(())
}

/// All rows so far of the one sequence of the step, dense.
pub(crate) fn dense(
    cx: &mut Lower<'_>,
    state: StateId,
    part: usize,
    value: ValueId,
    to: BufId,
) -> Result<(), BackendError> {
    let n = row_elems(cx, state, part)?;
    let dtype = cx.kv_dtype(part);
    let (cache, table) = (cx.kv(state, part), cx.table());
    let ty = cx.ty(value).clone();
    let key = |access: &[_]| define(KernelKey::new(Source::KvDense, access), dtype).int("BLOCK", BLOCK_TOKENS as u32);
    cx.kernel(key, &[cache, table], &[to], move |info| {
        let all = info.n_elems(&ty);
        Call::new(all.div_ceil(GROUP), &[all, n, info.table.blocks])
    })
}
