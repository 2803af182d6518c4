//! Typed reading of a configuration object, with errors that name the field.

use serde_json::{Map, Value};

use super::FamilyError;

/// A JSON object of a configuration.
#[derive(Clone, Copy)]
pub struct Fields<'a> {
    /// Path of the object inside the file, empty at the top.
    pub at: &'a str,
    /// The object.
    pub map: &'a Map<String, Value>,
}

/// Sizes beyond this are no model that fits in any memory: refuse before multiplying.
const MAX_SIZE: u64 = 1 << 31;

impl<'a> Fields<'a> {
    /// The whole configuration.
    pub fn new(map: &'a Map<String, Value>) -> Fields<'a> {
        Fields { at: "", map }
    }

    /// An error about a field.
    pub fn error(&self, key: &str, reason: impl Into<String>) -> FamilyError {
        let dot = if self.at.is_empty() { "" } else { "." };
        FamilyError::Config {
            field: format!("{}{dot}{key}", self.at),
            reason: reason.into(),
        }
    }

    /// The value, unless missing or null.
    pub fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|v| !v.is_null())
    }

    /// An object.
    pub fn opt_object(&self, key: &'a str) -> Result<Option<Fields<'a>>, FamilyError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(Fields { at: key, map })),
            Some(other) => Err(self.error(key, format!("must be an object, not {other}"))),
        }
    }

    /// A size, at most 2^31.
    pub fn opt_usize(&self, key: &str) -> Result<Option<usize>, FamilyError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_u64() {
            Some(n) if n <= MAX_SIZE => Ok(Some(n as usize)),
            _ => Err(self.error(key, format!("must be a whole number from 0 to {MAX_SIZE}, not {value}"))),
        }
    }

    /// A size of at least 1.
    pub fn size(&self, key: &str) -> Result<usize, FamilyError> {
        match self.opt_usize(key)? {
            Some(0) => Err(self.error(key, "must be at least 1")),
            Some(n) => Ok(n),
            None => Err(self.error(key, "is missing")),
        }
    }

    /// A number; `{"__float__": "Infinity"}` is how Transformers 5 writes infinity.
    pub fn opt_f64(&self, key: &str) -> Result<Option<f64>, FamilyError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let special = match value.get("__float__").and_then(Value::as_str) {
            Some("Infinity") => Some(f64::INFINITY),
            Some("-Infinity") => Some(f64::NEG_INFINITY),
            _ => None,
        };
        match value.as_f64().or(special) {
            Some(x) => Ok(Some(x)),
            None => Err(self.error(key, format!("must be a number, not {value}"))),
        }
    }

    /// A number that must be there.
    pub fn f64(&self, key: &str) -> Result<f64, FamilyError> {
        self.opt_f64(key)?.ok_or_else(|| self.error(key, "is missing"))
    }

    /// A boolean.
    pub fn bool_or(&self, key: &str, default: bool) -> Result<bool, FamilyError> {
        match self.get(key) {
            None => Ok(default),
            Some(Value::Bool(b)) => Ok(*b),
            Some(other) => Err(self.error(key, format!("must be true or false, not {other}"))),
        }
    }

    /// A text.
    pub fn opt_str(&self, key: &str) -> Result<Option<&'a str>, FamilyError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(s)) => Ok(Some(s)),
            Some(other) => Err(self.error(key, format!("must be a text, not {other}"))),
        }
    }

    /// A list.
    pub fn opt_list(&self, key: &str) -> Result<Option<&'a [Value]>, FamilyError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Array(list)) => Ok(Some(list)),
            Some(other) => Err(self.error(key, format!("must be a list, not {other}"))),
        }
    }

    /// A list of numbers.
    pub fn numbers(&self, key: &str) -> Result<Vec<f64>, FamilyError> {
        let list = self.opt_list(key)?.ok_or_else(|| self.error(key, "is missing"))?;
        list.iter()
            .map(|v| {
                v.as_f64()
                    .ok_or_else(|| self.error(key, format!("must hold numbers, not {v}")))
            })
            .collect()
    }
}
