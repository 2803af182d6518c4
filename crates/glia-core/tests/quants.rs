//! Block formats against gguf-py 0.19: decoded values, encoded bytes and matrix products, bit for bit. The cases are
//! those of the repository, and of the whole set when `GLIA_GOLDENS` names it.

use std::path::{Path, PathBuf};

use glia_core::DType;
use glia_core::quant::{QuantError, can_quantize, dequantize, quantize};
use safetensors::SafeTensors;

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect()
}

#[track_caller]
fn check_bits(what: &str, got: &[f32], want: &[f32]) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let same = got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan());
        assert!(same, "{what}: element {i} is {got:e}, the reference has {want:e}");
    }
}

fn check_type(name: &str, get: &dyn Fn(&str) -> Option<Vec<u8>>) {
    let dtype = DType::from_name(name).unwrap_or_else(|| panic!("unknown type {name}"));
    let need = |key: &str| get(key).unwrap_or_else(|| panic!("{name}.{key} is missing"));
    let (raw, deq) = (need("raw"), floats(&need("deq")));
    let mut out = vec![f32::NAN; deq.len()];
    dequantize(dtype, &raw, &mut out).unwrap();
    check_bits(name, &out, &deq);
    // Decoding must not depend on the alignment of the bytes.
    let shifted: Vec<u8> = [0].into_iter().chain(raw.iter().copied()).collect();
    dequantize(dtype, &shifted[1..], &mut out).unwrap();
    check_bits(name, &out, &deq);

    let (x, y) = (floats(&need("x")), floats(&need("y")));
    for (i, (row, y)) in out.chunks(x.len()).zip(&y).enumerate() {
        let terms = row.iter().zip(&x).map(|(&w, &x)| f64::from(w) * f64::from(x));
        let (sum, size) = terms.fold((0.0, 0.0), |(s, a), t| (s + t, a + f64::abs(t)));
        // One rounding to f32; the order of the f64 sum is free.
        let tolerance = f64::from(y.abs()) * 2f64.powi(-24) + size * 1e-13;
        assert!(
            (sum - f64::from(*y)).abs() <= tolerance,
            "{name}: row {i} gives {sum}, not {y}"
        );
    }

    if let Some(qin) = get("qin") {
        let (qin, qout, qdeq) = (floats(&qin), need("qout"), floats(&need("qdeq")));
        let mut bytes = vec![0u8; qout.len()];
        quantize(dtype, &qin, &mut bytes).unwrap();
        let different = bytes.iter().zip(&qout).position(|(a, b)| a != b);
        assert_eq!(different, None, "{name}: first byte that differs from the reference");
        dequantize(dtype, &bytes, &mut out).unwrap();
        check_bits(name, &out, &qdeq);
    }
}

/// Runs what the folder holds; the number of types.
fn check_folder(dir: &Path) -> usize {
    let read =
        |name: &str| std::fs::read(dir.join(name)).unwrap_or_else(|e| panic!("{}: {e}", dir.join(name).display()));
    let cases: serde_json::Value = serde_json::from_slice(&read("quants.json")).unwrap();
    let bytes = read("quants.safetensors");
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let types = cases["types"].as_object().unwrap();
    for name in types.keys() {
        check_type(name, &|key| {
            Some(tensors.tensor(&format!("{name}.{key}")).ok()?.data().to_vec())
        });
    }
    println!("{}: {} types", dir.display(), types.len());
    types.len()
}

#[test]
fn repository_set() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens/quants");
    assert_eq!(check_folder(&dir), 25);
}

#[test]
fn whole_set() {
    match std::env::var_os("GLIA_GOLDENS") {
        Some(root) => assert!(check_folder(&PathBuf::from(root).join("quants")) > 0),
        None => println!("skipped: GLIA_GOLDENS is not set"),
    }
}

#[test]
fn every_dtype_decodes_any_bytes() {
    // No byte pattern may panic; two blocks of each value, and a walk through all of them.
    for &dtype in DType::ALL {
        let (elems, bytes) = dtype.block();
        let mut out = vec![0f32; 2 * elems];
        for fill in 0..=255u8 {
            let raw: Vec<u8> = (0..2 * bytes)
                .map(|i| if fill % 2 == 0 { fill } else { (i * 37) as u8 ^ fill })
                .collect();
            dequantize(dtype, &raw, &mut out).unwrap();
        }
        dequantize(dtype, &[], &mut []).unwrap();
    }
}

