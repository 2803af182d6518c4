//! Single ops against results of the reference that were computed in f64 and rounded.

mod attention;
mod compose;

use std::path::Path;

use glia_core::{Backend, DType, NodeView, Op, Tensor, ValueType};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

use super::tokenizers::read_json;
use super::{CaseResult, Outcome};

/// Runs every case of `dir` (`ops.json`, `ops.safetensors`) on a backend.
pub fn run(dir: &Path, backend: &dyn Backend) -> Vec<CaseResult> {
    let loaded = read_json(&dir.join("ops.json")).and_then(|cases| {
        let path = dir.join("ops.safetensors");
        let bytes = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok((cases, bytes))
    });
    let results = loaded.and_then(|(cases, bytes)| {
        let tensors = SafeTensors::deserialize(&bytes).map_err(|e| format!("ops.safetensors: {e}"))?;
        let cases = cases["cases"].as_array().ok_or("ops.json has no `cases`")?;
        Ok(cases.iter().map(|json| run_case(json, &tensors, backend)).collect())
    });
    results.unwrap_or_else(|e| {
        vec![CaseResult {
            name: "ops".to_owned(),
            outcome: Outcome::Fail(e),
        }]
    })
}

fn run_case(json: &Value, tensors: &SafeTensors<'_>, backend: &dyn Backend) -> CaseResult {
    let name = json["name"].as_str().unwrap_or_default();
    let case = Case {
        name,
        json,
        tensors,
        backend,
    };
    let outcome = compose::compute(&case).and_then(|outputs| case.compare(&outputs));
    CaseResult {
        name: format!("ops/{name}"),
        outcome: outcome.err().unwrap_or(Outcome::Pass),
    }
}

/// What is computed or checked; the error is what becomes of the case.
type Checked<T> = Result<T, Outcome>;

/// Outputs by name.
type Named = Vec<(&'static str, Tensor)>;

fn fail(e: impl std::fmt::Display) -> Outcome {
    Outcome::Fail(e.to_string())
}

struct Case<'a> {
    name: &'a str,
    json: &'a Value,
    tensors: &'a SafeTensors<'a>,
    backend: &'a dyn Backend,
}

impl Case<'_> {
    fn op(&self) -> &str {
        self.json["op"].as_str().unwrap_or_default()
    }

    fn param(&self, name: &str) -> &Value {
        &self.json["params"][name]
    }

    fn number(&self, name: &str) -> Checked<f64> {
        self.param(name)
            .as_f64()
            .ok_or_else(|| fail(format!("no number `{name}` in the case")))
    }

    fn flag(&self, name: &str) -> bool {
        self.param(name).as_bool().unwrap_or(false)
    }

    /// The parameter `dim`, counted from the end when negative.
    fn axis(&self, x: &Tensor) -> Checked<usize> {
        let dim = self.param("dim").as_i64().unwrap_or(-1);
        let rank = x.shape().rank() as i64;
        usize::try_from(if dim < 0 { dim + rank } else { dim }).map_err(|_| fail(format!("dimension {dim}")))
    }

    fn tensor(&self, side: &str, key: &str) -> Checked<Option<Tensor>> {
        let Ok(view) = self.tensors.tensor(&format!("{}.{side}.{key}", self.name)) else {
            return Ok(None);
        };
        let dtype = match view.dtype() {
            Dtype::F32 => DType::F32,
            Dtype::I32 => DType::I32,
            other => return Err(fail(format!("`{key}` is {other:?}"))),
        };
        Tensor::from_bytes(dtype, view.shape(), view.data())
            .map(Some)
            .map_err(fail)
    }

    fn input(&self, key: &str) -> Checked<Tensor> {
        self.tensor("in", key)?
            .ok_or_else(|| fail(format!("input `{key}` is missing")))
    }

    /// `x` and those of `more` that the case has, up to the first that it lacks.
    fn inputs(&self, more: &[&str]) -> Checked<Vec<Tensor>> {
        let mut inputs = vec![self.input("x")?];
        for key in more {
            match self.tensor("in", key)? {
                Some(tensor) => inputs.push(tensor),
                None => break,
            }
        }
        Ok(inputs)
    }

    /// All outputs of one op on the backend.
    fn run_all(&self, op: &Op, inputs: &[&Tensor]) -> Checked<Vec<Tensor>> {
        let types: Vec<ValueType> = inputs.iter().map(|t| ValueType::fixed(t.dtype(), t.shape())).collect();
        let outputs = op.infer(&types).map_err(fail)?;
        let is_const = vec![false; inputs.len()];
        let node = NodeView::new(self.name, op, &types, &outputs, &is_const);
        if !self.backend.supports_node(&node) {
            return Err(Outcome::Unsupported(format!(
                "{} does not run {op}",
                self.backend.name()
            )));
        }
        let tensors = self.backend.execute(op, inputs).map_err(fail)?;
        let got: Vec<ValueType> = tensors.iter().map(|t| ValueType::fixed(t.dtype(), t.shape())).collect();
        if got != outputs {
            return Err(fail(format!("{op} gave {got:?}, its rule says {outputs:?}")));
        }
        Ok(tensors)
    }

    /// The first output of one op on the backend.
    fn run(&self, op: Op, inputs: &[&Tensor]) -> Checked<Tensor> {
        let first = self.run_all(&op, inputs)?.into_iter().next();
        first.ok_or_else(|| fail(format!("{op} gave nothing")))
    }

    fn compare(&self, outputs: &[(&'static str, Tensor)]) -> Checked<()> {
        let wanted = self.json["outputs"].as_object();
        let mut missing = Vec::new();
        for key in wanted.into_iter().flat_map(|outputs| outputs.keys()) {
            let want = self
                .tensor("out", key)?
                .ok_or_else(|| fail(format!("output `{key}` is missing")))?;
            match outputs.iter().find(|(name, _)| name == key) {
                Some((_, got)) => self.close(key, got, &want)?,
                None => missing.push(key.as_str()),
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        Err(Outcome::Unsupported(format!("no op for output {}", missing.join(", "))))
    }

    /// Integers must be equal; floats as near as `1e-5 max|want|`, or the case's own tolerance where it is wider.
    fn close(&self, key: &str, got: &Tensor, want: &Tensor) -> Checked<()> {
        if got.shape() != want.shape() || got.dtype() != want.dtype() {
            return Err(fail(format!("{key} is {got:?}, not {want:?}")));
        }
        if want.dtype() == DType::I32 {
            let (got, want) = (got.as_i32().map_err(fail)?, want.as_i32().map_err(fail)?);
            let differs = got.iter().zip(want).position(|(a, b)| a != b);
            return differs.map_or(Ok(()), |i| {
                Err(fail(format!("{key}[{i}] is {}, not {}", got[i], want[i])))
            });
        }
        let (got, want) = (got.as_f32().map_err(fail)?, want.as_f32().map_err(fail)?);
        let max = want.iter().fold(0f32, |m, v| m.max(v.abs()));
        let tolerance = (1e-5 * f64::from(max)).max(self.json["atol"].as_f64().unwrap_or(0.0));
        for (i, (got, want)) in got.iter().zip(want).enumerate() {
            let error = (f64::from(*got) - f64::from(*want)).abs();
            // False for NaN, which must not pass.
            let near = error <= tolerance;
            if got.to_bits() != want.to_bits() && !near {
                return Err(fail(format!(
                    "{key}[{i}] is {got:e}, not {want:e} (tolerance {tolerance:.1e})"
                )));
            }
        }
        Ok(())
    }
}
