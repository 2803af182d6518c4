//! The files of a model, and where its tensors come from, under the names that its graph uses.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use glia_core::{DType, Shape, Tensor, TensorError, ValueType};
use glia_ir::{Reopen, WeightError, WeightSource};

use super::ModelError;
use super::again::{self, Origin};
use crate::family::FamilyError;
use crate::family::decoder::{WeightTypes, rope_weight_name};
use crate::family::gguf::{Transform, tensor_name};
use crate::family::spec::DecoderSpec;
use crate::gguf::{GgufFile, types};
use crate::printable::printable;
use crate::safetensors::SafetensorsFile;
use crate::weights;

/// The files of a model.
pub(super) enum Files {
    Gguf { file: GgufFile, arch: String },
    Safetensors(SafetensorsFile),
}

/// The tensors of one type.
pub(super) struct Kind {
    pub name: String,
    pub n_tensors: usize,
    pub size_bytes: usize,
    pub supported: bool,
}

impl Files {
    pub fn gguf(file: GgufFile) -> Files {
        let arch = file.get("general.architecture").and_then(|v| v.as_str()).unwrap_or("");
        let arch = arch.to_owned();
        Files::Gguf { file, arch }
    }

    /// Opens the weights at a path: a GGUF file, a safetensors file, or a folder of these.
    pub fn open(path: &Path, mmap: bool) -> Result<Files, ModelError> {
        if path.is_dir() {
            Files::open_folder(path, mmap)
        } else if path.extension().is_some_and(|e| e == "safetensors") {
            Files::open_safetensors(path, mmap)
        } else {
            Ok(Files::gguf(GgufFile::open(path, mmap)?))
        }
    }

    pub fn open_safetensors(path: &Path, mmap: bool) -> Result<Files, ModelError> {
        Ok(Files::Safetensors(SafetensorsFile::open(path, mmap)?))
    }

    /// The weights of a folder: one file, or the shards that an index lists.
    pub fn open_folder(folder: &Path, mmap: bool) -> Result<Files, ModelError> {
        let (single, index) = (
            folder.join("model.safetensors"),
            folder.join("model.safetensors.index.json"),
        );
        if single.exists() {
            Self::open_safetensors(&single, mmap)
        } else if index.exists() {
            Ok(Files::Safetensors(SafetensorsFile::open_sharded(&index, mmap)?))
        } else {
            Err(ModelError::Path {
                path: folder.display().to_string(),
                reason: "holds neither model.safetensors nor model.safetensors.index.json: weights in other forms \
                         (.bin, .pth) must be converted, as by save_pretrained(folder, safe_serialization=True)"
                    .to_owned(),
            })
        }
    }

    pub fn n_tensors(&self) -> usize {
        match self {
            Files::Gguf { file, .. } => file.tensors().len(),
            Files::Safetensors(file) => file.names().len(),
        }
    }

    /// A line per tensor.
    pub fn tensors(&self) -> Vec<String> {
        let line = |name: &str, dtype: &str, shape: &[usize], bytes: usize, supported: bool| {
            let size = if supported {
                bytes.to_string()
            } else {
                "not supported".to_owned()
            };
            let name = printable(name);
            format!("{name:<48} {dtype:<8} {:<20} {size}", format!("{shape:?}"))
        };
        match self {
            Files::Gguf { file, .. } => file
                .tensors()
                .iter()
                .map(|t| {
                    line(
                        &t.name,
                        &types::name(t.type_id),
                        &t.shape,
                        t.size_bytes,
                        t.dtype.is_some(),
                    )
                })
                .collect(),
            Files::Safetensors(file) => file
                .listed()
                .into_iter()
                .map(|t| line(t.name, &t.dtype, t.shape, t.size_bytes, t.supported))
                .collect(),
        }
    }