#[test]
fn plain_types_convert_by_value() {
    let decode = |dtype, bytes: &[u8], n: usize| {
        let mut out = vec![f32::NAN; n];
        dequantize(dtype, bytes, &mut out).unwrap();
        out
    };
    assert_eq!(decode(DType::Bool, &[0, 1, 255], 3), [0.0, 1.0, 1.0]);
    assert_eq!(decode(DType::U8, &[0, 200], 2), [0.0, 200.0]);
    assert_eq!(decode(DType::I8, &[255, 127], 2), [-1.0, 127.0]);
    assert_eq!(decode(DType::I16, &(-300i16).to_le_bytes(), 1), [-300.0]);
    assert_eq!(decode(DType::I32, &16_777_217i32.to_le_bytes(), 1), [16_777_216.0]);
    assert_eq!(decode(DType::I64, &(-5i64).to_le_bytes(), 1), [-5.0]);
    assert_eq!(decode(DType::F64, &0.1f64.to_le_bytes(), 1), [0.1f32]);
    assert_eq!(decode(DType::F32, &1.5f32.to_le_bytes(), 1), [1.5]);
}

#[test]
fn activation_blocks_decode() {
    // Q8_1: d = 0.5, sum ignored. Q8_K: d in f32, sums ignored.
    let mut q8_1 = vec![0u8; 36];
    q8_1[..2].copy_from_slice(&half::f16::from_f32(0.5).to_le_bytes());
    q8_1[4] = 3;
    q8_1[35] = 0x80;
    let mut out = vec![0f32; 32];
    dequantize(DType::Q8_1, &q8_1, &mut out).unwrap();
    assert_eq!((out[0], out[31]), (1.5, -64.0));
    let mut q8_k = vec![7u8; 292];
    q8_k[..4].copy_from_slice(&0.25f32.to_le_bytes());
    let mut out = vec![0f32; 256];
    dequantize(DType::Q8_K, &q8_k, &mut out).unwrap();
    assert_eq!(out, [1.75; 256]);
}

#[test]
fn edges_of_encoders() {
    for &dtype in DType::ALL.iter().filter(|d| d.is_quantized() && can_quantize(**d)) {
        let (elems, n_bytes) = dtype.block();
        let encode = |values: &[f32]| {
            let (mut bytes, mut back) = (vec![0u8; n_bytes], vec![f32::NAN; elems]);
            quantize(dtype, values, &mut bytes).map(|()| {
                dequantize(dtype, &bytes, &mut back).unwrap();
                back
            })
        };
        assert!(encode(&vec![0.0; elems]).unwrap().iter().all(|&v| v == 0.0), "{dtype}");
        // Levels of one sign and scale survive: the extreme element is on the grid of each format.
        let back = encode(&vec![-4.0; elems]).unwrap();
        assert!(back.iter().all(|v| (v + 4.0).abs() < 0.01), "{dtype}: {back:?}");
        for tiny in [f32::from_bits(1), f32::MIN_POSITIVE] {
            assert!(
                encode(&vec![tiny; elems]).unwrap().iter().all(|v| v.abs() < 1e-30),
                "{dtype}"
            );
        }
        let mut bad = vec![1.0; elems];
        bad[3] = f32::NAN;
        assert_eq!(encode(&bad), Err(QuantError::NonFinite { dtype, index: 3 }));
    }
}

#[test]
fn lengths_are_checked() {
    let mut out = [0f32; 33];
    let err = dequantize(DType::Q4_0, &[0; 18], &mut out).unwrap_err();
    assert_eq!(err.to_string(), "33 elements are no whole number of q4_0 blocks of 32");
    let err = dequantize(DType::Q4_0, &[0; 17], &mut out[..32]).unwrap_err();
    assert_eq!(err.to_string(), "32 elements of q4_0 take 18 bytes, got 17");
    let err = quantize(DType::Q4_K, &[0.0; 256], &mut [0; 144]).unwrap_err();
    assert_eq!(err, QuantError::CannotEncode { dtype: DType::Q4_K });
    let err = quantize(DType::Q8_0, &[0.0; 32], &mut [0; 33]).unwrap_err();
    assert!(matches!(
        err,
        QuantError::WrongLength {
            needed: 34,
            got: 33,
            ..
        }
    ));
}
