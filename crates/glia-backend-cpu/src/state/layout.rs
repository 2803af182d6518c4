//! How a block lays out its tokens: per part (keys or values of one cache) and head.
//!
//! Keys: `[group of 16 tokens][dim][16]`, so that scores of 16 keys come from one vector per dimension. Values:
//! `[token][dim]`. Q8_0 keeps blocks of 32 dimensions of a token with one f16 scale, keys as
//! `[group][dim/32]{16 scales, [32][16] i8}`, values as `[token][dim/32]{scale, [32] i8}`.

use glia_core::{BackendError, DType, Segment, StateKind};

use crate::error::invalid;

/// Tokens of a block, and of a tile of attention.
pub(crate) const BLOCK_TOKENS: usize = 64;
/// Tokens whose keys lie side by side.
pub(crate) const LANES: usize = 16;

/// One part of one cache within a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartLayout {
    /// First byte within the block.
    pub offset: usize,
    pub dtype: DType,
    pub n_heads: usize,
    /// Elements of a head's row.
    pub dim: usize,
    /// Keys, rather than values.
    pub is_key: bool,
}

impl PartLayout {
    /// Bytes of all tokens of one head.
    pub fn head_bytes(&self) -> usize {
        let row = match self.dtype {
            DType::Q8_0 => self.dim / 32 * 34,
            DType::F16 => self.dim * 2,
            _ => self.dim * 4,
        };
        row * BLOCK_TOKENS
    }
}

/// All parts of all caches in a block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KvLayout {
    /// By state, keys then values.
    pub states: Vec<[PartLayout; 2]>,
    pub block_bytes: usize,
}

impl KvLayout {
    /// The layout of a segment's states, or `None` when one of them is of a kind or shape that blocks do not hold.
    ///
    /// # Errors
    /// [`BackendError::InvalidInput`] for a storage dtype that cannot hold the rows.
    pub fn new(segment: &Segment, kv_dtypes: [DType; 2]) -> Result<Option<KvLayout>, BackendError> {
        let mut layout = KvLayout::default();
        for state in &segment.states {
            let (StateKind::Rows, [k, v]) = (state.spec.kind, &state.spec.parts[..]) else {
                return Ok(None);
            };
            let mut parts = Vec::with_capacity(2);
            for (part, dtype) in [k, v].into_iter().zip(kv_dtypes) {
                let Some(row) = part.as_fixed() else { return Ok(None) };
                let &[n_heads, dim] = &row[..] else { return Ok(None) };
                if part.dtype != DType::F32 {
                    return Ok(None);
                }
                let whole = dtype == DType::Q8_0 && dim.is_multiple_of(32);
                if !whole && !matches!(dtype, DType::F32 | DType::F16) {
                    let reason = format!("a cache of {dtype} cannot hold rows of {row}; take f32 or f16");
                    return Err(invalid("kv_cache", reason).at(crate::error::NAME, &state.node, "kv_cache"));
                }
                let part = PartLayout {
                    offset: layout.block_bytes,
                    dtype,
                    n_heads,
                    dim,
                    is_key: parts.is_empty(),
                };
                let fits = n_heads
                    .checked_mul(dim)
                    .and_then(|n| n.checked_mul(4 * BLOCK_TOKENS))
                    .and_then(|n| n.checked_add(layout.block_bytes))
                    .and_then(|n| n.checked_next_multiple_of(64));
                if fits.is_none_or(|n| n > isize::MAX as usize) {
                    return Err(invalid("kv_cache", format!("rows of {row} are too large")));
                }
                layout.block_bytes = (layout.block_bytes + part.head_bytes() * n_heads).next_multiple_of(64);
                parts.push(part);
            }
            layout.states.push([parts[0], parts[1]]);
        }
        Ok(Some(layout))
    }
}
