//! Decoded runs against the definition of each type, bit by bit: any bytes, from the file's rows and interleaved.

use glia_core::DType;
use glia_core::quant::dequantize;

use super::{Source, block_bytes, decode, kind, pack};
use crate::isa::Isa;
use crate::kernels::runs::{Run, columns};
use crate::simd::Level;

fn coded() -> impl Iterator<Item = DType> {
    DType::ALL.iter().copied().filter(|&d| kind(d).is_some())
}

/// Any bytes; every third block of a row has bytes that are mostly 0 or 255, so that scales are odd numbers.
fn rows(dtype: DType, n_rows: usize, n_blocks: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64 ^ dtype as u64;
    let mut next = || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) as u8
    };
    let size = dtype.block_bytes();
    let byte = |i: usize| {
        let (any, which) = (next(), next());
        match (i / size % 3, which % 8) {
            (2, 0..3) => 0,
            (2, 3..6) => 255,
            _ => any,
        }
    };
    (0..n_rows * n_blocks * size).map(byte).collect()
}

#[test]
fn all_types_of_blocks_are_coded_or_packed() {
    for &dtype in DType::ALL.iter().filter(|d| d.is_quantized()) {
        let packed = crate::pack::Format::of(dtype, glia_core::Precision::Fast).is_some();
        assert_ne!(packed, kind(dtype).is_some(), "{dtype}");
    }
    assert!(coded().count() >= 17);
}

#[test]
fn runs_have_the_bits_of_the_definition() {
    for dtype in coded() {
        let (elems, size) = dtype.block();
        let n_blocks = 6 * 256 / elems;
        let (k, row_bytes) = (n_blocks * elems, n_blocks * size);
        for n_rows in [1, 7, 16] {
            let raw = rows(dtype, n_rows, n_blocks);
            let mut want = vec![0f32; n_rows * k];
            dequantize(dtype, &raw, &mut want).unwrap();
            let mut tile = vec![0u8; n_blocks * block_bytes(dtype)];
            pack(dtype, &raw, row_bytes, &mut tile);
            for isa in Isa::all_available() {
                for source in [Source::Rows(&raw, row_bytes), Source::Packed(&tile)] {
                    if block_bytes(dtype) == 0 && matches!(source, Source::Packed(_)) {
                        continue;
                    }
                    for from in (0..k).step_by(256) {
                        let mut runs = [Run::ZERO; 8];
                        decode(Level::of(isa), dtype, source, from / 32..from / 32 + 8, &mut runs);
                        let mut got = [0f32; 256 * 16];
                        columns(Level::of(isa), kind(dtype).unwrap(), &runs, &mut got);
                        for (i, got) in got.iter().enumerate() {
                            let (column, lane) = (i / 16, i % 16);
                            let want = if lane < n_rows {
                                want[lane * k + from + column]
                            } else {
                                0.0
                            };
                            let alike = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
                            let absent = lane >= n_rows && *got == 0.0;
                            assert!(
                                alike || absent,
                                "{dtype} {} [{lane}, {}]: {got}, not {want}",
                                isa.name(),
                                from + column
                            );
                        }
                    }
                }
            }
        }
    }
}
