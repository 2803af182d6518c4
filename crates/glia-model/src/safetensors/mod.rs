//! Safetensors: single files and sharded sets with an index, over memory maps.
//!
//! Format: 8 bytes of header length, a JSON header, the data. The `safetensors` crate checks the header; what it says of
//! a bad one is put into words that name the file and the cure.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use glia_core::{ByteSource, DType, Shape, Tensor};
use safetensors::{Dtype, SafeTensors};

use crate::config;

mod header;

/// Why a safetensors file was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // Field names are the words of the messages.
pub enum SafetensorsError {
    #[error("{file}: {source}")]
    Io { file: String, source: std::io::Error },
    #[error("{file}: {reason}")]
    Header { file: String, reason: String },
    #[error("{file}: tensor `{tensor}`: {reason}")]
    Tensor {
        file: String,
        tensor: String,
        reason: String,
    },
    #[error(transparent)]
    Index(#[from] config::ConfigError),
}

struct Entry {
    /// The file's word for it where no dtype of ours stands for it.
    dtype: Result<DType, Dtype>,
    shape: Shape,
    range: std::ops::Range<usize>,
    part: usize,
}

/// What a file says of one tensor.
pub(crate) struct Listed<'a> {
    pub name: &'a str,
    pub dtype: String,
    pub shape: &'a [usize],
    pub size_bytes: usize,
    pub supported: bool,
}

/// An open file, or set of shards.
pub struct SafetensorsFile {
    path: String,
    parts: Vec<(String, Arc<dyn ByteSource>)>,
    entries: HashMap<String, Entry>,
    warnings: Vec<String>,
}

fn dtype(dtype: Dtype) -> Result<DType, Dtype> {
    Ok(match dtype {
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::F64 => DType::F64,
        Dtype::I8 => DType::I8,
        Dtype::I16 => DType::I16,
        Dtype::I32 => DType::I32,
        Dtype::I64 => DType::I64,
        Dtype::U8 => DType::U8,
        Dtype::BOOL => DType::Bool,
        other => return Err(other),
    })
}

fn unsupported(dtype: Dtype) -> String {
    format!(
        "dtype {dtype:?} is not supported (F32, F16, BF16 and plain integers are): convert the model to one of them"
    )
}

/// Longest header that is read: the cap of the `safetensors` crate.
const MAX_HEADER_BYTES: u64 = 100_000_000;

/// What a header that the crate refuses most likely means.
fn explain(bytes: &[u8], error: &str) -> String {
    if bytes.starts_with(b"version https://git-lfs") {
        return "is a Git LFS pointer, not model data: fetch the file itself with `git lfs pull`".to_owned();
    }
    // A length may begin with the byte of `<` too; its other bytes are no text.
    let is_text = !bytes.get(..8).is_some_and(|head| head.contains(&0));
    if is_text && bytes.trim_ascii_start().starts_with(b"<") {
        return "is an HTML or XML page, not model data: fetch the file again".to_owned();
    }
    let Some(head) = bytes.first_chunk::<8>() else {
        return format!(
            "has {} bytes, a safetensors file at least 8: fetch it again",
            bytes.len()
        );
    };
    let declared = u64::from_le_bytes(*head);
    if declared > MAX_HEADER_BYTES && declared <= bytes.len() as u64 - 8 {
        return format!(
            "declares a header of {declared} bytes, the most is {MAX_HEADER_BYTES}: it is no safetensors file, or holds \
             too many tensors for one; split it into shards"
        );
    }
    if declared > bytes.len() as u64 - 8 {
        return format!(
            "declares a header of {declared} bytes but has {} in all: it is incomplete, or no safetensors file; fetch it \
             again",
            bytes.len()
        );
    }
    format!("is damaged or incomplete ({error}); fetch it again")
}

impl SafetensorsFile {
    /// Opens one file.
    ///
    /// # Errors
    /// [`SafetensorsError`].
    pub fn open(path: &Path, mmap: bool) -> Result<SafetensorsFile, SafetensorsError> {
        let mut file = SafetensorsFile {
            path: path.display().to_string(),
            parts: Vec::new(),
            entries: HashMap::new(),
            warnings: Vec::new(),
        };
        file.add(path, mmap)?;
        Ok(file)
    }

    /// Opens the set that an index lists.
    ///
    /// # Errors
    /// [`SafetensorsError`]; also when the index names a tensor that no shard holds.
    pub fn open_sharded(index: &Path, mmap: bool) -> Result<SafetensorsFile, SafetensorsError> {
        let name = index.display().to_string();
        let error = |reason: String| SafetensorsError::Header {
            file: name.clone(),
            reason,
        };
        let object = config::object(index, &config::read_file(index)?)?;
        let map = object.get("weight_map").and_then(|m| m.as_object());
        let map = map.ok_or_else(|| error("weight_map is missing or no object".to_owned()))?;
        let mut shards: Vec<&str> = Vec::new();
        for (tensor, shard) in map {
            let shard = shard
                .as_str()
                .ok_or_else(|| error(format!("weight_map.{tensor} is no file name")))?;
            if shard.contains(['/', '\\']) || shard == ".." {
                return Err(error(format!("weight_map.{tensor}: `{shard}` leaves the folder")));
            }
            shards.push(shard);
        }
        shards.sort_unstable();
        shards.dedup();
        let mut file = SafetensorsFile {
            path: name.clone(),
            parts: Vec::new(),
            entries: HashMap::new(),
            warnings: Vec::new(),
        };
        for shard in shards {
            file.add(&index.with_file_name(shard), mmap)?;
        }
        for (tensor, shard) in map {
            let Some(entry) = file.entries.get(tensor) else {
                return Err(error(format!("tensor `{tensor}` is in none of the shards")));
            };
            let (found, shard) = (&file.parts[entry.part].0, shard.as_str().unwrap_or_default());
            if Path::new(found).file_name().is_none_or(|name| name != shard) {
                return Err(error(format!(
                    "tensor `{tensor}` is not in {shard} (found in {found}): index and shards do not belong together; \
                     fetch them again"
                )));
            }
        }
        let unlisted: Vec<&str> = file.names().into_iter().filter(|n| !map.contains_key(*n)).collect();
        if let Some(first) = unlisted.first() {
            let warning = format!(
                "{name}: {} tensors of the shards are not in the index, such as `{first}`: they may be left over from \
                 another model",
                unlisted.len()
            );
            file.warnings.push(warning);
        }
        Ok(file)
    }

