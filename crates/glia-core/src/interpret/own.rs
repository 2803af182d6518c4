//! What the interpreter computes itself, so that it works on every backend: lookups, and rows picked by index.

use super::ints::read_indices;
use crate::{BackendError, DType, NodeView, Op, Tensor};

/// How one instruction runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// By the backend's `execute_node`.
    Backend,
    /// A view of the input's bytes.
    View,
    /// An append to the sequence's rows.
    Cache,
    /// A lookup in a table.
    Embed,
    /// Elements picked along an axis.
    Gather,
}

/// Whether the interpreter runs this node whatever the backend says: `Reshape`, `KvCache`, `TokenEmbed` and, on
/// plain dtypes or whole rows, `Gather`.
pub fn interpreter_runs(node: &NodeView<'_>) -> bool {
    own_route(node).is_some()
}

fn own_route(node: &NodeView<'_>) -> Option<Route> {
    match node.op {
        Op::Reshape { .. } => Some(Route::View),
        Op::KvCache => Some(Route::Cache),
        Op::TokenEmbed => Some(Route::Embed),
        Op::Gather { .. } => Some(Route::Gather),
        _ => None,
    }
}

/// The route of a node: views and caches are always the interpreter's, lookups only when the backend has none.
pub(super) fn route(node: &NodeView<'_>, supported: bool) -> Option<Route> {
    match own_route(node) {
        Some(own @ (Route::View | Route::Cache)) => Some(own),
        _ if supported => Some(Route::Backend),
        own => own,
    }
}

/// Checks the ids of a lookup: rank 1, table of rank 2, each id in range.
pub(super) fn check_ids(ids: &Tensor, table_shape: &[usize]) -> Result<Vec<usize>, BackendError> {
    let op = "token_embed";
    if ids.shape().rank() != 1 {
        return Err(BackendError::invalid(
            op,
            format!("ids must have rank 1, not {}", ids.shape()),
        ));
    }
    let [vocab, _] = table_shape else {
        return Err(BackendError::invalid(
            op,
            format!("the table must have rank 2, not {table_shape:?}"),
        ));
    };
    read_indices(op, ids, *vocab, "the vocabulary size is")
}

/// Rows of `table` by id, as F32.
pub(super) fn embed(ids: &Tensor, table: &Tensor) -> Result<Tensor, BackendError> {
    let ids = check_ids(ids, table.shape())?;
    let (vocab, width) = (table.shape()[0], table.shape()[1]);
    let mut out = Tensor::zeros(DType::F32, [ids.len(), width])?;
    if width == 0 || vocab == 0 {
        return Ok(out);
    }
    let bytes = table.bytes()?;
    let row_bytes = bytes.len() / vocab;
    let rows = out.as_f32_mut()?.chunks_exact_mut(width);
    for (id, row) in ids.into_iter().zip(rows) {
        let source = &bytes[id * row_bytes..(id + 1) * row_bytes];
        crate::quant::dequantize(table.dtype(), source, row)
            .map_err(|e| BackendError::invalid("token_embed", e.to_string()))?;
    }
    Ok(out)
}

/// Elements of `axis` by index. Works on bytes, so on every plain dtype, and on quantised ones along outer axes.
pub(super) fn gather(x: &Tensor, indices: &Tensor, axis: usize) -> Result<Tensor, BackendError> {
    let shape = *x.shape();
    let (rank, dtype) = (shape.rank(), x.dtype());
    if axis >= rank || (dtype.is_quantized() && axis + 1 == rank) {
        let reason = format!("axis {axis} of {dtype} {shape} cannot be picked from");
        return Err(BackendError::shape("gather", reason));
    }
    let picked = read_indices("gather", indices, shape[axis], "the dimension has")?;
    let mut out = Tensor::zeros(dtype, shape.with_dim(axis, picked.len()))?;
    let n_outer: usize = shape[..axis].iter().product();
    let blocks = n_outer.saturating_mul(shape[axis]);
    if blocks == 0 || picked.is_empty() {
        return Ok(out);
    }
    let inner_bytes = x.size_bytes() / blocks;
    if inner_bytes == 0 {
        return Ok(out);
    }
    let source = x.bytes()?;
    for (i, target) in out.bytes_mut()?.chunks_exact_mut(inner_bytes).enumerate() {
        let from = (i / picked.len()) * shape[axis] + picked[i % picked.len()];
        target.copy_from_slice(&source[from * inner_bytes..(from + 1) * inner_bytes]);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gather_picks_along_any_axis() {
        let x = Tensor::from_f32([2, 3], &[0., 1., 2., 10., 11., 12.]).unwrap();
        let pick = |axis, ids: &[i32]| {
            let ids = Tensor::from_i32([ids.len()], ids).unwrap();
            gather(&x, &ids, axis).map(|t| t.as_f32().unwrap().to_vec())
        };
        assert_eq!(pick(0, &[1, 1]).unwrap(), [10., 11., 12., 10., 11., 12.]);
        assert_eq!(pick(1, &[2, 0]).unwrap(), [2., 0., 12., 10.]);
        assert_eq!(pick(0, &[]).unwrap(), [0f32; 0]);
        assert!(pick(0, &[2]).unwrap_err().to_string().contains("is 2, outside 0..2"));
        assert!(pick(2, &[0]).is_err());
    }

    #[test]
    fn embed_names_id_and_vocabulary() {
        let table = Tensor::from_f32([2, 1], &[5., 6.]).unwrap();
        let ids = |v: &[i32]| Tensor::from_i32([v.len()], v).unwrap();
        assert_eq!(embed(&ids(&[1, 0]), &table).unwrap().as_f32().unwrap(), [6., 5.]);
        for (bad, said) in [(ids(&[0, 2]), "is 2"), (ids(&[-1]), "is -1")] {
            let err = embed(&bad, &table).unwrap_err().to_string();
            assert!(err.contains(said) && err.contains("vocabulary size is 2"), "{err}");
        }
        let matrix = Tensor::from_i32([1, 1], &[0]).unwrap();
        assert!(embed(&matrix, &table).unwrap_err().to_string().contains("rank 1"));
        assert!(embed(&ids(&[0]), &Tensor::from_f32([2], &[0., 0.]).unwrap()).is_err());
    }
}
