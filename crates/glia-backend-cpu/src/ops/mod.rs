//! Kernels of the op vocabulary, a file per family, and which kernels an instruction becomes.

mod attention;
mod cache;
mod cast;
mod elementwise;
mod embed;
mod ints;
mod matmul;
mod norm;
mod reduce;
mod rope;
mod structural;

use std::sync::Arc;

use glia_core::{BackendError, DType, Instr, NodeView, Op, Symbol, ValueKind, ValueType};

use crate::error::invalid;
use crate::pack::ActKind;
use crate::program::Builder;
use attention::{Attention, Merge, Source};
use elementwise::Func;
use structural::{Choice, Pick, Select};

/// Whether a node of these dtypes runs here.
pub(crate) fn supports(node: &NodeView<'_>) -> bool {
    let f32_only = || node.inputs.iter().all(|ty| ty.dtype == DType::F32);
    let weight = |dtype: DType| dtype.is_float() || dtype.is_quantized();
    match node.op {
        Op::MatMul => node.inputs.iter().enumerate().all(|(i, ty)| match i {
            0 => ty.dtype == DType::F32,
            1 => weight(ty.dtype),
            _ => ty.dtype == DType::F32 || (ty.dtype.is_float() && node.is_const.get(i) == Some(&true)),
        }),
        Op::RmsNorm { .. } | Op::LayerNorm { .. } => node.inputs.iter().enumerate().all(|(i, ty)| {
            ty.dtype == DType::F32 || (i > 0 && ty.dtype.is_float() && node.is_const.get(i) == Some(&true))
        }),
        Op::TokenEmbed => true,
        Op::Rope(_) => node
            .inputs
            .iter()
            .enumerate()
            .all(|(i, ty)| i == 1 || ty.dtype == DType::F32),
        Op::KvCache => f32_only() && node.inputs.iter().all(|ty| ty.rank() == 3),
        Op::Cast { to } => !to.is_quantized(),
        Op::Reshape { .. }
        | Op::Transpose { .. }
        | Op::Permute { .. }
        | Op::Slice { .. }
        | Op::Concat { .. }
        | Op::Split { .. }
        | Op::Gather { .. }
        | Op::Repeat { .. } => true,
        Op::Binary(_)
        | Op::Unary(_)
        | Op::Scale { .. }
        | Op::Clamp { .. }
        | Op::Gated(_)
        | Op::Softmax { .. }
        | Op::Sdpa(_)
        | Op::Argmax { .. }
        | Op::TopK { .. }
        | Op::Sum { .. }
        | Op::Mean { .. } => f32_only(),
        _ => false,
    }
}

