//! RMSNorm and LayerNorm.

use glia_core::{BackendError, Instr};

use super::GROUP;
use crate::program::Lower;
use crate::shader::{Call, KernelKey, Source};

pub(super) fn rms(cx: &mut Lower<'_>, instr: &Instr, eps: f32, plus_one: bool) -> Result<(), BackendError> {
    lower(cx, instr, eps, if plus_one { 1.0 } else { 0.0 }, false)
}

pub(super) fn layer(cx: &mut Lower<'_>, instr: &Instr, eps: f32) -> Result<(), BackendError> {
    lower(cx, instr, eps, 0.0, true)
}

fn lower(cx: &mut Lower<'_>, instr: &Instr, eps: f32, add: f32, centred: bool) -> Result<(), BackendError> {
    let mut reads = Vec::with_capacity(3);
    for &id in &instr.inputs {
        reads.push(cx.value(id)?);
    }
    let y = cx.value(instr.outputs[0])?;
    let ty = cx.ty(instr.outputs[0]).clone();
    let width = ty.dims.last().and_then(|d| d.as_fixed()).unwrap_or(usize::MAX);
    let (n_inputs, alone) = (reads.len(), cx.caps().alone(width.saturating_mul(4)));
    let key = |access: &[_]| {
        KernelKey::new(Source::Norm, access)
            .flag("GAIN", n_inputs > 1)
            .flag("BIAS", n_inputs > 2)
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
