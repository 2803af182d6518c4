//! Shorthands for this backend's errors.

use glia_core::{BackendError, DType};

pub(crate) const NAME: &str = "cpu";

pub(crate) fn invalid(op: &str, reason: impl Into<String>) -> BackendError {
    BackendError::InvalidInput {
        op: op.to_owned(),
        reason: reason.into(),
    }
}

pub(crate) fn shape(op: &str, reason: impl Into<String>) -> BackendError {
    BackendError::ShapeMismatch {
        op: op.to_owned(),
        reason: reason.into(),
    }
}

pub(crate) fn dtype(op: &str, dtype: DType) -> BackendError {
    BackendError::UnsupportedDtype {
        backend: NAME.to_owned(),
        op: op.to_owned(),
        dtype,
    }
}

pub(crate) fn too_large(what: &str) -> BackendError {
    invalid("step", format!("{what} is too large to address"))
}
