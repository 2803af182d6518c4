//! Block formats against the values, bytes and matrix products of the reference, bit for bit, and the GGUF file that
//! holds a tensor of each type.

use std::path::Path;

use glia_core::{DType, quant};
use safetensors::SafeTensors;
use serde_json::Value;

use super::tokenizers::{from_failures, read_json};
use super::{CaseResult, Outcome};
use crate::gguf::GgufFile;

/// Runs every type of `dir` (`quants.json`, `quants.safetensors`), and `all-types.gguf` if it is there.
pub fn run(dir: &Path) -> Vec<CaseResult> {
    let loaded = read_json(&dir.join("quants.json")).and_then(|cases| {
        let path = dir.join("quants.safetensors");
        let bytes = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok((cases, bytes))
    });
    let parsed = loaded.and_then(|(cases, bytes)| match SafeTensors::deserialize(&bytes) {
        Ok(tensors) => Ok(run_all(dir, &cases, &tensors)),
        Err(e) => Err(format!("quants.safetensors: {e}")),
    });
    parsed.unwrap_or_else(|e| vec![result("quants", Outcome::Fail(e))])
}

fn result(name: &str, outcome: Outcome) -> CaseResult {
    let name = name.to_owned();
    CaseResult { name, outcome }
}

fn run_all(dir: &Path, cases: &Value, tensors: &SafeTensors<'_>) -> Vec<CaseResult> {
    let mut results = Vec::new();
    for name in cases["types"].as_object().into_iter().flat_map(|types| types.keys()) {
        let case = format!("quants/{name}");
        results.push(match DType::from_name(name) {
            None => result(&case, Outcome::Unsupported(format!("tensor type {name}"))),
            Some(dtype) => {
                let mut failures = Vec::new();
                if let Err(e) = run_type(dtype, &|key| get(tensors, name, key), &mut failures) {
                    failures.push(e);
                }
                from_failures(&case, &failures)
            }
        });
    }
    let file = dir.join("all-types.gguf");
    if file.is_file() {
        let mut failures = Vec::new();
        if let Err(e) = run_file(&file, tensors, &mut failures) {
            failures.push(e);
        }
        results.push(from_failures("quants/all-types.gguf", &failures));
        results.push(super::quants_file::run(dir));
    }
    results
}

type Get<'a> = &'a dyn Fn(&str) -> Option<Vec<u8>>;

fn get(tensors: &SafeTensors<'_>, name: &str, key: &str) -> Option<Vec<u8>> {
    Some(tensors.tensor(&format!("{name}.{key}")).ok()?.data().to_vec())
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect()
}

fn run_type(dtype: DType, get: Get<'_>, failures: &mut Vec<String>) -> Result<(), String> {
    let need = |key: &str| get(key).ok_or_else(|| format!("`{key}` is missing"));
    let decoded = decode(dtype, &need("raw")?, &floats(&need("deq")?), "decoding", failures)?;
    if let (Some(x), Some(y)) = (get("x"), get("y")) {
        let (x, y) = (floats(&x), floats(&y));
        for (i, (row, want)) in decoded.chunks(x.len().max(1)).zip(&y).enumerate() {
            let terms = row.iter().zip(&x).map(|(&w, &x)| f64::from(w) * f64::from(x));
            let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), t| (sum + t, size + f64::abs(t)));
            // One rounding to f32; the order of the f64 sum is free.
            let tolerance = f64::from(want.abs()) * 2f64.powi(-24) + size * 1e-13;
            if (sum - f64::from(*want)).abs() > tolerance {
                failures.push(format!("row {i} times x is {sum:e}, not {want:e}"));
            }
        }
    }
    let Some(values) = get("qin") else { return Ok(()) };
    if !quant::can_quantize(dtype) {
        failures.push("there is no encoder".to_owned());
        return Ok(());
    }
    let want = need("qout")?;
    let mut bytes = vec![0; want.len()];
    quant::quantize(dtype, &floats(&values), &mut bytes).map_err(|e| e.to_string())?;
    if let Some(i) = bytes.iter().zip(&want).position(|(a, b)| a != b) {
        failures.push(format!("encoding: byte {i} is {:#04x}, not {:#04x}", bytes[i], want[i]));
    }
    decode(
        dtype,
        &want,
        &floats(&need("qdeq")?),
        "decoding of encoded bytes",
        failures,
    )?;
    Ok(())
}

fn decode(dtype: DType, raw: &[u8], want: &[f32], what: &str, failures: &mut Vec<String>) -> Result<Vec<f32>, String> {
    let mut out = vec![f32::NAN; want.len()];
    quant::dequantize(dtype, raw, &mut out).map_err(|e| e.to_string())?;
    let differs = |(a, b): (&f32, &f32)| a.to_bits() != b.to_bits() && !(a.is_nan() && b.is_nan());
    if let Some(i) = out.iter().zip(want).position(differs) {
        failures.push(format!("{what}: element {i} is {:e}, not {:e}", out[i], want[i]));
    }
    Ok(out)
}

/// Tensors `w.TYPE` of the file hold the bytes `TYPE.raw`, with the rows of `TYPE.deq`.
fn run_file(path: &Path, tensors: &SafeTensors<'_>, failures: &mut Vec<String>) -> Result<(), String> {
    let file = GgufFile::open(path, true).map_err(|e| e.to_string())?;
    for info in file.tensors() {
        let Some(name) = info.name.strip_prefix("w.") else {
            continue;
        };
        let (Ok(raw), Ok(deq)) = (
            tensors.tensor(&format!("{name}.raw")),
            tensors.tensor(&format!("{name}.deq")),
        ) else {
            continue;
        };
        match file.tensor(&info.name) {
            Err(e) => failures.push(e.to_string()),
            Ok(tensor) => {
                let same = tensor.bytes().is_ok_and(|b| b == raw.data());
                if !same || tensor.shape().dims() != deq.shape() || !tensor.dtype().name().eq_ignore_ascii_case(name) {
                    failures.push(format!("{} is {tensor:?}, with other bytes, shape or dtype", info.name));
                }
            }
        }
    }
    Ok(())
}
