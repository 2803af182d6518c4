//! Writing one token's row into a block, in the layout and dtype of the cache.

use glia_core::DType;
use half::f16;
use half::slice::HalfFloatSliceExt;

use super::block::SeqBlocks;
use super::layout::{BLOCK_TOKENS, LANES, PartLayout};
use crate::error::invalid;

/// Writes the row `[n_heads, dim]` of the token at `pos`.
///
/// # Errors
/// When the row has another size or the sequence has no room for `pos`: a broken plan.
///
/// # Safety
/// No other thread reads or writes this token's row of this part meanwhile.
pub(crate) unsafe fn append_row(
    seq: &SeqBlocks,
    part: &PartLayout,
    pos: usize,
    row: &[f32],
) -> Result<(), glia_core::BackendError> {
    let (Some(block), true) = (seq.blocks.get(pos / BLOCK_TOKENS), row.len() == part.n_heads * part.dim) else {
        return Err(invalid(
            "kv_cache",
            format!("no room for a row of {} at {pos}", row.len()),
        ));
    };
    let token = pos % BLOCK_TOKENS;
    if part.dim == 0 {
        return Ok(());
    }
    for (head, values) in row.chunks_exact(part.dim).enumerate() {
        // SAFETY: `KvLayout` sized the block for all heads of all parts; the offsets below stay in this head's bytes.
        unsafe {
            let base = block.0.add(part.offset + head * part.head_bytes());
            match (part.dtype, part.is_key) {
                (DType::Q8_0, is_key) => quantise(base, is_key, part.dim, token, values),
                (DType::F16, true) => {
                    let first = base.cast::<f16>().add(token / LANES * part.dim * LANES + token % LANES);
                    halves(values, |d, half| first.add(d * LANES).write(half));
                }
                (DType::F16, false) => {
                    let first = base.cast::<f16>().add(token * part.dim);
                    halves(values, |d, half| first.add(d).write(half));
                }
                (_, true) => {
                    let first = base.cast::<f32>().add(token / LANES * part.dim * LANES + token % LANES);
                    for (d, &v) in values.iter().enumerate() {
                        first.add(d * LANES).write(v);
                    }
                }
                (_, false) => {
                    std::ptr::copy_nonoverlapping(values.as_ptr(), base.cast::<f32>().add(token * part.dim), part.dim)
                }
            }
        }
    }
    Ok(())
}

/// Gives each value as F16, converted several at a time, with its place.
#[inline(always)]
fn halves(values: &[f32], mut put: impl FnMut(usize, f16)) {
    let mut some = [f16::ZERO; 64];
    for (i, values) in values.chunks(some.len()).enumerate() {
        let some = &mut some[..values.len()];
        some.convert_from_f32_slice(values);
        let first = i * 64;
        some.iter().enumerate().for_each(|(d, &half)| put(first + d, half));
    }
}

/// Blocks of 32 with one scale, `max|x| / 127`, as the GGUF format has them.
///
/// # Safety
/// `base` is the first byte of a head of `dim` (a multiple of 32) elements of 64 tokens.
unsafe fn quantise(base: *mut u8, is_key: bool, dim: usize, token: usize, values: &[f32]) {
    for (b, block) in values.as_chunks::<32>().0.iter().enumerate() {
        let most = block.iter().fold(0f32, |m, v| m.max(v.abs()));
        let scale = most / 127.0;
        let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
        let (scale_at, first, stride) = if is_key {
            let group = (token / LANES * (dim / 32) + b) * 34 * LANES;
            (group + token % LANES * 2, group + 2 * LANES + token % LANES, LANES)
        } else {
            let start = (token * (dim / 32) + b) * 34;
            (start, start + 2, 1)
        };
        // SAFETY: the caller's, by the layout of a head.
        unsafe {
            base.add(scale_at).cast::<f16>().write_unaligned(f16::from_f32(scale));
            for (j, &v) in block.iter().enumerate() {
                base.add(first + j * stride)
                    .cast::<i8>()
                    .write((v * inverse).round() as i8);
            }
        }
    }
}
