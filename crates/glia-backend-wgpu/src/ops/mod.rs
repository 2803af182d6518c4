//! From ops to kernels: which nodes the backend runs, and how each is lowered.

pub(crate) mod attention;
pub(crate) mod cache;
mod elementwise;
pub(crate) mod heads;
mod index;
mod matmul;
mod norm;
mod reduce;
mod rope;
mod strided;
mod support;

pub(crate) use support::supports_node;

use glia_core::{BackendError, DType, Instr, Op, Segment};

use crate::gpu::NAME;
use crate::program::{HeadsItem, Item, Lower};

/// Threads of a workgroup.
pub(crate) const GROUP: usize = 64;

/// Adds the dispatches of an item.
///
/// # Errors
/// When a kernel does not compile, a weight cannot be read, or memory is out.
pub(crate) fn lower(cx: &mut Lower<'_>, item: &Item) -> Result<(), BackendError> {
    let instrs = &cx.segment.instrs;
    match item {
        Item::One(i) => one(cx, &instrs[*i]),
        Item::Products(all) => {
            let all: Vec<&Instr> = all.iter().map(|&i| &instrs[i]).collect();
            matmul::several(cx, &all)
        }
        Item::Added { instr, add } => {
            let (instr, add) = (&instrs[*instr], &instrs[*add]);
            let out = instr.outputs[0];
            let other = add.inputs[usize::from(add.inputs[0] == out)];
            match instr.op {
                Op::MatMul => matmul::added(cx, instr, other, &add.outputs),
                Op::RmsNorm { eps, plus_one } => norm::rms(cx, instr, eps, plus_one, Some((other, add.outputs[0]))),
                Op::LayerNorm { eps } => norm::layer(cx, instr, eps, Some((other, add.outputs[0]))),
                _ => one(cx, instr).and_then(|()| one(cx, add)),
            }
        }
        Item::Gate { gate, up, gated } => matmul::gated(cx, [&instrs[*gate], &instrs[*up]], &instrs[*gated]),
        Item::Heads(item) => match heads::Heads::of(cx.segment, item) {
            Some(heads) => heads::lower(cx, &heads),
            None => Ok(()),
        },
    }
}

/// Whether heads are prepared in one kernel.
pub(crate) fn takes_heads(segment: &Segment, kv_dtypes: [DType; 2], item: &HeadsItem) -> bool {
    heads::Heads::of(segment, item).is_some_and(|heads| heads::fits(segment, kv_dtypes, &heads))
}

fn one(cx: &mut Lower<'_>, instr: &Instr) -> Result<(), BackendError> {
    match &instr.op {
        Op::MatMul => matmul::lower(cx, instr),
        Op::Binary(op) => elementwise::binary(cx, instr, *op),
        Op::Unary(_) | Op::Scale { .. } | Op::Clamp { .. } => elementwise::unary(cx, instr),
        Op::Gated(gate) => elementwise::gated(cx, instr, *gate),
        Op::RmsNorm { eps, plus_one } => norm::rms(cx, instr, *eps, *plus_one, None),
        Op::LayerNorm { eps } => norm::layer(cx, instr, *eps, None),
        Op::Softmax { axis } => reduce::softmax(cx, instr, *axis),
        Op::TokenEmbed => index::embed(cx, instr),
        Op::Gather { axis } => index::gather(cx, instr, *axis),
        Op::Rope(rope) => rope::lower(cx, instr, rope),
        Op::Sdpa(sdpa) => attention::lower(cx, instr, sdpa),
        Op::KvCache => cache::append(cx, instr),
        // The value is the bytes of its input.
        Op::Reshape { .. } => Ok(()),
        Op::Transpose { .. }
        | Op::Permute { .. }
        | Op::Slice { .. }
        | Op::Concat { .. }
        | Op::Split { .. }
        | Op::Repeat { .. } => strided::lower(cx, instr),
        Op::Cast { .. } => elementwise::cast(cx, instr),
        Op::Argmax { axis } => reduce::argmax(cx, instr, *axis),
        Op::TopK { k } => reduce::top_k(cx, instr, *k),
        Op::Sum { axis, .. } => reduce::sum(cx, instr, *axis, false),
        Op::Mean { axis, .. } => reduce::sum(cx, instr, *axis, true),
        _ => Err(BackendError::UnsupportedOp {
            backend: NAME.to_owned(),
            op: instr.op.to_string(),
        }),
    }
}
