//! Packed products against a naive f64 product over the decoded weights.

use glia_core::quant::dequantize;
use glia_core::{DType, Precision, Tensor};

use super::{ActKind, PackedMatrix};
use crate::isa::Isa;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        self.0 >> 33
    }

    fn float(&mut self) -> f32 {
        (self.next() % 2001) as f32 / 1000.0 - 1.0
    }
}

/// Random blocks whose decoded values are finite and of ordinary size.
fn weights(dtype: DType, n: usize, k: usize, rng: &mut Random) -> (Tensor, Vec<f32>) {
    let (elems, size) = dtype.block();
    let mut bytes = Vec::new();
    let mut values = vec![0f32; n * k];
    for block in values.chunks_exact_mut(elems) {
        loop {
            let raw: Vec<u8> = (0..size).map(|_| rng.next() as u8).collect();
            let raw = if dtype == DType::F64 {
                f64::from(rng.float()).to_le_bytes().to_vec()
            } else {
                raw
            };
            dequantize(dtype, &raw, block).unwrap();
            if block.iter().all(|v| v.is_finite() && v.abs() < 100.0) {
                bytes.extend(raw);
                break;
            }
        }
    }
    (Tensor::from_bytes(dtype, [n, k], &bytes).unwrap(), values)
}

const DTYPES: &[DType] = &[
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::F64,
    DType::Q4_0,
    DType::Q4_1,
    DType::Q5_0,
    DType::Q5_1,
    DType::Q8_0,
    DType::Q2_K,
    DType::Q3_K,
    DType::Q4_K,
    DType::Q5_K,
    DType::Q6_K,
    DType::Q8_1,
    DType::Q8_K,
    DType::IQ1_S,
    DType::IQ1_M,
    DType::IQ2_XXS,
    DType::IQ2_XS,
    DType::IQ2_S,
    DType::IQ3_XXS,
    DType::IQ3_S,
    DType::IQ4_NL,
    DType::IQ4_XS,
    DType::TQ1_0,
    DType::TQ2_0,
    DType::MXFP4,
    DType::NVFP4,
];

#[test]
fn every_dtype_and_isa_agrees_with_f64() {
    let mut rng = Random(7);
    for &dtype in DTYPES {
        for (n, blocks) in [(1, 1), (15, 2), (16, 1), (17, 3), (33, 2)] {
            let k = dtype.block_elems().max(if dtype.is_quantized() { 32 } else { 37 }) * blocks;
            let (w, values) = weights(dtype, n, k, &mut rng);
            let x: Vec<f32> = (0..29 * k).map(|_| rng.float()).collect();
            let bias: Vec<f32> = (0..n).map(|_| rng.float()).collect();
            for precision in [Precision::Exact, Precision::Fast] {
                let mut first: Option<Vec<f32>> = None;
                for isa in Isa::all_available() {
                    let what = format!("{dtype} {n} x {k} {precision:?} {}", isa.name());
                    let p = PackedMatrix::pack(&w, precision, isa).unwrap();
                    let got = p.matmul(&x, 29, Some(&bias)).unwrap();
                    let mapped = PackedMatrix::keep_mapped(&w, precision, isa).unwrap();
                    assert_eq!(mapped.size_bytes(), 0, "{what}");
                    let same = mapped.matmul(&x, 29, Some(&bias)).unwrap();
                    assert_eq!(bits(&same), bits(&got), "{what}: mapped");
                    check(&values, &x, &bias, k, &got, p.act(), &what);
                    for m in (1..29).filter(|m| n < 16 || [1, 2, 3, 7, 13, 24].contains(m)) {
                        let few = p.matmul(&x[..m * k], m, Some(&bias)).unwrap();
                        assert_eq!(bits(&few), bits(&got[..m * n]), "{what}: {m} rows");
                    }
                    if p.act() != ActKind::F32 {
                        let first = first.get_or_insert_with(|| got.clone());
                        assert_eq!(bits(first), bits(&got), "{what}: other bits than plain code");
                    }
                }
            }
        }
    }
}

