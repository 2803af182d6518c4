//! Products of numbers that no model should have: scales and activations that are infinite, not numbers, subnormal or at
//! the end of their range. A row has the same bits beside any others, and what is not finite does not vanish.

use glia_core::quant::dequantize;
use glia_core::{DType, Precision, Tensor};

use super::PackedMatrix;
use crate::isa::Isa;

/// Rows of activations: more than the widest kernel takes at once.
const M: usize = 29;

fn dtypes() -> impl Iterator<Item = DType> {
    DType::ALL.iter().copied().filter(|d| d.is_float() || d.is_quantized())
}

fn bytes(seed: &mut u64, n: usize) -> Vec<u8> {
    let next = || {
        *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (*seed >> 40) as u8
    };
    std::iter::repeat_with(next).take(n).collect()
}

/// Any bytes: about one scale in thirty is no number, and as many are subnormal.
fn weight(dtype: DType, (n, k): (usize, usize), seed: &mut u64) -> (Tensor, Vec<f32>) {
    let mut raw = bytes(seed, dtype.size_bytes(n * k).unwrap());
    // The first row is of one pattern: all scales not a number in most formats, the largest codes in the others.
    let row = raw.len() / n;
    raw[..row].fill(0xff);
    let mut values = vec![0f32; n * k];
    dequantize(dtype, &raw, &mut values).unwrap();
    (Tensor::from_bytes(dtype, [n, k], &raw).unwrap(), values)
}

fn activations(k: usize, seed: &mut u64) -> Vec<f32> {
    let noise = bytes(seed, M * k);
    let mut x: Vec<f32> = noise.iter().map(|&b| f32::from(b) / 128.0 - 1.0).collect();
    let odd = [
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::MAX,
        -f32::MAX,
        f32::MIN_POSITIVE,
        1e-42,
        -0.0,
    ];
    for (row, odd) in odd.into_iter().enumerate() {
        // Every third row has one, the last of them in all places.
        x[row * 3 * k + k / 2] = odd;
    }
    x[27 * k..28 * k].fill(1e-42);
    x[28 * k..].fill(0.0);
    x
}

/// Bits, all numbers that are none being one: which of two a sum keeps is the compiler's choice.
fn bits(values: &[f32]) -> Vec<u32> {
    let of = |v: &f32| if v.is_nan() { f32::NAN.to_bits() } else { v.to_bits() };
    values.iter().map(of).collect()
}

#[test]
fn what_is_not_finite_neither_vanishes_nor_reaches_other_rows() {
    let mut seed = 9;
    for dtype in dtypes() {
        let (n, k) = (33, dtype.block_elems().max(32) * 2);
        let (w, values) = weight(dtype, (n, k), &mut seed);
        let x = activations(k, &mut seed);
        let is_finite = |values: &[f32]| values.iter().all(|v| v.is_finite());
        // With scales as large as F32 goes, a code alone may be beyond what a sum of several is.
        let has_large_scales = matches!(dtype, DType::MXFP4 | DType::Q8_K);
        for precision in [Precision::Exact, Precision::Fast] {
            for isa in Isa::all_available() {
                let what = format!("{dtype} {precision:?} {}", isa.name());
                let packed = PackedMatrix::pack(&w, precision, isa).unwrap();
                let mapped = PackedMatrix::keep_mapped(&w, precision, isa).unwrap();
                let all = packed.matmul(&x, M, None).unwrap();
                assert_eq!(bits(&mapped.matmul(&x, M, None).unwrap()), bits(&all), "{what}: mapped");
                for m in [1, 2, 3, 5, 7, 12, 13, 23, 24, 25] {
                    for first in [0, M - m] {
                        let some = packed.matmul(&x[first * k..(first + m) * k], m, None).unwrap();
                        let want = &all[first * n..(first + m) * n];
                        assert_eq!(bits(&some), bits(want), "{what}: {m} rows from {first}");
                    }
                }
                for (i, got) in all.iter().enumerate() {
                    let (row, col) = (i / n, i % n);
                    let (x, w) = (&x[row * k..][..k], &values[col * k..][..k]);
                    let largest = |values: &[f32]| values.iter().fold(0f64, |m, v| m.max(f64::from(v.abs())));
                    let overflows = has_large_scales && w.iter().any(|v| v.is_infinite());
                    if !is_finite(x) || w.iter().any(|v| v.is_nan()) || !is_finite(w) && !overflows {
                        assert!(!got.is_finite(), "{what}: [{row}, {col}] is {got}");
                    } else if is_finite(w) && largest(x) * largest(w) * (k as f64) < 1e38 {
                        assert!(got.is_finite(), "{what}: [{row}, {col}] is {got}");
                    }
                }
            }
        }
    }
}