    fn add(&mut self, path: &Path, mmap: bool) -> Result<(), SafetensorsError> {
        let name = path.display().to_string();
        let source = crate::mmap::open(path, mmap).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => SafetensorsError::Header {
                file: name.clone(),
                reason: "there is no such file: fetch it, or the whole model again".to_owned(),
            },
            _ => SafetensorsError::Io {
                file: name.clone(),
                source,
            },
        })?;
        let bytes = source.bytes();
        let header = |e: String| SafetensorsError::Header {
            file: name.clone(),
            reason: explain(bytes, &e),
        };
        let (header_len, metadata) = SafeTensors::read_metadata(bytes).map_err(|e| match header::fault(bytes) {
            Some(fault) => fault.of(&name),
            None => header(e.to_string()),
        })?;
        if let Some(fault) = header::twice(bytes) {
            return Err(fault.of(&name));
        }
        let data = header_len
            .checked_add(8)
            .ok_or_else(|| header("header length".to_owned()))?;
        for (tensor, info) in metadata.tensors() {
            let error = |reason: String| SafetensorsError::Tensor {
                file: name.clone(),
                tensor: tensor.clone(),
                reason,
            };
            let shape = Shape::try_new(&info.shape).ok_or_else(|| error("has too many dimensions".to_owned()))?;
            let at = |offset: usize| data.checked_add(offset).filter(|&end| end <= bytes.len());
            let range = at(info.data_offsets.0).zip(at(info.data_offsets.1));
            let (start, end) = range.ok_or_else(|| error("its data end after the file".to_owned()))?;
            let entry = Entry {
                dtype: dtype(info.dtype),
                shape,
                range: start..end,
                part: self.parts.len(),
            };
            if self.entries.insert(tensor.clone(), entry).is_some() {
                return Err(error("is there twice".to_owned()));
            }
        }
        self.parts.push((name, Arc::clone(&source)));
        Ok(())
    }

    /// The path that was opened.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Says that the files will not be read soon: a memory map gives its pages back.
    pub fn release(&self) {
        for (_, source) in &self.parts {
            source.release(0..source.n_bytes());
        }
    }

    /// Bytes of all files.
    pub fn size_bytes(&self) -> usize {
        self.parts.iter().map(|(_, s)| s.bytes().len()).sum()
    }

    /// Names of all tensors, sorted.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.entries.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    /// Dtype and shape of a tensor of a supported dtype.
    pub fn meta(&self, name: &str) -> Option<(DType, Shape)> {
        let entry = self.entries.get(name)?;
        Some((entry.dtype.ok()?, entry.shape))
    }

    /// All tensors, by name, also those of unsupported dtypes.
    pub(crate) fn listed(&self) -> Vec<Listed<'_>> {
        let listed = |name| {
            let (name, entry) = self.entries.get_key_value(name)?;
            Some(Listed {
                name,
                dtype: match entry.dtype {
                    Ok(dtype) => dtype.name().to_uppercase(),
                    Err(dtype) => format!("{dtype:?}"),
                },
                shape: &entry.shape,
                size_bytes: entry.range.len(),
                supported: entry.dtype.is_ok(),
            })
        };
        self.names().into_iter().filter_map(listed).collect()
    }

    /// Refuses a file with a tensor of a dtype that no op takes.
    pub(crate) fn check_dtypes(&self) -> Result<(), SafetensorsError> {
        for name in self.names() {
            if let Some(Entry {
                dtype: Err(dtype),
                part,
                ..
            }) = self.entries.get(name)
            {
                return Err(SafetensorsError::Tensor {
                    file: self.parts[*part].0.clone(),
                    tensor: name.to_owned(),
                    reason: unsupported(*dtype),
                });
            }
        }
        Ok(())
    }

    /// What is doubtful about the files though they can be used.
    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// A tensor over the map, without a copy.
    ///
    /// # Errors
    /// [`SafetensorsError::Tensor`].
    pub fn tensor(&self, name: &str) -> Result<Tensor, SafetensorsError> {
        let error = |file: &str, reason: String| SafetensorsError::Tensor {
            file: file.to_owned(),
            tensor: name.to_owned(),
            reason,
        };
        let entry = self
            .entries
            .get(name)
            .ok_or_else(|| error(&self.path, "is not in the file".to_owned()))?;
        let (file, source) = &self.parts[entry.part];
        let dtype = entry.dtype.map_err(|dtype| error(file, unsupported(dtype)))?;
        Tensor::shared(dtype, entry.shape, Arc::clone(source), entry.range.clone())
            .map_err(|e| error(file, e.to_string()))
    }
}
