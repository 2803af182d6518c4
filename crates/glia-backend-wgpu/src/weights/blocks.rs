//! From the blocks of GGUF (ggml's structs) to codes, one byte each in the order of k, and scale words.

use glia_core::{BackendError, DType};

use super::{Format, Scale, codebook};

/// Packs one row of blocks. `codes` and `scales` have the lengths that the format says, zeroed.
///
/// # Errors
/// When the decoder of the core refuses a block.
pub(super) fn pack_row(
    format: &Format,
    k: usize,
    row: &[u8],
    codes: &mut [u32],
    scales: &mut [u32],
) -> Result<(), BackendError> {
    let (block_elems, block_bytes) = format.dtype.block();
    match format.low {
        32 => bytemuck::cast_slice_mut(&mut codes[..k]).copy_from_slice(row),
        16 => bytemuck::cast_slice_mut::<u32, u8>(codes)[..row.len()].copy_from_slice(row),
        low => {
            let (first, second) = codes.split_at_mut(format.low_words(k));
            let mut levels = [0u8; 256];
            for (b, block) in row.chunks_exact(block_bytes).enumerate() {
                let levels = &mut levels[..block_elems];
                unpack(format, block, levels)?;
                let at = b * block_elems;
                plane(levels, 0, low, &mut first[at * low / 32..]);
                if format.high > 0 {
                    plane(levels, low, format.high, &mut second[at * format.high / 32..]);
                }
                scale(format, b, block, scales);
            }
        }
    }
    Ok(())
}

/// Bits `shift..shift + bits` of each level, side by side. Levels come in eights.
fn plane(levels: &[u8], shift: usize, bits: usize, out: &mut [u32]) {
    if bits == 8 {
        bytemuck::cast_slice_mut::<u32, u8>(out)[..levels.len()].copy_from_slice(levels);
        return;
    }
    for (i, levels) in levels.as_chunks::<8>().0.iter().enumerate() {
        let field = squeezed(u64::from_le_bytes(*levels) >> shift, bits);
        let at = 8 * bits * i;
        out[at / 32] |= field << (at % 32);
    }
}

/// The lowest `bits` bits of each of eight bytes, side by side: neighbours are joined three times.
fn squeezed(bytes: u64, bits: usize) -> u32 {
    let mask = |fields: usize| u64::MAX >> (64 - fields * bits);
    let mut x = bytes & (0x0101_0101_0101_0101 * mask(1));
    x = (x | x >> (8 - bits)) & (0x0001_0001_0001_0001 * mask(2));
    x = (x | x >> (16 - 2 * bits)) & (0x0000_0001_0000_0001 * mask(4));
    ((x | x >> (32 - 4 * bits)) & mask(8)) as u32
}

fn half(block: &[u8], at: usize) -> u32 {
    u32::from(block[at]) | u32::from(block[at + 1]) << 8
}

/// The scale words of block `b` of a row.
fn scale(format: &Format, b: usize, block: &[u8], scales: &mut [u32]) {
    let pair = |at: usize| half(block, at) | half(block, at + 2) << 16;
    match format.scale {
        Scale::None => {}
        Scale::Half => scales[b / 2] |= half(block, 0) << (b % 2 * 16),
        Scale::HalfMin => scales[b] = pair(0),
        Scale::Word(per) => {
            let n = format.dtype.block_elems() / per;
            codebook::scales(format.dtype, block, &mut scales[n * b..][..n]);
        }
        Scale::Super32Min => {
            let words = &mut scales[5 * b..][..5];
            words[0] = pair(0);
            for i in 0..8 {
                let (sc, min) = scale_min(&block[4..16], i);
                words[1 + i / 4] |= u32::from(sc) << (i % 4 * 8);
                words[3 + i / 4] |= u32::from(min) << (i % 4 * 8);
            }
        }
        Scale::Super16 => {
            let words = &mut scales[5 * b..][..5];
            let (d_at, q6) = if format.dtype == DType::Q6_K {
                (208, true)
            } else {
                (108, false)
            };
            words[0] = half::f16::from_bits(half(block, d_at) as u16).to_f32().to_bits();
            for i in 0..16 {
                let byte = if q6 {
                    block[192 + i]
                } else {
                    q3_scale(&block[96..108], i) as u8
                };
                words[1 + i / 4] |= u32::from(byte) << (i % 4 * 8);
            }
        }
        Scale::Super16Min => {
            let words = &mut scales[5 * b..][..5];
            words[0] = pair(80);
            for i in 0..16 {
                words[1 + i / 4] |= u32::from(block[i]) << (i % 4 * 8);
            }
        }
    }
}