    /// Metadata entries as text.
    pub fn metadata(&self) -> Vec<(String, String)> {
        match self {
            Files::Gguf { file, .. } => file.metadata().map(|(k, v)| (printable(k), format!("{v:#}"))).collect(),
            Files::Safetensors(_) => Vec::new(),
        }
    }

    /// The types of the tensors, the largest first.
    pub fn dtypes(&self) -> Vec<Kind> {
        let mut kinds: Vec<Kind> = Vec::new();
        let mut add = |name: String, size_bytes: usize, supported: bool| match kinds.iter_mut().find(|k| k.name == name)
        {
            Some(kind) => (kind.n_tensors, kind.size_bytes) = (kind.n_tensors + 1, kind.size_bytes + size_bytes),
            None => kinds.push(Kind {
                name,
                n_tensors: 1,
                size_bytes,
                supported,
            }),
        };
        match self {
            Files::Gguf { file, .. } => file
                .tensors()
                .iter()
                .for_each(|t| add(types::name(t.type_id), t.size_bytes, t.dtype.is_some())),
            Files::Safetensors(file) => file
                .listed()
                .into_iter()
                .for_each(|t| add(t.dtype, t.size_bytes, t.supported)),
        }
        kinds.sort_by_key(|kind| std::cmp::Reverse(kind.size_bytes));
        kinds
    }

    /// Says that the files will not be read soon.
    pub fn release(&self) {
        match self {
            Files::Gguf { file, .. } => file.release(),
            Files::Safetensors(file) => file.release(),
        }
    }

    pub fn size_bytes(&self) -> usize {
        match self {
            Files::Gguf { file, .. } => file.size_bytes(),
            Files::Safetensors(file) => file.size_bytes(),
        }
    }
}

/// A weight in a file.
struct Stored {
    name: String,
    transform: Transform,
    dtype: DType,
    shape: Shape,
    /// The rows that are this weight, where the tensor holds others too.
    rows: Option<Range<usize>>,
}

/// Weights by Hugging Face name: from the file, or generated (rotations).
pub(super) struct ModelWeights {
    pub files: Arc<Files>,
    pub spec: Arc<DecoderSpec>,
    pub generated: HashMap<String, Tensor>,
    /// Where the files are opened again; `None` where they are held as they are, which costs no memory when mapped.
    pub origin: Option<Origin>,
}

impl ModelWeights {
    pub fn new(files: Arc<Files>, spec: Arc<DecoderSpec>) -> Result<ModelWeights, TensorError> {
        let mut generated = HashMap::new();
        for (index, rope) in spec.ropes.iter().enumerate() {
            let table = |v: &[f32]| Tensor::from_f32([v.len()], v);
            generated.insert(rope_weight_name(index, false), table(&rope.inv_freq)?);
            if let Some((long, _)) = &rope.long {
                generated.insert(rope_weight_name(index, true), table(long)?);
            }
        }
        Ok(ModelWeights {
            files,
            spec,
            generated,
            origin: None,
        })
    }

    /// Rows of a fused `attn_qkv` that are a weight or bias of their own in the graph, where the file has no other.
    fn rows_of_fused(&self, name: &str, stored: &str) -> Option<(String, Range<usize>)> {
        let s = &self.spec;
        let (q, kv) = (
            s.n_heads.checked_mul(s.head_dim)?,
            s.n_kv_heads.checked_mul(s.head_dim)?,
        );
        let (part, rows) = if name.contains(".q_proj.") {
            ("attn_q.", 0..q)
        } else if name.contains(".k_proj.") {
            ("attn_k.", q..q.checked_add(kv)?)
        } else if name.contains(".v_proj.") {
            ("attn_v.", q.checked_add(kv)?..q.checked_add(kv.checked_mul(2)?)?)
        } else {
            return None;
        };
        Some((stored.replacen(part, "attn_qkv.", 1), rows))
    }

