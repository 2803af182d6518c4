//! How large weights may be, from their scales: kernels that multiply F16 take no matrix with weights beyond it.

use glia_core::DType;
use half::{bf16, f16};

use super::{Format, Scale};

/// Whether no finite weight of packed rows is larger than F16 can hold. An upper bound decides: scales times the largest
/// code, which is far below the limit in any model.
pub(super) fn fits_f16(format: &Format, codes: &[u32], scales: &[u32]) -> bool {
    let limit = f16::MAX.to_f32();
    let beyond = |bound: f32| bound.is_finite() && bound.abs() > limit;
    let halves = |word: u32| [word as u16, (word >> 16) as u16];
    // Codes are below 2^bits; the tables reach 127.
    let most = if format.low == 8 || matches!(format.dtype, DType::IQ4_NL | DType::IQ4_XS) {
        128.0
    } else {
        f32::from(1u16 << (format.low + format.high).min(15))
    };
    // `d` and `dmin` with the largest scales and minima of sub-blocks.
    let pair = |word: u32, scale: f32, min: f32| {
        let [d, m] = halves(word).map(|bits| f16::from_bits(bits).to_f32().abs());
        !beyond(d * scale * most + m * min)
    };
    let supers = || scales.chunks_exact(5).map(|words| words[0]);
    match format.scale {
        Scale::None => match format.dtype {
            DType::BF16 => {
                let fits = |bits| !beyond(bf16::from_bits(bits).to_f32());
                codes.iter().all(|&word| halves(word).into_iter().all(fits))
            }
            DType::F32 => codes.iter().all(|&bits| !beyond(f32::from_bits(bits))),
            _ => true,
        },
        Scale::Half => {
            let fits = |bits| !beyond(f16::from_bits(bits).to_f32() * most);
            scales.iter().all(|&word| halves(word).into_iter().all(fits))
        }
        Scale::HalfMin => scales.iter().all(|&word| pair(word, 1.0, 1.0)),
        Scale::Word(_) => scales.iter().all(|&bits| !beyond(f32::from_bits(bits) * most)),
        Scale::Super32Min => supers().all(|word| pair(word, 63.0, 63.0)),
        Scale::Super16 => supers().all(|bits| !beyond(f32::from_bits(bits) * 128.0 * most)),
        Scale::Super16Min => supers().all(|word| pair(word, 15.0, 15.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(dtype: DType, k: usize, row: &[u8]) -> bool {
        let format = Format::of(dtype).unwrap();
        let (mut codes, mut scales) = (vec![0; format.code_words(k)], vec![0; format.scale_words(k)]);
        super::super::blocks::pack_row(&format, k, row, &mut codes, &mut scales).unwrap();
        fits_f16(&format, &codes, &scales)
    }

    fn encoded(dtype: DType, values: &[f32]) -> bool {
        let mut row = vec![0; dtype.size_bytes(values.len()).unwrap()];
        glia_core::quant::quantize(dtype, values, &mut row).unwrap();
        packed(dtype, values.len(), &row)
    }

    #[test]
    fn only_weights_beyond_f16_do_not_fit() {
        let values = |top: f32| -> Vec<f32> { (0..256).map(|i| top * (i as f32 / 255.0)).collect() };
        for dtype in [
            DType::F32,
            DType::BF16,
            DType::Q8_0,
            DType::Q4_0,
            DType::Q4_1,
            DType::Q5_0,
            DType::Q5_1,
        ] {
            assert!(encoded(dtype, &values(10_000.0)), "{dtype}");
            assert!(!encoded(dtype, &values(300_000.0)), "{dtype}");
        }
        assert!(encoded(DType::F16, &values(60_000.0)));
        assert!(encoded(DType::F32, &[f32::INFINITY, f32::NAN, 1.0, 0.0]));
        // Where the scale of a block lies.
        for (dtype, at) in [
            (DType::Q2_K, 80),
            (DType::Q3_K, 108),
            (DType::Q4_K, 0),
            (DType::Q5_K, 2),
            (DType::Q6_K, 208),
        ] {
            let block = |d: f32| {
                let mut block = vec![0; dtype.block().1];
                block[at..at + 2].copy_from_slice(&f16::from_f32(d).to_le_bytes());
                block
            };
            assert!(packed(dtype, 256, &block(1.0)), "{dtype}");
            assert!(!packed(dtype, 256, &block(60_000.0)), "{dtype}");
        }
    }
}