/// Adds the kernels of an instruction; false when it cannot be compiled.
///
/// # Errors
/// [`BackendError`] when the instruction breaks its op's rules.
pub(crate) fn lower(b: &mut Builder<'_>, instr: &Instr) -> Result<bool, BackendError> {
    let ids: Vec<u32> = instr.inputs.iter().map(|id| id.0).collect();
    let outs: Vec<u32> = instr.outputs.iter().map(|id| id.0).collect();
    let (least, most) = instr.op.arity();
    if ids.len() < least || ids.len() > most || outs.len() != instr.op.n_outputs() {
        return Err(invalid(instr.op.kind(), "wrong number of inputs or outputs"));
    }
    let x = ids[0];
    let out = outs.first().copied().unwrap_or(x);
    match &instr.op {
        Op::MatMul => return lower_matmul(b, &ids, out),
        Op::Binary(op) => b.stage(
            elementwise::Arithmetic {
                op: *op,
                a: x,
                b: ids[1],
                out,
            },
            &ids,
            &outs,
        ),
        Op::Unary(f) => b.stage(
            elementwise::Map {
                func: Func::Unary(*f),
                x,
                out,
            },
            &ids,
            &outs,
        ),
        Op::Scale { factor } => b.stage(
            elementwise::Map {
                func: Func::Scale(*factor),
                x,
                out,
            },
            &ids,
            &outs,
        ),
        Op::Clamp { min, max } => b.stage(
            elementwise::Map {
                func: Func::Clamp(*min, *max),
                x,
                out,
            },
            &ids,
            &outs,
        ),
        Op::Gated(gate) => b.stage(
            elementwise::Gated {
                gate: *gate,
                x,
                up: ids[1],
                out,
            },
            &ids,
            &outs,
        ),
        Op::RmsNorm { eps, plus_one } => lower_norm(b, norm::Kind::Rms { plus_one: *plus_one }, *eps, &ids, out)?,
        Op::LayerNorm { eps } => lower_norm(b, norm::Kind::Layer, *eps, &ids, out)?,
        Op::Softmax { axis } => reduce(b, reduce::Kind::Softmax, *axis, x, out),
        Op::Argmax { axis } => reduce(b, reduce::Kind::Argmax, *axis, x, out),
        Op::Sum { axis, .. } => reduce(b, reduce::Kind::Sum, *axis, x, out),
        Op::Mean { axis, .. } => reduce(b, reduce::Kind::Mean, *axis, x, out),
        Op::TopK { k } => b.stage(
            reduce::TopK {
                k: *k,
                x,
                values: out,
                indices: outs[1],
            },
            &ids,
            &outs,
        ),
        Op::TokenEmbed => b.stage(
            embed::TokenEmbed {
                ids: x,
                table: ids[1],
                out,
            },
            &ids,
            &outs,
        ),
        Op::Rope(rope) => lower_rope(b, rope, &ids, out),
        Op::Sdpa(sdpa) => return lower_sdpa(b, sdpa, &ids, out),
        Op::KvCache => {
            let Some(parts) = instr.state.and_then(|s| b.cache(s)) else {
                return Ok(false);
            };
            let state = instr.state.map_or(0, |s| s.0);
            b.append_stage(
                cache::Append {
                    parts,
                    new: [x, ids[1]],
                },
                &ids,
                state,
            );
        }
        // A view is resolved before the step; one that was given memory of its own is copied into it.
        Op::Reshape { .. } => {
            if !matches!(b.kind(out), ValueKind::Alias(_)) {
                b.stage(structural::CopyBytes { x, out }, &ids, &outs);
            }
        }
        Op::Transpose { a, b: other } => {
            let mut perm: Vec<usize> = (0..b.rank(x)).collect();
            if *a >= perm.len() || *other >= perm.len() {
                return Err(invalid("transpose", "no such dimension"));
            }
            perm.swap(*a, *other);
            pick(b, "transpose", x, out, Some(perm), 0, 0);
        }
        Op::Permute { perm } => pick(b, "permute", x, out, Some(perm.clone()), 0, 0),
        Op::Slice { axis, start, .. } => slice(b, "slice", x, out, *axis, *start),
        Op::Split { axis, sizes } => {
            let mut start = 0;
            for (&out, size) in outs.iter().zip(sizes) {
                slice(b, "split", x, out, *axis, start);
                start += size;
            }
        }
        Op::Concat { axis } => b.stage(
            structural::Concat {
                axis: *axis,
                inputs: ids.clone(),
                out,
            },
            &ids,
            &outs,
        ),
        Op::Gather { axis } => {
            b.stage(
                Select {
                    op: "gather",
                    choice: Choice::Gather(ids[1]),
                    axis: *axis,
                    x,
                    out,
                },
                &ids,
                &outs,
            );
        }
        Op::Repeat { axis, n } => {
            b.stage(
                Select {
                    op: "repeat",
                    choice: Choice::Repeat(*n),
                    axis: *axis,
                    x,
                    out,
                },
                &ids,
                &outs,
            );
        }
        Op::Cast { .. } => b.stage(cast::Cast { x, out }, &ids, &outs),
        _ => return Ok(false),
    }
    Ok(true)
}

fn reduce(b: &mut Builder<'_>, kind: reduce::Kind, axis: usize, x: u32, out: u32) {
    b.stage(reduce::Reduce { kind, axis, x, out }, &[x], &[out]);
}

fn pick(b: &mut Builder<'_>, op: &'static str, x: u32, out: u32, perm: Option<Vec<usize>>, axis: usize, start: usize) {
    b.stage(
        Pick {
            op,
            x,
            out,
            perm,
            axis,
            start,
        },
        &[x],
        &[out],
    );
}

