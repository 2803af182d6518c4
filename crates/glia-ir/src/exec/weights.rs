//! Where weights come from: by name, lazily, so that what a backend has packed can be let go.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use glia_core::{BackendError, ConstId, ConstSource, DType, Shape, Tensor, ValueType};

use super::ExecError;
use crate::graph::{Graph, Vid};
use crate::pass::Derived;

/// Why a source cannot give a weight; the executor adds the weight's name.
pub type WeightError = Box<dyn std::error::Error + Send + Sync>;

/// Resolves weights by the names that the graph gives them.
pub trait WeightSource: Send + Sync {
    /// Dtype and shape of a weight, without reading it; `None` when there is none of this name.
    fn meta(&self, name: &str) -> Option<(DType, Shape)>;

    /// The weight.
    ///
    /// # Errors
    /// When it is unknown or cannot be read.
    fn get(&self, name: &str) -> Result<Tensor, WeightError>;

    /// How to read the same weights later, for an executor that compiles once more because a device was lost. What is
    /// returned is kept for as long as the executor lives, so it must hold no copy of the weights in memory: a path, an
    /// open file, a memory map. `None`, the default, lets the weights go once they are packed; after a loss, the graph
    /// must then be prepared again. [`HeldWeights`] is for weights that stay in memory anyway.
    fn reopen(&self) -> Option<Reopen> {
        None
    }
}

/// Opens weights once more: see [`WeightSource::reopen`].
pub type Reopen = Box<dyn Fn() -> Result<Box<dyn WeightSource>, WeightError> + Send + Sync>;

/// Weights that an executor may hold on to for as long as it lives.
#[derive(Clone)]
pub struct HeldWeights(pub Arc<dyn WeightSource>);

impl WeightSource for HeldWeights {
    fn meta(&self, name: &str) -> Option<(DType, Shape)> {
        self.0.meta(name)
    }

    fn get(&self, name: &str) -> Result<Tensor, WeightError> {
        self.0.get(name)
    }

    fn reopen(&self) -> Option<Reopen> {
        let held = self.clone();
        Some(Box::new(move || Ok(Box::new(held.clone()))))
    }
}

macro_rules! map_source {
    ($map:ident) => {
        impl WeightSource for $map<String, Tensor> {
            fn meta(&self, name: &str) -> Option<(DType, Shape)> {
                $map::get(self, name).map(|t| (t.dtype(), *t.shape()))
            }

            fn get(&self, name: &str) -> Result<Tensor, WeightError> {
                $map::get(self, name)
                    .cloned()
                    .ok_or_else(|| "no tensor of this name".into())
            }
        }
    };
}
map_source!(HashMap);
map_source!(BTreeMap);

macro_rules! pointer_source {
    ($pointer:ident) => {
        impl<W: WeightSource + ?Sized> WeightSource for $pointer<W> {
            fn meta(&self, name: &str) -> Option<(DType, Shape)> {
                (**self).meta(name)
            }

            fn get(&self, name: &str) -> Result<Tensor, WeightError> {
                (**self).get(name)
            }

            fn reopen(&self) -> Option<Reopen> {
                (**self).reopen()
            }
        }
    };
}
pointer_source!(Box);
pointer_source!(Arc);

impl<W: WeightSource + ?Sized> WeightSource for &W {
    fn meta(&self, name: &str) -> Option<(DType, Shape)> {
        (**self).meta(name)
    }

    fn get(&self, name: &str) -> Result<Tensor, WeightError> {
        (**self).get(name)
    }

    fn reopen(&self) -> Option<Reopen> {
        (**self).reopen()
    }
}

/// A source and the weights that folding has derived from it.
pub(crate) struct WithDerived<'a> {
    pub source: &'a dyn WeightSource,
    pub derived: &'a BTreeMap<String, Derived>,
}

impl WeightSource for WithDerived<'_> {
    fn meta(&self, name: &str) -> Option<(DType, Shape)> {
        match self.derived.get(name) {
            Some(Derived::View { ty, .. }) => Some((ty.dtype, ty.as_fixed()?)),
            Some(Derived::Value(tensor)) => Some((tensor.dtype(), *tensor.shape())),
            None => self.source.meta(name),
        }
    }

    fn get(&self, name: &str) -> Result<Tensor, WeightError> {
        match self.derived.get(name) {
            Some(view @ Derived::View { of, .. }) => Ok(view.resolve(&self.source.get(of)?)?),
            Some(Derived::Value(tensor)) => Ok(tensor.clone()),
            None => self.source.get(name),
        }
    }
}

/// Checks that every weight of the graph is there with the declared type; reads none.
pub(crate) fn check(graph: &Graph, source: &dyn WeightSource) -> Result<(), ExecError> {
    for (_, value) in graph.weights() {
        let Some((dtype, shape)) = source.meta(&value.name) else {
            return Err(ExecError::MissingWeight {
                name: value.name.clone(),
                expected: value.ty.clone(),
            });
        };
        if dtype != value.ty.dtype || value.ty.as_fixed() != Some(shape) {
            return Err(ExecError::WeightMismatch {
                name: value.name.clone(),
                expected: value.ty.clone(),
                got: ValueType::fixed(dtype, &shape),
            });
        }
    }
    Ok(())
}

/// Reads a weight and checks that it is what the source said.
pub(super) fn read(graph: &Graph, id: Vid, source: &dyn WeightSource) -> Result<Tensor, ExecError> {
    let value = graph.value(id);
    let tensor = source.get(&value.name).map_err(|source| ExecError::WeightRead {
        name: value.name.clone(),
        source,
    })?;
    if tensor.dtype() != value.ty.dtype || value.ty.as_fixed().as_ref() != Some(tensor.shape()) {
        return Err(ExecError::WeightMismatch {
            name: value.name.clone(),
            expected: value.ty.clone(),
            got: ValueType::fixed(tensor.dtype(), tensor.shape()),
        });
    }
    tensor.check_on_host().map_err(|e| ExecError::WeightRead {
        name: value.name.clone(),
        source: Box::new(e),
    })?;
    Ok(tensor)
}

/// The weights of a graph by id, for programs.
pub(super) struct Consts<'a> {
    pub graph: &'a Graph,
    pub weights: &'a [Vid],
    pub source: &'a dyn WeightSource,
}

impl ConstSource for Consts<'_> {
    fn tensor(&self, id: ConstId) -> Result<Tensor, BackendError> {
        let vid = self.weights.get(id.index()).ok_or(BackendError::UnknownId {
            what: "weight",
            id: id.0.into(),
        })?;
        read(self.graph, *vid, self.source).map_err(|e| match e {
            ExecError::Backend(e) => e,
            other => BackendError::Other(Box::new(other)),
        })
    }

    fn n_consts(&self) -> usize {
        self.weights.len()
    }
}
