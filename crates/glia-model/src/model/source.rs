//! Where a model's tensors come from, under the names that its graph uses.

use std::collections::HashMap;
use std::sync::Arc;

use glia_core::{DType, Shape, Tensor, ValueType};
use glia_ir::{WeightError, WeightSource};

use crate::family::decoder::{WeightTypes, rope_weight_name};
use crate::family::gguf::{Transform, tensor_name};
use crate::family::spec::DecoderSpec;
use crate::gguf::GgufFile;
use crate::safetensors::SafetensorsFile;
use crate::weights;

/// The files of a model.
pub(super) enum Files {
    Gguf { file: GgufFile, arch: String },
    Safetensors(SafetensorsFile),
}

impl Files {
    pub fn size_bytes(&self) -> usize {
        match self {
            Files::Gguf { file, .. } => file.size_bytes(),
            Files::Safetensors(file) => file.size_bytes(),
        }
    }
}

/// Weights by Hugging Face name: from the file, or generated (rotations).
pub(super) struct ModelWeights {
    pub files: Arc<Files>,
    pub spec: Arc<DecoderSpec>,
    pub generated: HashMap<String, Tensor>,
}

impl ModelWeights {
    pub fn new(files: Arc<Files>, spec: Arc<DecoderSpec>) -> Result<ModelWeights, glia_core::TensorError> {
        let mut generated = HashMap::new();
        for (index, rope) in spec.ropes.iter().enumerate() {
            let table = |v: &[f32]| Tensor::from_f32([v.len()], v);
            generated.insert(rope_weight_name(index, false), table(&rope.inv_freq)?);
            if let Some((long, _)) = &rope.long {
                generated.insert(rope_weight_name(index, true), table(long)?);
            }
        }
        Ok(ModelWeights { files, spec, generated })
    }

    /// Name, transform and stored type of a weight in the file.
    fn stored(&self, name: &str) -> Option<(String, Transform, DType, Shape)> {
        match &*self.files {
            Files::Gguf { file, arch } => {
                let (stored, transform) = tensor_name(&self.spec, arch, name)?;
                let info = file.tensor_info(&stored)?;
                // An unsupported dtype is told of when the tensor is read.
                let dtype = info.dtype.unwrap_or(DType::F32);
                Some((stored, transform, dtype, Shape::try_new(&info.shape)?))
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
                Some((found.0, Transform::None, found.1, found.2))
            }
        }
    }
}

impl WeightSource for ModelWeights {
    fn meta(&self, name: &str) -> Option<(DType, Shape)> {
        if let Some(tensor) = self.generated.get(name) {
            return Some((tensor.dtype(), *tensor.shape()));
        }
        let (_, _, dtype, shape) = self.stored(name)?;
        // Vectors (gains, biases) are given as F32, whatever the file holds.
        Some((if shape.rank() < 2 { DType::F32 } else { dtype }, shape))
    }

    fn get(&self, name: &str) -> Result<Tensor, WeightError> {
        if let Some(tensor) = self.generated.get(name) {
            return Ok(tensor.clone());
        }
        let (stored, transform, ..) = self.stored(name).ok_or("no tensor of this name")?;
        let tensor = match &*self.files {
            Files::Gguf { file, .. } => file.tensor(&stored)?,
            Files::Safetensors(file) => file.tensor(&stored)?,
        };
        let tensor = if tensor.shape().rank() < 2 {
            weights::to_f32(tensor)?
        } else {
            tensor
        };
        Ok(weights::undo(tensor, transform)?)
    }
}

impl WeightTypes for ModelWeights {
    fn weight_type(&self, name: &str) -> Option<ValueType> {
        let (dtype, shape) = self.meta(name)?;
        Some(ValueType::fixed(dtype, &shape))
    }
}
