//! Ops that move elements: they copy bytes, so that every dtype works, quantised ones by whole blocks.

use super::Outputs;
use super::array::Array;
use crate::{BackendError, Op, Shape, Tensor, read_indices};

/// Rows of the table by id.
pub(super) fn token_embed(ids: &Tensor, table: &Array) -> Result<Vec<f64>, BackendError> {
    let (n_rows, width) = (table.shape[0], table.shape[1]);
    let ids = read_indices("token_embed", ids, n_rows, "the vocabulary size is")?;
    Ok(ids
        .iter()
        .flat_map(|id| &table.data[id * width..][..width])
        .copied()
        .collect())
}

/// Where an element of an output comes from: input, and coordinates there, given those in the output.
type Source<'a> = Box<dyn Fn(&mut Vec<usize>) -> usize + 'a>;

/// Transpose, permute, slice, concat, split, gather, repeat.
pub(super) fn rearrange(op: &Op, inputs: &[&Tensor], shapes: &[Shape]) -> Outputs {
    let rank = inputs[0].shape().rank();
    let mut outputs = Vec::with_capacity(shapes.len());
    let mut first = 0;
    for shape in shapes {
        let source: Source<'_> = match op {
            Op::Transpose { a, b } => Box::new(move |at| {
                at.swap(*a, *b);
                0
            }),
            Op::Permute { perm } => Box::new(move |at| {
                let out = at.clone();
                for (i, &p) in perm.iter().enumerate() {
                    at[p] = out[i];
                }
                0
            }),
            Op::Slice { axis, start, .. } => Box::new(move |at| {
                at[*axis] += start;
                0
            }),
            Op::Split { axis, .. } => {
                let start = first;
                first += shape[*axis];
                Box::new(move |at| {
                    at[*axis] += start;
                    0
                })
            }
            Op::Concat { axis } => Box::new(move |at| {
                let last = *axis + 1 == rank;
                let mut input = 0;
                loop {
                    let size = units(inputs[input])[*axis];
                    if at[*axis] < size || (last && input + 1 == inputs.len()) {
                        return input;
                    }
                    at[*axis] -= size;
                    input += 1;
                }
            }),
            Op::Gather { axis } => {
                let limit = inputs[0].shape()[*axis];
                let picked = read_indices("gather", inputs[1], limit, "the dimension has")?;
                Box::new(move |at| {
                    at[*axis] = picked[at[*axis]];
                    0
                })
            }
            Op::Repeat { axis, n } => Box::new(move |at| {
                at[*axis] /= n;
                0
            }),
            _ => return Err(BackendError::invalid(op.kind(), "moves no elements")),
        };
        outputs.push(copy(inputs, *shape, &source)?);
    }
    Ok(outputs)
}

/// Dimensions in blocks.
fn units(tensor: &Tensor) -> Vec<usize> {
    let mut dims = tensor.shape().to_vec();
    if let Some(last) = dims.last_mut() {
        *last /= tensor.dtype().block_elems();
    }
    dims
}

fn copy(inputs: &[&Tensor], shape: Shape, source: &Source<'_>) -> Result<Tensor, BackendError> {
    let mut out = Tensor::zeros(inputs[0].dtype(), shape)?;
    let unit_bytes = out.dtype().block_bytes();
    let dims = units(&out);
    for (i, unit) in out.bytes_mut()?.chunks_exact_mut(unit_bytes).enumerate() {
        let mut at = vec![0; dims.len()];
        let mut index = i;
        for (c, &size) in at.iter_mut().zip(&dims).rev() {
            *c = index % size;
            index /= size;
        }
        let input = inputs[source(&mut at)];
        let offset = at
            .iter()
            .zip(units(input))
            .fold(0, |offset, (&c, size)| offset * size + c);
        unit.copy_from_slice(&input.bytes()?[offset * unit_bytes..][..unit_bytes]);
    }
    Ok(out)
}
