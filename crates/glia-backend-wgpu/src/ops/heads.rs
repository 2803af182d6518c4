//! The heads of an attention prepared in one dispatch: queries, keys and values normed and rotated, keys and values
//! written to the cache.

use glia_core::{BackendError, DType, Instr, Op, Rope, Segment, StateId, ValueId};

use crate::program::{Chain, HeadsItem, Lower};

/// RMSNorm over each head.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct HeadNorm {
    /// A weight of the head's size.
    pub gain: Option<ValueId>,
    pub eps: f32,
    pub plus_one: bool,
}

/// What becomes of one of q, k and v.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Head<'a> {
    /// `[T, heads, size]`, or a value whose bytes are that.
    pub x: ValueId,
    pub n_heads: usize,
    pub size: usize,
    pub norm: Option<HeadNorm>,
    /// After the norm; the instruction names positions and frequencies.
    pub rope: Option<(&'a Rope, &'a Instr)>,
}

/// The heads of one attention.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Heads<'a> {
    /// Changed where it lies.
    pub q: Head<'a>,
    /// The prepared queries: they take the memory of `q.x`, which nothing else reads.
    pub q_out: ValueId,
    pub k: Head<'a>,
    pub v: Head<'a>,
    /// The cache that takes keys and values.
    pub state: StateId,
}

impl<'a> Heads<'a> {
    /// The heads of a group of instructions; `None` when their types are not what this kernel is for.
    pub fn of(segment: &'a Segment, item: &HeadsItem) -> Option<Heads<'a>> {
        let cache = &segment.instrs[item.cache];
        let no_chain = |x: ValueId| Chain {
            x,
            norm: None,
            rope: None,
            out: x,
        };
        Some(Heads {
            q: Head::of(segment, &item.q)?,
            q_out: item.q.out,
            k: Head::of(segment, &item.k)?,
            v: Head::of(segment, &no_chain(cache.inputs[1]))?,
            state: cache.state?,
        })
    }
}

impl<'a> Head<'a> {
    fn of(segment: &'a Segment, chain: &Chain) -> Option<Head<'a>> {
        let [_, n_heads, size] = segment.value(chain.x).ty.dims[..] else {
            return None;
        };
        let norm = match chain.norm.map(|i| &segment.instrs[i]) {
            None => None,
            Some(instr) => match instr.op {
                Op::RmsNorm { eps, plus_one } => Some(HeadNorm {
                    gain: instr.inputs.get(1).copied(),
                    eps,
                    plus_one,
                }),
                _ => return None,
            },
        };
        let rope = match chain.rope.map(|i| &segment.instrs[i]) {
            None => None,
            Some(instr) => match &instr.op {
                Op::Rope(rope) => Some((rope, instr)),
                _ => return None,
            },
        };
        Some(Head {
            x: chain.x,
            n_heads: n_heads.as_fixed()?,
            size: size.as_fixed()?,
            norm,
            rope,
        })
    }
}

/// Whether [`lower`] takes these: one table of rotations for all, heads of whole units of the cache.
pub(crate) fn fits(segment: &Segment, kv_dtypes: [DType; 2], heads: &Heads<'_>) -> bool {
    let _ = (segment, kv_dtypes, heads);
    false
}

/// Adds the dispatch.
///
/// # Errors
/// When a weight cannot be read, or the kernel does not compile.
pub(crate) fn lower(cx: &mut Lower<'_>, heads: &Heads<'_>) -> Result<(), BackendError> {
    let _ = (cx, heads);
    Ok(())
}