/// The largest and smallest codes with the largest activations: no sum of any kernel may saturate.
#[test]
fn extreme_codes_are_summed_exactly() {
    const ONE: [u8; 2] = [0x00, 0x3c];
    let dtypes = [
        (DType::Q4_0, [0, 0]),
        (DType::Q4_1, [0, 2]),
        (DType::Q5_0, [0, 0]),
        (DType::Q5_1, [0, 2]),
        (DType::Q8_0, [0, 0]),
        (DType::Q4_K, [0, 2]),
        (DType::Q5_K, [0, 2]),
        (DType::Q6_K, [208, 208]),
    ];
    for (dtype, scales) in dtypes {
        let (elems, size) = dtype.block();
        let k = elems.max(64);
        for byte in [0xff, 0x80, 0x7f, 0x00, 0x81] {
            let mut block = vec![byte; size];
            scales.iter().for_each(|&at| block[at..at + 2].copy_from_slice(&ONE));
            let w = Tensor::from_bytes(dtype, [17, k], &block.repeat(17 * k / elems)).unwrap();
            let signs: [fn(usize) -> bool; 4] = [|_| true, |_| false, |i| i % 2 == 0, |i| i % 4 < 2];
            for (s, sign) in signs.into_iter().enumerate() {
                let x: Vec<f32> = (0..5 * k).map(|i| if sign(i) { 1.0 } else { -1.0 }).collect();
                let product = |isa| {
                    let p = PackedMatrix::pack(&w, Precision::Fast, isa).unwrap();
                    bits(&p.matmul(&x, 5, None).unwrap())
                };
                let want = product(Isa::Portable);
                for isa in Isa::all_available() {
                    assert_eq!(want, product(isa), "{dtype} of {byte:#x}, signs {s}, {}", isa.name());
                }
            }
        }
    }
}

fn bits(v: &[f32]) -> Vec<u32> {
    v.iter().map(|v| v.to_bits()).collect()
}

fn check(w: &[f32], x: &[f32], bias: &[f32], k: usize, got: &[f32], act: ActKind, what: &str) {
    let n = bias.len();
    for (i, &got) in got.iter().enumerate() {
        let (row, col) = (i / n, i % n);
        let pairs = || x[row * k..][..k].iter().zip(&w[col * k..][..k]);
        let want = pairs().map(|(&x, &w)| f64::from(x) * f64::from(w)).sum::<f64>() + f64::from(bias[col]);
        let size: f64 = pairs().map(|(&x, &w)| f64::from((x * w).abs())).sum::<f64>() + 1.0;
        // Half a step of 1/127 of the largest activation (at most 1) per element, and f16 rounding of scales and minima.
        let step: f64 = pairs().map(|(_, &w)| f64::from(w.abs())).sum::<f64>() / 254.0;
        let bound = match act {
            ActKind::F32 => 1e-5 * size,
            ActKind::Q8 => 1.01 * step + 0.02 * size,
            // Half a unit in the eighth bit.
            ActKind::Bf16 => 1.01 / 256.0 * size,
        };
        assert!(
            (f64::from(got) - want).abs() <= bound,
            "{what}: [{row}, {col}] {got}, not {want} (within {bound})"
        );
    }
}

#[test]
fn bf16_weights_meet_bf16_rows_where_precision_is_fast() {
    let mut rng = Random(13);
    for isa in Isa::all_available() {
        let (w, _) = weights(DType::BF16, 35, 77, &mut rng);
        let x: Vec<f32> = (0..9 * 77).map(|_| rng.float()).collect();
        let pack = |precision, isa| PackedMatrix::pack(&w, precision, isa).unwrap();
        let fast = pack(Precision::Fast, isa);
        assert_eq!(fast.act() == ActKind::Bf16, isa.has_bf16(), "{}", isa.name());
        // Exact products are those of the instruction set without.
        let exact = pack(Precision::Exact, isa);
        assert_eq!(exact.act(), ActKind::F32);
        let plain = pack(Precision::Exact, isa.without_bf16());
        let product = |p: &PackedMatrix| bits(&p.matmul(&x, 9, None).unwrap());
        assert_eq!(product(&exact), product(&plain), "{}", isa.name());
        // Rows that are BF16 already lose nothing: what differs is the order of the sums.
        let short: Vec<f32> = x.iter().map(|v| half::bf16::from_f32(*v).to_f32()).collect();
        let [a, b] = [&fast, &exact].map(|p| p.matmul(&short, 9, None).unwrap());
        let far = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
        assert!(far < 2e-2, "{}: {far}", isa.name());
    }
}

