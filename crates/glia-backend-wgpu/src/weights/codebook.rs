//! Formats whose codes are found through tables or ternary digits: kept as the integers that they stand for, with the
//! scale of each group apart. Scale times integer is the product that the format defines, so nothing is lost.

use glia_core::{BackendError, DType, quant};
use half::f16;

use super::decode;

fn float(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

fn word(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([block[at], block[at + 1]])
}

fn nibble(block: &[u8], at: usize, i: usize) -> u8 {
    (block[at + i / 2] >> (4 * (i % 2))) & 15
}

/// The scale of group `i` of a block; `None` for dtypes of other forms.
fn scale(dtype: DType, block: &[u8], i: usize) -> Option<f32> {
    // The last of the four bytes that end with signs and scale of 32 elements.
    let top = |at: usize| f32::from(block[at + 3] >> 4);
    Some(match dtype {
        DType::IQ2_XXS => float(block, 0) * (0.5 + top(2 + 8 * i + 4)) * 0.25,
        DType::IQ2_XS => float(block, 0) * (0.5 + f32::from(nibble(block, 66, i))) * 0.25,
        DType::IQ2_S => float(block, 0) * (0.5 + f32::from(nibble(block, 74, i))) * 0.25,
        DType::IQ3_XXS => float(block, 0) * (0.5 + top(66 + 4 * i)) * 0.5,
        DType::IQ3_S => float(block, 0) * f32::from(1 + 2 * nibble(block, 106, i)),
        // Codes count eighths: the shift of a vector is one.
        DType::IQ1_S => float(block, 0) * f32::from(2 * ((word(block, 34 + 2 * i) >> 12) & 7) + 1) / 8.0,
        DType::IQ1_M => {
            let words: [u16; 4] = std::array::from_fn(|j| word(block, 48 + 2 * j));
            let bits = words[0] >> 12 | (words[1] >> 8) & 0xf0 | (words[2] >> 4) & 0xf00 | words[3] & 0xf000;
            let own = (words[i / 4] >> (3 * (i % 4))) & 7;
            f16::from_bits(bits).to_f32() * f32::from(2 * own + 1) / 8.0
        }
        DType::IQ4_XS => {
            let high = (word(block, 2) >> (2 * i)) & 3;
            float(block, 0) * f32::from((nibble(block, 4, i) | (high as u8) << 4) as i8 - 32)
        }
        DType::TQ1_0 => float(block, 52),
        DType::TQ2_0 => float(block, 64),
        DType::Q8_K => f32::from_le_bytes([block[0], block[1], block[2], block[3]]),
        DType::NVFP4 => return fp4_scale(block, i),
        DType::MXFP4 => {
            // E8M0, halved: the elements are doubled.
            let e = block[0];
            f32::from_bits(match e {
                0 | 1 => 0x0020_0000 << e,
                _ => u32::from(e - 1) << 23,
            })
        }
        _ => return None,
    })
}

/// UE4M3, halved: read off the block itself, with every element made the code of one.
fn fp4_scale(block: &[u8], i: usize) -> Option<f32> {
    let mut ones = [0x11; 36];
    ones[..4].copy_from_slice(&block[..4]);
    let values = decode(DType::NVFP4, &ones, 64).ok()?;
    values.get(16 * i).copied()
}

/// The scales of a block as F32 bits, one per group.
pub(super) fn scales(dtype: DType, block: &[u8], out: &mut [u32]) {
    for (i, out) in out.iter_mut().enumerate() {
        *out = scale(dtype, block, i).unwrap_or(0.0).to_bits();
    }
}

/// The integers of a block, with `add` added so that they fit their bits.
///
/// # Errors
/// When the decoder of the core refuses the block.
pub(super) fn codes(dtype: DType, block: &[u8], per: usize, add: i8, out: &mut [u8]) -> Result<(), BackendError> {
    let mut values = [0f32; 256];
    let values = &mut values[..out.len().min(256)];
    quant::dequantize(dtype, block, values).map_err(|e| BackendError::Other(Box::new(e)))?;
    for (i, (out, values)) in out.chunks_mut(per).zip(values.chunks(per)).enumerate() {
        let scale = scale(dtype, block, i).unwrap_or(0.0);
        let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
        for (out, value) in out.iter_mut().zip(values) {
            // A product of the scale and an integer, up to rounding.
            *out = ((value * inverse).round() as i8).wrapping_add(add) as u8;
        }
    }
    Ok(())
}