/// Six bits of scale and of minimum of sub-block `i`, from the twelve bytes of Q4_K and Q5_K.
fn scale_min(s: &[u8], i: usize) -> (u8, u8) {
    if i < 4 {
        return (s[i] & 63, s[i + 4] & 63);
    }
    let low = s[i + 4];
    ((low & 15) | (s[i - 4] >> 6) << 4, (low >> 4) | (s[i] >> 6) << 4)
}

fn q3_scale(s: &[u8], i: usize) -> i8 {
    let low = (s[i % 8] >> (4 * (i / 8))) & 15;
    let high = (s[8 + i % 4] >> (2 * (i / 4))) & 3;
    (low | high << 4) as i8 - 32
}

/// The codes of a block, without their scale.
fn unpack(format: &Format, block: &[u8], out: &mut [u8]) -> Result<(), BackendError> {
    let dtype = format.dtype;
    // Nibbles of sixteen bytes: the low ones first.
    let nibbles = |bytes: &[u8], out: &mut [u8]| {
        let (low, high) = out.split_at_mut(bytes.len());
        for (i, &byte) in bytes.iter().enumerate() {
            (low[i], high[i]) = (byte & 15, byte >> 4);
        }
    };
    match dtype {
        DType::Q8_1 => out.copy_from_slice(&block[4..36]),
        DType::Q8_K => out.copy_from_slice(&block[4..260]),
        DType::IQ4_XS => out
            .chunks_exact_mut(32)
            .zip(block[8..].chunks_exact(16))
            .for_each(|(out, bytes)| nibbles(bytes, out)),
        DType::NVFP4 => out
            .chunks_exact_mut(16)
            .zip(block[4..].chunks_exact(8))
            .for_each(|(out, bytes)| nibbles(bytes, out)),
        DType::Q8_0 => out.copy_from_slice(&block[2..34]),
        DType::Q4_0 | DType::IQ4_NL => nibbles(&block[2..18], out),
        DType::Q4_1 => nibbles(&block[4..20], out),
        DType::MXFP4 => nibbles(&block[1..17], out),
        DType::Q5_0 | DType::Q5_1 => {
            let at = if dtype == DType::Q5_0 { 2 } else { 4 };
            let high = half(block, at) | half(block, at + 2) << 16;
            nibbles(&block[at + 4..at + 20], out);
            for (i, q) in out.iter_mut().enumerate() {
                *q |= (((high >> i) & 1) << 4) as u8;
            }
        }
        DType::Q4_K | DType::Q5_K => {
            let qs = if dtype == DType::Q4_K { 16 } else { 48 };
            for (j, pair) in out.chunks_exact_mut(64).enumerate() {
                nibbles(&block[qs + 32 * j..][..32], pair);
            }
            if dtype == DType::Q5_K {
                for (i, q) in out.iter_mut().enumerate() {
                    *q |= ((block[16 + i % 32] >> (i / 32)) & 1) << 4;
                }
            }
        }
        DType::Q6_K => {
            for (i, q) in out.iter_mut().enumerate() {
                let (n, quarter, l) = (i / 128, i % 128 / 32, i % 32);
                let low = block[64 * n + quarter % 2 * 32 + l] >> (quarter / 2 * 4);
                let high = block[128 + 32 * n + l] >> (2 * quarter);
                *q = (low & 15) | (high & 3) << 4;
            }
        }
        DType::Q2_K | DType::Q3_K => {
            let qs = if dtype == DType::Q2_K { 16 } else { 32 };
            for (i, q) in out.iter_mut().enumerate() {
                let (n, quarter, l) = (i / 128, i % 128 / 32, i % 32);
                *q = (block[qs + 32 * n + l] >> (2 * quarter)) & 3;
                if dtype == DType::Q3_K {
                    *q |= ((block[l] >> (4 * n + quarter)) & 1) << 2;
                }
            }
        }
        _ => {
            if let Scale::Word(per) = format.scale {
                codebook::codes(dtype, block, per, format.offset as i8, out)?;
            }
        }
    }
    Ok(())
}
