//! Runs a translated case on a list of backends, through the executor, and compares.

use std::sync::Arc;

use glia_core::{Backend, DType, Precision, Tensor};
use glia_ir::{ExecConfig, GraphExecutor, NonFinite};

use crate::array::Array;
use crate::case::{Case, Value};
use crate::translate::Translated;

/// Relative and absolute tolerance of ONNX's own runner.
const RTOL: f64 = 1e-3;
const ATOL: f64 = 1e-7;

/// For half floats, two of their steps (2^-10 and 2^-7 of the value each): the result is rounded once, and what lies
/// between, which glia keeps in F32, was rounded to the half type by the reference.
const RTOL_F16: f64 = 2.0 / 1024.0;
const RTOL_BF16: f64 = 2.0 / 128.0;

/// Runs the graph and compares every output; the error says what differs.
pub fn check(case: &Case, translated: Translated, backends: &[Arc<dyn Backend>]) -> Result<(), String> {
    let config = ExecConfig::default()
        .with_precision(Precision::Exact)
        .with_non_finite(NonFinite::Allow);
    let Translated { graph, weights, inputs } = translated;
    let mut executor = GraphExecutor::prepare(graph, weights, backends.to_vec(), config).map_err(|e| e.to_string())?;
    let given: Vec<(&str, Tensor)> = inputs.iter().map(|(name, t)| (name.as_str(), t.clone())).collect();
    let outputs = executor.run(&given).map_err(|e| e.to_string())?;
    for output in &case.outputs {
        let Value::Tensor(expected) = &output.value else {
            continue;
        };
        let got = outputs
            .get(&output.name)
            .ok_or_else(|| format!("no output `{}`", output.name))?;
        compare(got, &expected.array, expected.tensor.dtype()).map_err(|e| format!("{}: {e}", output.name))?;
    }
    Ok(())
}

fn compare(got: &Tensor, expected: &Array, dtype: DType) -> Result<(), String> {
    if got.dtype() != dtype || got.shape().dims() != expected.shape {
        return Err(format!(
            "{}{} instead of {dtype}{:?}",
            got.dtype(),
            got.shape(),
            expected.shape
        ));
    }
    let got = Array::from_tensor(got)?;
    let rtol = match dtype {
        DType::F16 => RTOL_F16,
        DType::BF16 => RTOL_BF16,
        _ => RTOL,
    };
    let close = |a: f64, b: f64| {
        a == b || (a.is_nan() && b.is_nan()) || (dtype.is_float() && (a - b).abs() <= ATOL + rtol * b.abs())
    };
    let wrong: Vec<usize> = (0..got.data.len())
        .filter(|&i| !close(got.data[i], expected.data[i]))
        .collect();
    match wrong[..] {
        [] => Ok(()),
        [i, ..] => Err(format!(
            "element {i} is {}, not {} ({} of {} differ)",
            got.data[i],
            expected.data[i],
            wrong.len(),
            got.data.len()
        )),
    }
}
