//! The header of `all-types.gguf` against the list of its contents, `all-types.json`: every metadata value, and every
//! tensor's type, shape, offset and size.

use std::path::Path;

use serde_json::Value as Json;

use super::CaseResult;
use super::tokenizers::{from_failures, read_json};
use crate::gguf::{GgufFile, TensorInfo, Value};

/// Opens the file of `dir` both ways, mapped and read, and compares all that the list holds.
pub fn run(dir: &Path) -> CaseResult {
    let mut failures = Vec::new();
    for mmap in [true, false] {
        if let Err(e) = check(dir, mmap, &mut failures) {
            failures.push(e);
        }
    }
    from_failures("quants/all-types.json", &failures)
}

fn check(dir: &Path, mmap: bool, failures: &mut Vec<String>) -> Result<(), String> {
    let list = read_json(&dir.join("all-types.json"))?;
    let file = GgufFile::open(&dir.join("all-types.gguf"), mmap).map_err(|e| e.to_string())?;
    let section = |name: &str| {
        let section = list[name].as_object().filter(|s| !s.is_empty());
        section.ok_or_else(|| format!("all-types.json: `{name}` is missing or empty"))
    };
    for (key, want) in section("metadata")? {
        match file.get(key) {
            None => failures.push(format!("{key} is missing")),
            Some(got) if !same_value(got, want["type"].as_str().unwrap_or(""), &want["value"]) => {
                failures.push(format!("{key} is {got}, not {want}"));
            }
            Some(_) => {}
        }
    }
    let tensors = section("tensors")?;
    for (name, want) in tensors {
        match file.tensor_info(name) {
            None => failures.push(format!("{name} is missing")),
            Some(info) => failures.extend(tensor_differences(info, want)),
        }
    }
    let unlisted = file.tensors().iter().filter(|t| !tensors.contains_key(&t.name));
    failures.extend(unlisted.map(|t| format!("{} is not in the list", t.name)));
    Ok(())
}

/// Whether a value has the kind and the exact contents of the list. Widths of integers are not kept by the reader; a
/// wrongly read width gives a wrong value.
fn same_value(got: Value<'_>, kind: &str, want: &Json) -> bool {
    match got {
        Value::Uint(n) => kind.starts_with('u') && want.as_u64() == Some(n),
        Value::Int(n) => kind.starts_with('i') && want.as_i64() == Some(n),
        Value::Float(x) => kind.starts_with('f') && want.as_f64().map(f64::to_bits) == Some(x.to_bits()),
        Value::Bool(b) => kind == "bool" && want.as_bool() == Some(b),
        Value::Str(s) => kind == "string" && want.as_str() == Some(s),
        Value::Array(array) => {
            let element = array.type_name();
            let Some(want) = want.as_array() else { return false };
            kind == format!("array<{element}>")
                && array.len() == want.len()
                && array.iter().count() == want.len()
                && array.iter().zip(want).all(|(got, want)| same_value(got, element, want))
        }
    }
}

/// What differs between a tensor's entry and the list, whose shape is in the order of the file: innermost first.
fn tensor_differences(info: &TensorInfo, want: &Json) -> Vec<String> {
    let number = |key: &str| want[key].as_u64();
    let shape: Vec<Option<u64>> = want["ggml_shape"]
        .as_array()
        .into_iter()
        .flatten()
        .rev()
        .map(Json::as_u64)
        .collect();
    let got: Vec<Option<u64>> = info.shape.iter().map(|&d| Some(d as u64)).collect();
    let dtype = info.dtype.map_or("unsupported", |d| d.name());
    let checks = [
        (
            "type",
            want["type"].as_str().is_some_and(|t| t.eq_ignore_ascii_case(dtype)),
        ),
        ("shape", got == shape),
        ("offset", number("data_offset") == Some(info.offset as u64)),
        ("size", number("n_bytes") == Some(info.size_bytes as u64)),
    ];
    let wrong = checks.iter().filter(|(_, same)| !same);
    wrong
        .map(|(what, _)| format!("{}: the {what} of {info:?} is not that of {want}", info.name))
        .collect()
}
