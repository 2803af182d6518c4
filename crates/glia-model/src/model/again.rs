//! Weights that are read once more, for an executor that lost its device: mapped files are still there, files that were
//! read into memory are opened again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use glia_core::{DType, Shape, Tensor};
use glia_ir::{Reopen, WeightError, WeightSource};

use super::ModelError;
use super::source::{Files, ModelWeights};

/// Files that were read into memory, to be read again from where they lay.
#[derive(Clone)]
pub(super) struct Origin {
    path: PathBuf,
    n_bytes: usize,
    modified: Option<SystemTime>,
}

impl Origin {
    pub fn new(path: &Path, files: &Files) -> Origin {
        Origin {
            path: path.to_owned(),
            n_bytes: files.size_bytes(),
            modified: modified(path),
        }
    }

    fn open(&self) -> Result<Files, ModelError> {
        let files = Files::open(&self.path, false)?;
        if files.size_bytes() != self.n_bytes || modified(&self.path) != self.modified {
            return Err(ModelError::Path {
                path: self.path.display().to_string(),
                reason: "has changed since it was read: open the model again".to_owned(),
            });
        }
        Ok(files)
    }
}

fn modified(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|m| m.modified()).ok()
}

/// How to read these weights later, without a copy of them in memory until then.
pub(super) fn reopen(weights: &ModelWeights) -> Reopen {
    let (spec, generated) = (weights.spec.clone(), weights.generated.clone());
    let files: Box<dyn Fn() -> Result<Arc<Files>, ModelError> + Send + Sync> = match weights.origin.clone() {
        Some(origin) => Box::new(move || Ok(Arc::new(origin.open()?))),
        None => {
            let files = weights.files.clone();
            Box::new(move || Ok(files.clone()))
        }
    };
    Box::new(move || {
        Ok(Box::new(Reread(ModelWeights {
            files: files()?,
            spec: spec.clone(),
            generated: generated.clone(),
            origin: None,
        })))
    })
}

/// Weights that are read once more, then given back.
struct Reread(ModelWeights);

impl WeightSource for Reread {
    fn meta(&self, name: &str) -> Option<(DType, Shape)> {
        self.0.meta(name)
    }

    fn get(&self, name: &str) -> Result<Tensor, WeightError> {
        self.0.get(name)
    }
}

impl Drop for Reread {
    fn drop(&mut self) {
        self.0.files.release();
    }
}
