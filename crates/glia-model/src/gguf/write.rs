//! Writes small GGUF files: test models, and what converters need.

use super::types;
use glia_core::DType;

/// A metadata value to write.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // The names are GGUF's.
pub enum WriteValue {
    U32(u32),
    U64(u64),
    I32(i32),
    F32(f32),
    Bool(bool),
    Str(String),
    Strs(Vec<String>),
    F32s(Vec<f32>),
    I32s(Vec<i32>),
}

/// Collects metadata and tensors, then gives the bytes of a version 3 file.
#[derive(Clone, Debug, Default)]
pub struct GgufWriter {
    keys: Vec<(String, WriteValue)>,
    tensors: Vec<(String, DType, Vec<usize>, Vec<u8>)>,
}

impl GgufWriter {
    /// Nothing yet.
    pub fn new() -> GgufWriter {
        GgufWriter::default()
    }

    /// Adds metadata.
    pub fn key(&mut self, key: &str, value: WriteValue) -> &mut GgufWriter {
        self.keys.push((key.to_owned(), value));
        self
    }

    /// Adds a tensor: dimensions outermost first, raw bytes.
    pub fn tensor(&mut self, name: &str, dtype: DType, shape: &[usize], bytes: &[u8]) -> &mut GgufWriter {
        self.tensors
            .push((name.to_owned(), dtype, shape.to_vec(), bytes.to_vec()));
        self
    }

    /// A copy without a key.
    pub fn without(&self, key: &str) -> GgufWriter {
        let mut copy = self.clone();
        copy.keys.retain(|(k, _)| k != key);
        copy
    }

    /// A copy with the keys of another after its own.
    pub fn with_keys_of(&self, other: &GgufWriter) -> GgufWriter {
        let mut copy = self.clone();
        copy.keys.extend(other.keys.iter().cloned());
        copy
    }

    /// The file.
    pub fn finish(&self) -> Vec<u8> {
        const ALIGNMENT: usize = 32;
        let mut out = b"GGUF\x03\0\0\0".to_vec();
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.keys.len() as u64).to_le_bytes());
        for (key, value) in &self.keys {
            put_str(&mut out, key);
            put_value(&mut out, value);
        }
        let mut offset = 0usize;
        for (name, dtype, shape, bytes) in &self.tensors {
            put_str(&mut out, name);
            out.extend((shape.len() as u32).to_le_bytes());
            for &dim in shape.iter().rev() {
                out.extend((dim as u64).to_le_bytes());
            }
            out.extend(types::type_id(*dtype).unwrap_or(u32::MAX).to_le_bytes());
            out.extend((offset as u64).to_le_bytes());
            offset += bytes.len().next_multiple_of(ALIGNMENT);
        }
        for (_, _, _, bytes) in &self.tensors {
            out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
            out.extend(bytes);
        }
        out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
        out
    }
}

fn put_str(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn put_value(out: &mut Vec<u8>, value: &WriteValue) {
    let mut array = |type_id: u32, len: usize| {
        out.extend(9u32.to_le_bytes());
        out.extend(type_id.to_le_bytes());
        out.extend((len as u64).to_le_bytes());
    };
    match value {
        WriteValue::Strs(list) => {
            array(8, list.len());
            list.iter().for_each(|s| put_str(out, s));
        }
        WriteValue::F32s(list) => {
            array(6, list.len());
            list.iter().for_each(|x| out.extend(x.to_le_bytes()));
        }
        WriteValue::I32s(list) => {
            array(5, list.len());
            list.iter().for_each(|x| out.extend(x.to_le_bytes()));
        }
        WriteValue::U32(n) => put_scalar(out, 4, &n.to_le_bytes()),
        WriteValue::U64(n) => put_scalar(out, 10, &n.to_le_bytes()),
        WriteValue::I32(n) => put_scalar(out, 5, &n.to_le_bytes()),
        WriteValue::F32(x) => put_scalar(out, 6, &x.to_le_bytes()),
        WriteValue::Bool(b) => put_scalar(out, 7, &[u8::from(*b)]),
        WriteValue::Str(text) => {
            out.extend(8u32.to_le_bytes());
            put_str(out, text);
        }
    }
}

fn put_scalar(out: &mut Vec<u8>, type_id: u32, bytes: &[u8]) {
    out.extend(type_id.to_le_bytes());
    out.extend(bytes);
}
