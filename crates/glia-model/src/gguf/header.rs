//! The header of one file: metadata and tensor table, checked against the file's size before anything is believed.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use glia_core::{ByteSource, Shape, tensor_bytes};

use super::cursor::Cursor;
use super::value::{self, Array, Value};
use super::{GgufError, TensorInfo, types};

/// Alignments beyond this are refused.
const MAX_ALIGNMENT: u64 = 1 << 20;
/// Names longer than ggml's are still names, up to here.
const MAX_NAME_BYTES: usize = 1024;
/// Longest key: the format's own bound.
const MAX_KEY_BYTES: usize = (1 << 16) - 1;

enum Stored {
    Plain(Value<'static>),
    Str(Range<usize>),
    Array {
        type_id: u32,
        len: usize,
        range: Range<usize>,
    },
}

/// One file of a set.
pub(super) struct Part {
    pub file: String,
    pub source: Arc<dyn ByteSource>,
    pub version: u32,
    pub tensors: Vec<TensorInfo>,
    keys: Vec<(String, Stored)>,
    by_key: HashMap<String, usize>,
}

impl Part {
    pub fn read(file: String, source: Arc<dyn ByteSource>) -> Result<Part, GgufError> {
        let mut part = Part {
            file,
            source,
            version: 0,
            tensors: Vec::new(),
            keys: Vec::new(),
            by_key: HashMap::new(),
        };
        let source = Arc::clone(&part.source);
        part.parse(source.bytes())?;
        Ok(part)
    }

    fn parse(&mut self, bytes: &[u8]) -> Result<(), GgufError> {
        let file = self.file.clone();
        check_magic(&file, bytes)?;
        let mut c = Cursor {
            file: &file,
            bytes,
            at: 4,
            walk: value::MAX_WALK,
        };
        self.version = c.u32("the version")?;
        if self.version.swap_bytes() == 2 || self.version.swap_bytes() == 3 {
            return Err(c.malformed(4, "the file is big-endian: convert it on a little-endian machine"));
        }
        if !matches!(self.version, 2 | 3) {
            return Err(GgufError::Version {
                file,
                version: self.version,
            });
        }
        let n_tensors = c.u64("the tensor count")?;
        let n_keys = c.u64("the metadata count")?;
        // Each entry begins with the length of its name. Nothing is allocated by these counts: what an entry lacks beyond
        // that is told of with its place.
        let n_tensors = c.checked_count(n_tensors, 8, "tensor count")?;
        let n_keys = c.checked_count(n_keys, 8, "metadata count")?;
        for _ in 0..n_keys {
            self.key(&mut c)?;
        }
        let alignment = self.alignment()?;
        for _ in 0..n_tensors {
            let info = tensor_info(&mut c)?;
            self.tensors.push(info);
        }
        let data =
            c.at.checked_next_multiple_of(alignment)
                .ok_or_else(|| c.malformed(c.at, "the header is too long"))?;
        for info in &mut self.tensors {
            place(&file, bytes.len(), data, alignment, info)?;
        }
        Ok(())
    }

    fn key(&mut self, c: &mut Cursor<'_>) -> Result<(), GgufError> {
        let at = c.at;
        let key = c.short_string(MAX_KEY_BYTES, "a metadata key")?.to_owned();
        if key.is_empty() {
            return Err(c.malformed(at, "a metadata key is empty"));
        }
        let in_key = |e: GgufError| match e {
            GgufError::Malformed { file, reason, .. } => GgufError::Key {
                file,
                key: key.clone(),
                reason,
            },
            GgufError::Count { file, what, count, len } => GgufError::Count {
                file,
                what: format!("{what} of `{key}`:"),
                count,
                len,
            },
            GgufError::ShortRead {
                file,
                what,
                offset,
                needed,
                len,
            } => GgufError::ShortRead {
                file,
                what: format!("{what} of `{key}`"),
                offset,
                needed,
                len,
            },
            other => other,
        };
        let type_id = c.u32("the type of a metadata value")?;
        let range = |part: &[u8], c: &Cursor<'_>| {
            let start = part.as_ptr() as usize - c.bytes.as_ptr() as usize;
            start..start + part.len()
        };
        let stored = match value::read(c, type_id).map_err(in_key)? {
            Value::Str(s) => Stored::Str(range(s.as_bytes(), c)),
            Value::Array(a) => Stored::Array {
                type_id: a.type_id,
                len: a.len,
                range: range(a.bytes, c),
            },
            Value::Uint(n) => Stored::Plain(Value::Uint(n)),
            Value::Int(n) => Stored::Plain(Value::Int(n)),
            Value::Float(x) => Stored::Plain(Value::Float(x)),
            Value::Bool(b) => Stored::Plain(Value::Bool(b)),
        };
        if self.by_key.insert(key.clone(), self.keys.len()).is_some() {
            let reason = "is there twice: the file was written wrongly".to_owned();
            return Err(GgufError::Key {
                file: self.file.clone(),
                key,
                reason,
            });
        }
        self.keys.push((key, stored));
        Ok(())
    }

    fn alignment(&self) -> Result<usize, GgufError> {
        let Some(value) = self.get("general.alignment") else {
            return Ok(32);
        };
        match value.as_u64() {
            Some(n) if n.is_power_of_two() && n <= MAX_ALIGNMENT => Ok(n as usize),
            _ => Err(GgufError::Key {
                file: self.file.clone(),
                key: "general.alignment".to_owned(),
                reason: format!("must be a power of two from 1 to {MAX_ALIGNMENT}, not {value}"),
            }),
        }
    }

