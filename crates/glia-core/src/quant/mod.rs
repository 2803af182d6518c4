//! Block formats: exact decoding of every [`DType`] to f32, and encoding where the format has a plain quantiser.
//!
//! Layouts are those of the GGUF specification. The order of f32 operations is ggml's, so that results agree with it
//! bit for bit. Safe and portable; kernels of backends have decoders of their own and are tested against these.

mod blocks;
mod error;
mod fp4;
pub mod grid;
mod iq1;
mod iq2;
mod iq3;
mod iq4;
mod k;
mod legacy;
mod plain;
mod tq;

pub use error::QuantError;
pub use fp4::E2M1_DOUBLED;
pub use iq4::LEVELS as IQ4_LEVELS;

use crate::DType;

/// Decodes whole blocks to f32: `out.len()` elements from exactly the bytes that they take.
///
/// Integers and booleans are converted by value (nearest f32; a boolean byte other than 0 is 1), F64 is rounded.
///
/// # Errors
/// [`QuantError::PartialBlock`], [`QuantError::WrongLength`], [`QuantError::TooLarge`].
pub fn dequantize(dtype: DType, bytes: &[u8], out: &mut [f32]) -> Result<(), QuantError> {
    check_len(dtype, bytes.len(), out.len())?;
    match dtype {
        DType::F32 => plain::f32(bytes, out),
        DType::F16 => plain::f16(bytes, out),
        DType::BF16 => plain::bf16(bytes, out),
        DType::F64 => plain::each(bytes, out, |b| f64::from_le_bytes(b) as f32),
        DType::I8 => plain::each(bytes, out, |b| f32::from(i8::from_le_bytes(b))),
        DType::I16 => plain::each(bytes, out, |b| f32::from(i16::from_le_bytes(b))),
        DType::I32 => plain::each(bytes, out, |b| i32::from_le_bytes(b) as f32),
        DType::I64 => plain::each(bytes, out, |b| i64::from_le_bytes(b) as f32),
        DType::U8 => plain::each(bytes, out, |[b]| f32::from(b)),
        DType::Bool => plain::each(bytes, out, |[b]| f32::from(u8::from(b != 0))),
        DType::Q4_0 => blocks::decode(bytes, out, legacy::q4_0),
        DType::Q4_1 => blocks::decode(bytes, out, legacy::q4_1),
        DType::Q5_0 => blocks::decode(bytes, out, legacy::q5_0),
        DType::Q5_1 => blocks::decode(bytes, out, legacy::q5_1),
        DType::Q8_0 => blocks::decode(bytes, out, legacy::q8_0),
        DType::Q8_1 => blocks::decode(bytes, out, legacy::q8_1),
        DType::Q2_K => blocks::decode(bytes, out, k::q2_k),
        DType::Q3_K => blocks::decode(bytes, out, k::q3_k),
        DType::Q4_K => blocks::decode(bytes, out, k::q4_k),
        DType::Q5_K => blocks::decode(bytes, out, k::q5_k),
        DType::Q6_K => blocks::decode(bytes, out, k::q6_k),
        DType::Q8_K => blocks::decode(bytes, out, k::q8_k),
        DType::IQ1_S => blocks::decode(bytes, out, iq1::iq1_s),
        DType::IQ1_M => blocks::decode(bytes, out, iq1::iq1_m),
        DType::IQ2_XXS => blocks::decode(bytes, out, iq2::iq2_xxs),
        DType::IQ2_XS => blocks::decode(bytes, out, iq2::iq2_xs),
        DType::IQ2_S => blocks::decode(bytes, out, iq2::iq2_s),
        DType::IQ3_XXS => blocks::decode(bytes, out, iq3::iq3_xxs),
        DType::IQ3_S => blocks::decode(bytes, out, iq3::iq3_s),
        DType::IQ4_NL => blocks::decode(bytes, out, iq4::iq4_nl),
        DType::IQ4_XS => blocks::decode(bytes, out, iq4::iq4_xs),
        DType::TQ1_0 => blocks::decode(bytes, out, tq::tq1_0),
        DType::TQ2_0 => blocks::decode(bytes, out, tq::tq2_0),
        DType::MXFP4 => blocks::decode(bytes, out, fp4::mxfp4),
        DType::NVFP4 => blocks::decode(bytes, out, fp4::nvfp4),
    }
    Ok(())
}

/// Encodes f32 to whole blocks: `values.len()` elements into exactly the bytes that they take.
///
/// Dtypes: F32, F16 and BF16 (nearest even), Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, MXFP4, TQ1_0, TQ2_0 (ggml's reference
/// quantisers, without importance weights). As there, a scale beyond the range of f16 becomes infinite.
///
/// # Errors
/// [`QuantError::CannotEncode`], [`QuantError::NonFinite`] for blocks, and the lengths as [`dequantize`].
pub fn quantize(dtype: DType, values: &[f32], bytes: &mut [u8]) -> Result<(), QuantError> {
    if !can_quantize(dtype) {
        return Err(QuantError::CannotEncode { dtype });
    }
    check_len(dtype, bytes.len(), values.len())?;
    if dtype.is_quantized()
        && let Some(index) = values.iter().position(|v| !v.is_finite())
    {
        return Err(QuantError::NonFinite { dtype, index });
    }
    match dtype {
        DType::F32 => plain::put(values, bytes, f32::to_le_bytes),
        DType::F16 => plain::put(values, bytes, |v| half::f16::from_f32(v).to_le_bytes()),
        DType::BF16 => plain::put(values, bytes, |v| half::bf16::from_f32(v).to_le_bytes()),
        DType::Q4_0 => blocks::encode(values, bytes, legacy::to_q4_0),
        DType::Q4_1 => blocks::encode(values, bytes, legacy::to_q4_1),
        DType::Q5_0 => blocks::encode(values, bytes, legacy::to_q5_0),
        DType::Q5_1 => blocks::encode(values, bytes, legacy::to_q5_1),
        DType::Q8_0 => blocks::encode(values, bytes, legacy::to_q8_0),
        DType::MXFP4 => blocks::encode(values, bytes, fp4::to_mxfp4),
        DType::TQ1_0 => blocks::encode(values, bytes, tq::to_tq1_0),
        DType::TQ2_0 => blocks::encode(values, bytes, tq::to_tq2_0),
        _ => return Err(QuantError::CannotEncode { dtype }),
    }
    Ok(())
}

/// Whether [`quantize`] has an encoder for this dtype.
pub const fn can_quantize(dtype: DType) -> bool {
    use DType::*;
    matches!(
        dtype,
        F32 | F16 | BF16 | Q4_0 | Q4_1 | Q5_0 | Q5_1 | Q8_0 | MXFP4 | TQ1_0 | TQ2_0
    )
}

fn check_len(dtype: DType, n_bytes: usize, n_elems: usize) -> Result<(), QuantError> {
    if !n_elems.is_multiple_of(dtype.block_elems()) {
        return Err(QuantError::PartialBlock { dtype, n_elems });
    }
    let needed = dtype
        .size_bytes(n_elems)
        .ok_or(QuantError::TooLarge { dtype, n_elems })?;
    if needed != n_bytes {
        let got = n_bytes;
        return Err(QuantError::WrongLength {
            dtype,
            n_elems,
            needed,
            got,
        });
    }
    Ok(())
}