/// A piece of a quantised row begins at a whole block; the shape rule has seen to it.
fn slice(b: &mut Builder<'_>, op: &'static str, x: u32, out: u32, axis: usize, start: usize) {
    let last = axis + 1 == b.rank(x);
    let start = if last { start / b.dtype(x).block_elems() } else { start };
    pick(b, op, x, out, None, axis, start);
}

fn lower_norm(b: &mut Builder<'_>, kind: norm::Kind, eps: f32, ids: &[u32], out: u32) -> Result<(), BackendError> {
    let gain = ids.get(1).map(|&id| b.as_f32(id)).transpose()?;
    let bias = ids.get(2).map(|&id| b.as_f32(id)).transpose()?;
    b.stage(
        norm::Norm {
            kind,
            eps,
            x: ids[0],
            gain,
            bias,
            out,
        },
        ids,
        &[out],
    );
    Ok(())
}

fn lower_rope(b: &mut Builder<'_>, rope: &glia_core::Rope, ids: &[u32], out: u32) {
    let (positions, freqs) = (ids[1], ids[2]);
    let long = rope.long_from.zip(ids.get(3)).map(|(from, &id)| (id, from));
    let table = b.rope_table(positions, freqs, long, rope.scale, |out| rope::RopeTable {
        positions,
        freqs,
        long,
        scale: rope.scale,
        out,
    });
    let rotate = rope::Rotate {
        pairing: rope.pairing,
        x: ids[0],
        table,
        freqs,
        out,
    };
    b.stage(rotate, &[ids[0], table, freqs], &[out]);
}

fn lower_sdpa(b: &mut Builder<'_>, op: &glia_core::Sdpa, ids: &[u32], out: u32) -> Result<bool, BackendError> {
    let [q, k, v] = [ids[0], ids[1], ids[2]];
    let source = match (b.kind(k), b.kind(v)) {
        (ValueKind::State(s, 0), ValueKind::State(t, 1)) if s == t => match b.cache(s) {
            Some(parts) => Source::Cache(parts),
            None => return Ok(false),
        },
        (ValueKind::State(..), _) | (_, ValueKind::State(..)) => return Ok(false),
        _ if b.is_state(k) || b.is_state(v) => return Ok(false),
        _ => Source::Plain {
            k,
            v,
            per_row: b.rows_depend_on(k, Symbol::T),
        },
    };
    let mask = op.mask.then(|| ids[3]);
    let sinks = if op.sinks { ids.last().copied() } else { None };
    let q_per_row = b.rows_depend_on(q, Symbol::T);
    let attention = Arc::new(Attention {
        op: op.clone(),
        q,
        source,
        mask,
        sinks,
        out,
        q_per_row,
    });
    // Stands for the results of splits: the stages hand them over beside the values.
    let parts = b.temp(ValueType::fixed(DType::F32, &[1]));
    b.stage(attention.clone(), ids, &[out, parts]);
    let mut reads = ids.to_vec();
    reads.push(parts);
    b.stage(Merge(attention), &reads, &[out]);
    Ok(true)
}

fn lower_matmul(b: &mut Builder<'_>, ids: &[u32], out: u32) -> Result<bool, BackendError> {
    let bias = ids.get(2).map(|&id| b.as_f32(id)).transpose()?;
    if let Some(weights) = b.packed(ids[1]) {
        let x = ids[0];
        let acts = match weights.act() {
            ActKind::F32 => x,
            ActKind::Q8 | ActKind::Bf16 => b.prepared(x, &weights, |out| matmul::Prepare {
                x,
                weights: weights.clone(),
                out,
            }),
        };
        let mut reads = vec![acts];
        reads.extend(bias);
        b.stage(
            matmul::Packed {
                x,
                acts,
                weights,
                bias,
                out,
            },
            &reads,
            &[out],
        );
        return Ok(true);
    }
    let mut reads = ids[..2].to_vec();
    reads.extend(bias);
    b.stage(
        matmul::MatMul {
            x: ids[0],
            w: ids[1],
            bias,
            out,
        },
        &reads,
        &[out],
    );
    Ok(true)
}