    fn resolve<'a>(&'a self, stored: &'a Stored) -> Value<'a> {
        let bytes = self.source.bytes();
        match stored {
            Stored::Plain(value) => *value,
            // Checked when the header was read; a file that changed since then gives an empty text.
            Stored::Str(range) => Value::Str(std::str::from_utf8(&bytes[range.clone()]).unwrap_or("")),
            Stored::Array { type_id, len, range } => Value::Array(Array {
                type_id: *type_id,
                len: *len,
                bytes: &bytes[range.clone()],
            }),
        }
    }

    pub fn get(&self, key: &str) -> Option<Value<'_>> {
        let index = *self.by_key.get(key)?;
        Some(self.resolve(&self.keys[index].1))
    }

    pub fn metadata(&self) -> impl Iterator<Item = (&str, Value<'_>)> {
        self.keys
            .iter()
            .map(|(key, stored)| (key.as_str(), self.resolve(stored)))
    }
}

fn check_magic(file: &str, bytes: &[u8]) -> Result<(), GgufError> {
    let error = |reason: &str| {
        Err(GgufError::NotGguf {
            file: file.to_owned(),
            reason: reason.to_owned(),
        })
    };
    if bytes.starts_with(b"version https://git-lfs") {
        return error(
            "is a Git LFS pointer, not model data: fetch the file itself with `git lfs pull`, or download it from the \
             model's page",
        );
    }
    let start = bytes.get(..256.min(bytes.len())).unwrap_or(bytes).trim_ascii_start();
    if start.starts_with(b"<") {
        return error("is an HTML or XML page, not model data: the download was redirected; fetch the file again");
    }
    if bytes.starts_with(b"GGUF") {
        return Ok(());
    }
    if b"GGUF".starts_with(bytes) {
        let (what, needed) = ("the magic `GGUF`".to_owned(), 4 - bytes.len() as u64);
        let (file, len) = (file.to_owned(), bytes.len());
        return Err(GgufError::ShortRead {
            file,
            what,
            offset: len,
            needed,
            len,
        });
    }
    if bytes.starts_with(b"ggjt") || bytes.starts_with(b"tjgg") || bytes.starts_with(b"lmgg") {
        return error("is in a GGML format from before GGUF: convert the model again with a current converter");
    }
    error("does not begin with `GGUF`: it is no GGUF file, or a damaged one")
}

fn tensor_info(c: &mut Cursor<'_>) -> Result<TensorInfo, GgufError> {
    let at = c.at;
    let name = c.short_string(MAX_NAME_BYTES, "a tensor name")?;
    if name.is_empty() {
        return Err(c.malformed(at, "a tensor name is empty"));
    }
    let error = |reason: String| GgufError::Tensor {
        file: c.file.to_owned(),
        tensor: name.to_owned(),
        reason,
    };
    let mut cursor = *c;
    let n_dims = cursor.u32("a dimension count")?;
    if n_dims > 4 {
        return Err(error(format!("n_dims {n_dims} exceeds 4")));
    }
    let mut shape = Vec::with_capacity(4);
    for _ in 0..n_dims {
        let dim = cursor.u64("a dimension")?;
        shape.push(usize::try_from(dim).map_err(|_| error(format!("dimension {dim} is too large")))?);
    }
    // A tensor without dimensions is a scalar of one element.
    shape.reverse();
    let type_id = cursor.u32("a tensor type")?;
    let offset = cursor.u64("a tensor offset")?;
    let offset = usize::try_from(offset).map_err(|_| error(format!("offset {offset} is too large")))?;
    let dtype = types::dtype(type_id);
    let mut size_bytes = 0;
    let dims = Shape::try_new(&shape).ok_or_else(|| error("has too many dimensions".to_owned()))?;
    if dims.checked_elems().is_none() {
        return Err(error(format!("dimensions {shape:?} overflow")));
    }
    if let Some(dtype) = dtype {
        size_bytes = tensor_bytes(dtype, &dims).map_err(|e| error(e.to_string()))?;
    }
    c.at = cursor.at;
    Ok(TensorInfo {
        name: name.to_owned(),
        type_id,
        dtype,
        shape,
        size_bytes,
        offset,
        part: 0,
    })
}

/// Turns the offset within the data into one within the file, and checks that the data are there.
fn place(file: &str, len: usize, data: usize, alignment: usize, info: &mut TensorInfo) -> Result<(), GgufError> {
    let error = |reason: String| GgufError::Tensor {
        file: file.to_owned(),
        tensor: info.name.clone(),
        reason,
    };
    if !info.offset.is_multiple_of(alignment) {
        return Err(error(format!(
            "offset {} is no multiple of the alignment {alignment}",
            info.offset
        )));
    }
    let start = data.checked_add(info.offset);
    let end = start.and_then(|s| s.checked_add(info.size_bytes));
    match (start, end) {
        (Some(start), Some(end)) if end <= len => {
            info.offset = start;
            Ok(())
        }
        // What cannot be read anyhow does not keep the rest of the file from being listed.
        (Some(start), _) if info.dtype.is_none() => {
            info.offset = start.min(len);
            Ok(())
        }
        _ => Err(error(format!(
            "{:?} needs {} bytes at offset {}, the file has {len} bytes: the download is incomplete or the file damaged",
            info.shape,
            info.size_bytes,
            start.map_or("beyond any file".to_owned(), |s| s.to_string()),
        ))),
    }
}