#[test]
fn numbers_that_are_not_finite_stay_so_whatever_the_rows() {
    let mut rng = Random(17);
    let (n, k, m) = (18, 65, 13);
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let (w, _) = weights(dtype, n, k, &mut rng);
        for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX] {
            for at in [0, 31, 63, 64] {
                let mut x: Vec<f32> = (0..m * k).map(|_| rng.float()).collect();
                x[(m - 1) * k + at] = odd;
                for isa in Isa::all_available() {
                    let p = PackedMatrix::pack(&w, Precision::Fast, isa).unwrap();
                    let what = format!("{dtype} {odd} at {at}, {}", isa.name());
                    let all = p.matmul(&x, m, None).unwrap();
                    assert!(all[..(m - 1) * n].iter().all(|v| v.is_finite()), "{what}");
                    let last = &all[(m - 1) * n..];
                    assert!(
                        odd == f32::MAX || last.iter().all(|v| !v.is_finite()),
                        "{what}: {last:?}"
                    );
                    let alone = p.matmul(&x[(m - 1) * k..], 1, None).unwrap();
                    assert!(
                        alone.iter().zip(last).all(|(a, b)| same(*a, *b)),
                        "{what}: {alone:?} {last:?}"
                    );
                }
            }
        }
    }
}

/// The same number, or both none.
fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

#[test]
fn dynamic_products_do_not_depend_on_the_number_of_rows() {
    use crate::kernels::dynamic::matmul_f32;
    let mut rng = Random(3);
    for (k, n) in [(300, 19), (128, 1), (1, 64), (513, 7)] {
        let a: Vec<f32> = (0..512 * k).map(|_| rng.float()).collect();
        let b: Vec<f32> = (0..n * k).map(|_| rng.float()).collect();
        let product = |m: usize| {
            let (mut out, mut scratch) = (vec![0f32; m * n], Vec::new());
            matmul_f32(&a[..m * k], &b, (m, k, n), &mut scratch, |row, values| {
                out[row * n..][..n].copy_from_slice(values);
            });
            out
        };
        let all = product(512);
        for (row, col) in [(0, 0), (5, n - 1), (511, n / 2)] {
            let want: f64 = (0..k)
                .map(|i| f64::from(a[row * k + i]) * f64::from(b[col * k + i]))
                .sum();
            assert!((f64::from(all[row * n + col]) - want).abs() < 1e-3, "{k} x {n}");
        }
        for m in [1, 2, 7, 17, 65] {
            assert_eq!(bits(&product(m)), bits(&all[..m * n]), "{m} rows of {k} x {n}");
        }
    }
}

#[test]
fn tiles_that_share_nothing_with_others_are_the_same_alone() {
    let mut rng = Random(11);
    for dtype in [
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::Q5_0,
        DType::Q6_K,
        DType::IQ4_XS,
    ] {
        let (n, k, m) = (83, 256, 9);
        let (w, _) = weights(dtype, n, k, &mut rng);
        let x: Vec<f32> = (0..m * k).map(|_| rng.float()).collect();
        for isa in Isa::all_available() {
            let p = PackedMatrix::pack(&w, Precision::Fast, isa).unwrap();
            let all = p.matmul(&x, m, None).unwrap();
            let size = p.act_row_bytes();
            let mut acts = vec![0u8; m * size];
            p.prepare(&x, m, &mut acts);
            let mut out = vec![f32::NAN; m * n];
            for tile in (0..p.n_tiles()).rev() {
                // SAFETY: `out` holds `m` rows of `n` and is ours alone.
                unsafe { p.run(&acts, m, tile..tile + 1, None, out.as_mut_ptr(), n) };
            }
            assert_eq!(bits(&out), bits(&all), "{dtype} {}", isa.name());
        }
    }
}

#[test]
fn a_matrix_without_columns_gives_its_bias() {
    for dtype in [DType::F32, DType::Q8_0] {
        let w = Tensor::from_bytes(dtype, [3, 0], &[]).unwrap();
        let p = PackedMatrix::pack(&w, Precision::Fast, Isa::detect()).unwrap();
        assert_eq!(
            p.matmul(&[], 2, Some(&[1.0, 2.0, 3.0])).unwrap(),
            [1.0, 2.0, 3.0, 1.0, 2.0, 3.0]
        );
    }
}

#[test]
fn exact_products_have_the_bits_of_the_decoded_weights() {
    let mut rng = Random(5);
    for &dtype in DTYPES.iter().filter(|d| d.is_quantized()) {
        let (n, k, m) = (35, 512, 11);
        let (w, values) = weights(dtype, n, k, &mut rng);
        let decoded = Tensor::from_f32([n, k], &values).unwrap();
        let x: Vec<f32> = (0..m * k).map(|_| rng.float()).collect();
        for isa in Isa::all_available() {
            let product = |w: &Tensor| {
                PackedMatrix::pack(w, Precision::Exact, isa)
                    .unwrap()
                    .matmul(&x, m, None)
            };
            let (got, want) = (product(&w).unwrap(), product(&decoded).unwrap());
            assert_eq!(bits(&got), bits(&want), "{dtype} {}", isa.name());
        }
    }
}
