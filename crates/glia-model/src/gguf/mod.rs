//! GGUF files, versions 2 and 3, also split: metadata and tensors over a memory map, nothing copied.
//!
//! Format: ggml's `docs/gguf.md`. Everything in a file is checked before it is believed; what a header claims never sizes
//! an allocation beyond the file itself.

mod cursor;
mod error;
mod header;
mod split;
pub mod types;
mod value;
pub mod write;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use glia_core::{ByteSource, DType, Shape, Tensor};

pub use error::GgufError;
pub(crate) use value::clip;
pub use value::{Array, Value};

use header::Part;

/// What the file says of one tensor.
#[derive(Clone, Debug)]
pub struct TensorInfo {
    /// Its name.
    pub name: String,
    /// ggml's type number.
    pub type_id: u32,
    /// The dtype, unless the type is unsupported.
    pub dtype: Option<DType>,
    /// Dimensions, outermost first (GGUF stores them innermost first).
    pub shape: Vec<usize>,
    /// Bytes of the data; 0 for unsupported types.
    pub size_bytes: usize,
    /// Position of the data in its file.
    pub offset: usize,
    /// Which file of a split set.
    pub part: usize,
}

/// An open GGUF file, or set of files.
pub struct GgufFile {
    path: String,
    parts: Vec<Part>,
    tensors: Vec<TensorInfo>,
    by_name: HashMap<String, usize>,
}

impl GgufFile {
    /// Opens a file; any part of a split set finds the others beside it.
    ///
    /// # Errors
    /// [`GgufError`], naming file, offset and field.
    pub fn open(path: &Path, mmap: bool) -> Result<GgufFile, GgufError> {
        let first = open_part(path, mmap)?;
        let paths = split::paths(path, &first)?;
        let mut parts = Vec::with_capacity(paths.len());
        if paths.len() == 1 {
            parts.push(first);
        } else {
            for (index, path) in paths.iter().enumerate() {
                let part = open_part(path, mmap)?;
                split::check_part(&part, index, paths.len())?;
                parts.push(part);
            }
        }
        Self::join(path.display().to_string(), parts)
    }

    /// Reads bytes that are in memory already; `name` is for messages.
    ///
    /// # Errors
    /// As [`GgufFile::open`].
    pub fn from_source(name: &str, source: Arc<dyn ByteSource>) -> Result<GgufFile, GgufError> {
        Self::join(name.to_owned(), vec![Part::read(name.to_owned(), source)?])
    }

    fn join(path: String, mut parts: Vec<Part>) -> Result<GgufFile, GgufError> {
        let mut tensors: Vec<TensorInfo> = Vec::new();
        let mut by_name = HashMap::new();
        for (index, part) in parts.iter_mut().enumerate() {
            for mut info in std::mem::take(&mut part.tensors) {
                info.part = index;
                if by_name.insert(info.name.clone(), tensors.len()).is_some() {
                    let reason = "is there twice: the file was written wrongly".to_owned();
                    return Err(GgufError::Tensor {
                        file: part.file.clone(),
                        tensor: info.name,
                        reason,
                    });
                }
                tensors.push(info);
            }
        }
        // The first part of a set says how many there are in all.
        if let Some(promised) = parts[0].get("split.tensors.count") {
            let n = tensors.len();
            let reason = match promised.as_u64() {
                Some(count) if count == n as u64 => None,
                Some(count) => Some(match parts.len() {
                    1 => format!(
                        "split.tensors.count = {count}, but the file holds {n} tensors: parts of it are missing"
                    ),
                    n_parts => format!(
                        "split.tensors.count = {count}, but the {n_parts} parts hold {n} tensors: they do not belong together"
                    ),
                }),
                None => Some(format!("split.tensors.count must be a whole number, not {promised}")),
            };
            if let Some(reason) = reason {
                return Err(GgufError::Split { file: path, reason });
            }
        }
        Ok(GgufFile {
            path,
            parts,
            tensors,
            by_name,
        })
    }

    /// The path that was opened.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Version of the format.
    pub fn version(&self) -> u32 {
        self.parts[0].version
    }

    /// Files of the set.
    pub fn n_parts(&self) -> usize {
        self.parts.len()
    }

    /// Bytes of all files.
    pub fn size_bytes(&self) -> usize {
        self.parts.iter().map(|p| p.source.bytes().len()).sum()
    }

    /// Says that the files will not be read soon: a memory map gives its pages back.
    pub fn release(&self) {
        for part in &self.parts {
            part.source.release(0..part.source.n_bytes());
        }
    }

