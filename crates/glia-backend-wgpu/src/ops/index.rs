//! Lookups: rows of a table by id, elements of an axis by index.

use glia_core::{BackendError, Instr};

use super::GROUP;
use super::matmul::weight_words;
use crate::program::{Bind, Lower};
use crate::shader::{Access, Call, KernelKey, Source};

pub(super) fn gather(cx: &mut Lower<'_>, instr: &Instr, axis: usize) -> Result<(), BackendError> {
    let (x, picked) = (cx.value(instr.inputs[0])?, cx.value(instr.inputs[1])?);
    let y = cx.value(instr.outputs[0])?;
    let types = [instr.inputs[0], instr.outputs[0]].map(|id| cx.ty(id).clone());
    if let Some(limit) = types[0].dims[axis].as_fixed() {
        cx.limit(instr.inputs[1], limit, "gather", "the dimension has");
    }
    cx.kernel(
        |access| KernelKey::new(Source::Gather, access),
        &[x, picked],
        &[y],
        move |info| {
            let [x, y] = types.each_ref().map(|ty| info.shape(ty));
            let n = y.n_elems();
            let inner: usize = y[axis + 1..].iter().product();
            Call::new(n.div_ceil(GROUP), &[n, y[axis], inner, x[axis]])
        },
    )
}

pub(super) fn embed(cx: &mut Lower<'_>, instr: &Instr) -> Result<(), BackendError> {
    let (ids, table) = (instr.inputs[0], instr.inputs[1]);
    let (vocab, width) = match cx.ty(table).as_fixed() {
        Some(shape) => (shape[0], shape[1]),
        None => {
            // A table that is computed is as any other tensor.
            return gather(cx, &flipped(instr), 0);
        }
    };
    cx.limit(ids, vocab, "token_embed", "the vocabulary size is");
    let Some(id) = cx.const_of(table) else {
        return gather(cx, &flipped(instr), 0);
    };
    let matrix = cx.matrix(&[id])?;
    let (ids, y) = (cx.value(ids)?, cx.value(instr.outputs[0])?);
    let ty = cx.ty(instr.outputs[0]).clone();
    for part in matrix.parts.clone() {
        let (format, ty) = (matrix.format, ty.clone());
        let access = [Access::Read, Access::Read, Access::Write];
        let key = format.define(KernelKey::new(Source::Embed, &access).flag("VEC4", false));
        let binds = [Bind::from(part.buf), ids.into(), y.into()];
        cx.push(key, &binds, move |info| {
            let n = info.shape(&ty)[0];
            let chunks = width.div_ceil(8);
            let call = Call::new(
                (n * chunks).div_ceil(GROUP),
                &[n, width, chunks, part.first, part.n_rows],
            );
            weight_words(call, &format, width, part.scales_at)
        })?;
    }
    Ok(())
}

/// The lookup as a gather: table, then ids.
fn flipped(instr: &Instr) -> Instr {
    let mut instr = instr.clone();
    instr.inputs.swap(0, 1);
    instr
}
