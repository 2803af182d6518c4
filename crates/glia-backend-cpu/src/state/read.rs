//! Reading a tile of keys or values of one head back as F32.

use glia_core::DType;
use half::f16;
use half::slice::HalfFloatSliceExt;

use super::block::SeqBlocks;
use super::layout::{BLOCK_TOKENS, LANES, PartLayout};

/// Keys of tile `tile` (one block) of a head into `out` as `[group of 16][dim][16]`, at least the first `n_tokens`.
/// False when the sequence has no such block.
///
/// # Safety
/// No other thread writes to these rows meanwhile. Rows beyond the sequence are arbitrary numbers.
pub(crate) unsafe fn read_keys(
    seq: &SeqBlocks,
    part: &PartLayout,
    head: usize,
    tile: usize,
    n_tokens: usize,
    out: &mut [f32],
) -> bool {
    let n_groups = n_tokens.div_ceil(LANES);
    // SAFETY: the caller's.
    unsafe { read(seq, part, head, tile, n_groups * LANES, out) }
}

/// Values of tile `tile` of a head into `out` as `[token][dim]`, the first `n_tokens`.
///
/// # Safety
/// As [`read_keys`].
pub(crate) unsafe fn read_values(
    seq: &SeqBlocks,
    part: &PartLayout,
    head: usize,
    tile: usize,
    n_tokens: usize,
    out: &mut [f32],
) -> bool {
    // SAFETY: the caller's.
    unsafe { read(seq, part, head, tile, n_tokens, out) }
}

/// The address of tile `tile` of a head as it is stored: 64 tokens, those beyond the sequence arbitrary.
#[cfg(target_arch = "x86_64")]
pub(crate) fn stored(seq: &SeqBlocks, part: &PartLayout, head: usize, tile: usize) -> Option<*const u8> {
    let block = seq.blocks.get(tile).filter(|_| head < part.n_heads)?;
    // SAFETY: `KvLayout` sized the block for all heads of all parts.
    Some(unsafe { block.0.add(part.offset + head * part.head_bytes()) })
}

/// # Safety
/// As [`read_keys`].
unsafe fn read(seq: &SeqBlocks, part: &PartLayout, head: usize, tile: usize, n_tokens: usize, out: &mut [f32]) -> bool {
    let n = n_tokens * part.dim;
    let (Some(block), true) = (seq.blocks.get(tile), n_tokens <= BLOCK_TOKENS && head < part.n_heads) else {
        return false;
    };
    let out = &mut out[..n];
    // SAFETY: `KvLayout` sized the block for all heads of all parts, so the head's bytes are inside; blocks and
    // parts begin at multiples of 64 and heads of F16 and F32 at multiples of their element.
    unsafe {
        let base = block.0.add(part.offset + head * part.head_bytes());
        match part.dtype {
            DType::F32 => out.copy_from_slice(std::slice::from_raw_parts(base.cast::<f32>(), n)),
            DType::F16 => std::slice::from_raw_parts(base.cast::<f16>(), n).convert_to_f32_slice(out),
            _ => {
                let bytes = std::slice::from_raw_parts(base, n / 32 * 34);
                if part.is_key {
                    keys_q8(bytes, out)
                } else {
                    values_q8(bytes, out)
                }
            }
        }
    }
    true
}

fn keys_q8(bytes: &[u8], out: &mut [f32]) {
    for (group, out) in bytes.chunks_exact(34 * LANES).zip(out.chunks_exact_mut(32 * LANES)) {
        let mut scales = [0f32; LANES];
        for (s, b) in scales.iter_mut().zip(group.as_chunks::<2>().0) {
            *s = f16::from_le_bytes(*b).to_f32();
        }
        for (q, out) in group[2 * LANES..]
            .as_chunks::<LANES>()
            .0
            .iter()
            .zip(out.as_chunks_mut::<LANES>().0)
        {
            for lane in 0..LANES {
                out[lane] = f32::from(q[lane] as i8) * scales[lane];
            }
        }
    }
}

fn values_q8(bytes: &[u8], out: &mut [f32]) {
    for (block, out) in bytes.as_chunks::<34>().0.iter().zip(out.as_chunks_mut::<32>().0) {
        let scale = f16::from_le_bytes([block[0], block[1]]).to_f32();
        for (o, &q) in out.iter_mut().zip(&block[2..]) {
            *o = f32::from(q as i8) * scale;
        }
    }
}