    /// A metadata value.
    pub fn get(&self, key: &str) -> Option<Value<'_>> {
        self.parts[0].get(key)
    }

    /// All metadata, in the order of the file.
    pub fn metadata(&self) -> impl Iterator<Item = (&str, Value<'_>)> {
        self.parts[0].metadata()
    }

    pub(crate) fn key_error(&self, key: &str, expected: &str, got: Value<'_>) -> GgufError {
        let reason = format!("must be {expected}, not {got}");
        GgufError::Key {
            file: self.path.clone(),
            key: key.to_owned(),
            reason,
        }
    }

    /// A whole number.
    ///
    /// # Errors
    /// [`GgufError::Key`] when the value is something else.
    pub fn opt_u64(&self, key: &str) -> Result<Option<u64>, GgufError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value
            .as_u64()
            .map(Some)
            .ok_or_else(|| self.key_error(key, "a whole number", value))
    }

    /// A token id.
    ///
    /// # Errors
    /// [`GgufError::Key`].
    pub fn opt_u32(&self, key: &str) -> Result<Option<u32>, GgufError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let n = value.as_u64().and_then(|n| u32::try_from(n).ok());
        n.map(Some)
            .ok_or_else(|| self.key_error(key, "a whole number below 2^32", value))
    }

    /// A boolean.
    ///
    /// # Errors
    /// [`GgufError::Key`].
    pub fn opt_bool(&self, key: &str) -> Result<Option<bool>, GgufError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bool(b)) => Ok(Some(b)),
            Some(value) => Err(self.key_error(key, "a bool", value)),
        }
    }

    /// A text.
    ///
    /// # Errors
    /// [`GgufError::Key`].
    pub fn opt_str(&self, key: &str) -> Result<Option<&str>, GgufError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value
            .as_str()
            .map(Some)
            .ok_or_else(|| self.key_error(key, "a text", value))
    }

    /// An array.
    ///
    /// # Errors
    /// [`GgufError::Key`].
    pub fn opt_array(&self, key: &str) -> Result<Option<Array<'_>>, GgufError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Array(a)) => Ok(Some(a)),
            Some(value) => Err(self.key_error(key, "an array", value)),
        }
    }

    /// All tensors, in the order of the files. Unsupported types are listed too.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// One tensor's entry.
    pub fn tensor_info(&self, name: &str) -> Option<&TensorInfo> {
        self.by_name.get(name).map(|&i| &self.tensors[i])
    }

    /// A tensor over the map, without a copy.
    ///
    /// # Errors
    /// [`GgufError::Tensor`] when it is not there, its type is unsupported or its data leave the file.
    pub fn tensor(&self, name: &str) -> Result<Tensor, GgufError> {
        let error = |file: &str, reason: String| GgufError::Tensor {
            file: file.to_owned(),
            tensor: name.to_owned(),
            reason,
        };
        let info = self
            .tensor_info(name)
            .ok_or_else(|| error(&self.path, "is not in the file".to_owned()))?;
        let part = &self.parts[info.part];
        let dtype = info
            .dtype
            .ok_or_else(|| error(&part.file, types::describe_unsupported(info.type_id)))?;
        let shape =
            Shape::try_new(&info.shape).ok_or_else(|| error(&part.file, "has too many dimensions".to_owned()))?;
        let range = info.offset..info.offset + info.size_bytes;
        Tensor::shared(dtype, shape, Arc::clone(&part.source), range).map_err(|e| error(&part.file, e.to_string()))
    }
}

fn open_part(path: &Path, mmap: bool) -> Result<Part, GgufError> {
    let file = path.display().to_string();
    let source = crate::mmap::open(path, mmap).map_err(|source| GgufError::Io {
        file: file.clone(),
        source,
    })?;
    Part::read(file, source)
}

/// Path of part `index` (from 0) of `count`, given that of any part.
fn part_path(path: &Path, index: usize, count: usize) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let stem = name.strip_suffix(".gguf")?;
    // `NAME-00001-of-00003`
    let (head, of) = stem.rsplit_once("-of-")?;
    let (base, number) = head.rsplit_once('-')?;
    let digits = |s: &str| s.len() == 5 && s.bytes().all(|b| b.is_ascii_digit());
    if !digits(of) || !digits(number) || of.parse::<usize>().ok()? != count {
        return None;
    }
    Some(path.with_file_name(format!("{base}-{:05}-of-{count:05}.gguf", index + 1)))
}
