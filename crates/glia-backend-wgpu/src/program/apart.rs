//! Steps of several sequences for programs that mix rows: each sequence runs alone, and the outputs are joined.

use glia_core::{BackendError, InputRole, Segment, SeqRows, Step, Tensor, ValueId, ValueKind};

use super::download;
use crate::gpu::Gpu;

/// What one sequence of a step gets.
pub(super) struct Part {
    pub rows: [SeqRows; 1],
    pub inputs: Vec<Tensor>,
    pub wanted: Vec<u32>,
}

/// Cuts a step into its sequences. Every named input has a row per token, which has been checked.
pub(super) fn parts(gpu: &std::sync::Arc<Gpu>, segment: &Segment, step: &Step<'_>) -> Result<Vec<Part>, BackendError> {
    let mut given = Vec::with_capacity(step.inputs.len());
    for tensor in step.inputs {
        given.push(download(gpu, tensor)?);
    }
    step.rows.iter().map(|row| part(segment, step, &given, row)).collect()
}

fn part(segment: &Segment, step: &Step<'_>, given: &[Tensor], row: &SeqRows) -> Result<Part, BackendError> {
    let range = row.first_row..row.first_row + row.n_rows;
    let own = step.wanted_rows.iter().filter(|&&w| range.contains(&(w as usize)));
    let wanted: Vec<u32> = own.map(|&w| w - row.first_row as u32).collect();
    let mut inputs = Vec::with_capacity(given.len());
    for (&id, tensor) in segment.inputs.iter().zip(given) {
        inputs.push(match &segment.value(id).kind {
            // A position fits: contexts do.
            ValueKind::Input(InputRole::Pos) => Tensor::from_i32([1], &[row.pos as i32])?,
            ValueKind::Input(InputRole::WantedRows) => {
                let wanted: Vec<i32> = wanted.iter().map(|&w| w as i32).collect();
                Tensor::from_i32([wanted.len()], &wanted)?
            }
            _ => tensor.slice_rows(range.clone())?.to_owned_aligned()?,
        });
    }
    Ok(Part {
        rows: [SeqRows { first_row: 0, ..*row }],
        inputs,
        wanted,
    })
}

/// An output of all sequences, on the host.
///
/// # Errors
/// [`BackendError::ShapeMismatch`] for one without a row per token.
pub(super) fn join(
    gpu: &std::sync::Arc<Gpu>,
    segment: &Segment,
    id: ValueId,
    pieces: &[Tensor],
) -> Result<Tensor, BackendError> {
    let def = segment.value(id);
    let mut bytes = Vec::new();
    let mut shape = None;
    let mut n_rows = 0;
    for piece in pieces {
        let piece = download(gpu, piece)?;
        n_rows += piece.shape().first().copied().unwrap_or(0);
        bytes.extend_from_slice(piece.bytes()?);
        shape = Some(*piece.shape());
    }
    match shape.filter(|_| def.ty.is_by_rows()) {
        Some(shape) => Ok(Tensor::from_bytes(def.ty.dtype, shape.with_dim(0, n_rows), &bytes)?),
        None => Err(BackendError::ShapeMismatch {
            op: "step".to_owned(),
            reason: format!(
                "output `{}` {} has no row per token: one sequence at a time",
                def.name, def.ty
            ),
        }),
    }
}
