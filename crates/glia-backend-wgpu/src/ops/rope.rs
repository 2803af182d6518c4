//! Rotary embedding: rotations come from a table that the host makes in F64.

use glia_core::{BackendError, Instr, Rope, RopePairing};

use super::GROUP;
use crate::program::{BufId, Lower, Trig};
use crate::shader::{Call, KernelKey, Source};

/// The table of rotations of a rope.
pub(super) fn table(cx: &mut Lower<'_>, instr: &Instr, rope: &Rope) -> Result<(BufId, usize), BackendError> {
    let mut freqs = Vec::with_capacity(2);
    for &id in &instr.inputs[2..] {
        let of = cx.const_of(id).ok_or_else(|| BackendError::InvalidInput {
            op: "rope".to_owned(),
            reason: "frequencies must be weights".to_owned(),
        })?;
        freqs.push(cx.weight(of)?.to_owned_aligned()?);
    }
    let half = freqs.first().map_or(0, glia_core::Tensor::n_elems);
    let trig = Trig {
        positions: cx.segment.resolve(instr.inputs[1]),
        freqs,
        long_from: rope.long_from,
        scale: rope.scale,
    };
    Ok((cx.trig(trig), half))
}

pub(super) fn lower(cx: &mut Lower<'_>, instr: &Instr, rope: &Rope) -> Result<(), BackendError> {
    let (trig, half) = table(cx, instr, rope)?;
    let (x, y) = (cx.value(instr.inputs[0])?, cx.value(instr.outputs[0])?);
    let ty = cx.ty(instr.outputs[0]).clone();
    let interleaved = rope.pairing == RopePairing::Interleaved;
    let key = |access: &[_]| KernelKey::new(Source::Rope, access).flag("INTERLEAVED", interleaved);
    cx.kernel(key, &[x, trig], &[y], move |info| {
        let shape = info.shape(&ty);
        let n = shape.n_elems();
        Call::new(n.div_ceil(GROUP), &[n, shape[1], shape[2], half, shape[0]])
    })
}
