//! RMSNorm and LayerNorm.

use glia_core::{BackendError, Instr, ValueId};

use super::GROUP;
use crate::program::Lower;
use crate::shader::{Call, KernelKey, Source};

/// What the normed rows are added to, and where the sum goes.
type Added = Option<(ValueId, ValueId)>;

pub(super) fn rms(
    cx: &mut Lower<'_>,
    instr: &Instr,
    eps: f32,
    plus_one: bool,
    added: Added,
) -> Result<(), BackendError> {
    lower(cx, instr, [eps, if plus_one { 1.0 } else { 0.0 }], false, added)
}

pub(super) fn layer(cx: &mut Lower<'_>, instr: &Instr, eps: f32, added: Added) -> Result<(), BackendError> {
    lower(cx, instr, [eps, 0.0], true, added)
}

fn lower(
    cx: &mut Lower<'_>,
    instr: &Instr,
    [eps, add]: [f32; 2],
    centred: bool,
    added: Added,
) -> Result<(), BackendError> {
    let mut reads = Vec::with_capacity(4);
    for &id in &instr.inputs {
        reads.push(cx.value(id)?);
    }
    let n_inputs = reads.len();
    let mut out = instr.outputs[0];
    if let Some((other, sum)) = added {
        reads.push(cx.value(other)?);
        out = sum;
    }
    let y = cx.value(out)?;
    let ty = cx.ty(out).clone();
    let width = ty.dims.last().and_then(|d| d.as_fixed()).unwrap_or(usize::MAX);
    let alone = cx.caps().alone(width.saturating_mul(4));
    let (n_reads, has_added) = (reads.len() as u32, added.is_some());
    let key = |access: &[_]| {
        KernelKey::new(Source::Norm, access)
            .flag("GAIN", n_inputs > 1)
            .flag("BIAS", n_inputs > 2)
            .flag("ADDED", has_added)
            .int("ADDED_AT", n_reads - 1)
            .int("OUT_AT", n_reads)
            .flag("CENTRED", centred)
            .flag("ALONE", alone)
    };
    cx.kernel(key, &reads, &[y], move |info| {
        let shape = info.shape(&ty);
        let (width, n) = (shape.last_dim(), shape.n_elems());
        let rows = n.checked_div(width).unwrap_or(0);
        let groups = if alone { rows.div_ceil(GROUP) } else { rows };
        Call::new(groups, &[rows, width]).float(2, eps).float(3, add)
    })
}