    /// Where a weight lies in the file.
    fn stored(&self, name: &str) -> Option<Stored> {
        match &*self.files {
            Files::Gguf { file, arch } => {
                let (mut stored, transform) = tensor_name(&self.spec, arch, name)?;
                let mut rows = None;
                if file.tensor_info(&stored).is_none()
                    && let Some((fused, part)) = self.rows_of_fused(name, &stored)
                {
                    (stored, rows) = (fused, Some(part));
                }
                let info = file.tensor_info(&stored)?;
                let mut shape = info.shape.clone();
                if let (Some(rows), Some(n_rows)) = (&rows, shape.first_mut()) {
                    // A tensor of another height than q, k and v together is misshapen as a whole.
                    let kv = self.spec.n_kv_heads.checked_mul(self.spec.head_dim)?;
                    let whole = self
                        .spec
                        .n_heads
                        .checked_mul(self.spec.head_dim)?
                        .checked_add(kv.checked_mul(2)?)?;
                    if *n_rows == whole {
                        *n_rows = rows.len();
                    }
                }
                Some(Stored {
                    shape: Shape::try_new(&shape)?,
                    name: stored,
                    transform,
                    rows,
                    // An unsupported dtype is told of when the tensor is read.
                    dtype: info.dtype.unwrap_or(DType::F32),
                })
            }
            Files::Safetensors(file) => {
                // Base models are saved without the prefix of the model that wraps them,
                // those of a model that also sees have the decoder's in front.
                let bare = name.strip_prefix("model.").unwrap_or(name);
                let names = [
                    name.to_owned(),
                    bare.to_owned(),
                    format!("language_model.{name}"),
                    format!("model.language_model.{bare}"),
                ];
                let found = names.into_iter().find_map(|n| {
                    let (dtype, shape) = file.meta(&n)?;
                    Some((n, dtype, shape))
                })?;
                Some(Stored {
                    name: found.0,
                    transform: Transform::None,
                    dtype: found.1,
                    shape: found.2,
                    rows: None,
                })
            }
        }
    }
}

impl ModelWeights {
    /// The same error with the file's own name of the weight.
    pub fn in_stored_names(&self, mut error: FamilyError) -> FamilyError {
        if let Files::Gguf { arch, .. } = &*self.files
            && let FamilyError::MissingWeight { name } | FamilyError::WeightShape { name, .. } = &mut error
            && let Some((stored, _)) = tensor_name(&self.spec, arch, name)
        {
            *name = stored;
        }
        error
    }
}

impl WeightSource for ModelWeights {
    fn meta(&self, name: &str) -> Option<(DType, Shape)> {
        if let Some(tensor) = self.generated.get(name) {
            return Some((tensor.dtype(), *tensor.shape()));
        }
        let Stored { dtype, shape, .. } = self.stored(name)?;
        // Vectors (gains, biases) are given as F32, whatever the file holds.
        Some((if shape.rank() < 2 { DType::F32 } else { dtype }, shape))
    }

    fn get(&self, name: &str) -> Result<Tensor, WeightError> {
        if let Some(tensor) = self.generated.get(name) {
            return Ok(tensor.clone());
        }
        let stored = self.stored(name).ok_or("no tensor of this name")?;
        let mut tensor = match &*self.files {
            Files::Gguf { file, .. } => file.tensor(&stored.name)?,
            Files::Safetensors(file) => file.tensor(&stored.name)?,
        };
        if let Some(rows) = stored.rows {
            tensor = tensor.slice_rows(rows)?;
        }
        let tensor = if tensor.shape().rank() < 2 {
            weights::to_f32(tensor)?
        } else {
            tensor
        };
        Ok(weights::undo(tensor, stored.transform)?)
    }

    fn reopen(&self) -> Option<Reopen> {
        Some(again::reopen(self))
    }
}

impl WeightTypes for ModelWeights {
    fn weight_type(&self, name: &str) -> Option<ValueType> {
        let (dtype, shape) = self.meta(name)?;
        Some(ValueType::fixed(dtype, &shape))
    }
}
