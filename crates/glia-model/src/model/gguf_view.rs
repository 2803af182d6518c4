//! A GGUF file as the families read it: numbers and texts, with words for what else is there.

use crate::family::gguf::GgufView;
use crate::gguf::{GgufFile, Value};

/// Longest list of a value per layer.
const MAX_PER_LAYER: usize = 1 << 16;

impl GgufView for GgufFile {
    fn number(&self, key: &str) -> Result<Option<f64>, String> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let number = match value {
            // Per-layer lists are for families that differ by layer; of equal entries any will do.
            Value::Array(list) => {
                if list.len() > MAX_PER_LAYER {
                    return Err(format!("must be a number, not {} of them", list.len()));
                }
                let mut numbers = list.numbers().ok_or_else(|| format!("must be a number, not {value}"))?;
                let first = numbers.next();
                if numbers.any(|n| Some(n) != first) {
                    return Err(format!("differs by layer, which is not supported: {value}"));
                }
                first
            }
            Value::Bool(_) => None,
            value => value.as_f64(),
        };
        match number.filter(|n| n.is_finite()) {
            Some(n) => Ok(Some(n)),
            None => Err(format!("must be a number, not {value}")),
        }
    }

    fn shown(&self, key: &str) -> String {
        self.get(key).map_or(String::new(), |v| v.to_string())
    }

    fn list(&self, key: &str, limit: usize) -> Option<Vec<f64>> {
        match self.get(key)? {
            Value::Array(list) if list.len() <= limit => list.iter().map(|v| v.as_f64()).collect(),
            _ => None,
        }
    }

    fn text(&self, key: &str) -> Result<Option<&str>, String> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value
            .as_str()
            .map(Some)
            .ok_or_else(|| format!("must be a text, not {value}"))
    }

    fn shape(&self, tensor: &str) -> Option<Vec<usize>> {
        self.tensor_info(tensor).map(|t| t.shape.clone())
    }

    fn f32_values(&self, tensor: &str) -> Option<Vec<f32>> {
        if self.tensor_info(tensor)?.shape.iter().product::<usize>() > MAX_PER_LAYER {
            return None;
        }
        let tensor = crate::weights::to_f32(self.tensor(tensor).ok()?).ok()?;
        Some(tensor.as_f32().ok()?.to_vec())
    }
}
