//! Addresses of all values in a step: slots laid out one behind the other for the step's sizes.

use glia_core::{BackendError, Sizes, Tensor};

use super::builder::{Lowered, Place};
use super::slots::slot_bytes;
use crate::arena::{Arena, RawValue};
use crate::error::too_large;

/// The outputs that a step writes directly, to be returned.
pub(crate) fn fresh_outputs(lowered: &Lowered, sizes: &Sizes) -> Result<Vec<Tensor>, BackendError> {
    let mut outputs = Vec::with_capacity(lowered.fresh.len());
    for &id in &lowered.fresh {
        let ty = &lowered.types[id as usize];
        let shape = ty.shape(sizes).ok_or_else(|| too_large("an output"))?;
        outputs.push(Tensor::zeros(ty.dtype, shape)?);
    }
    Ok(outputs)
}

/// Fills `values` with the address of every value. `inputs` and `fresh` must stay as they are during the step.
///
/// # Errors
/// [`BackendError::OutOfMemory`], or sizes that overflow.
pub(crate) fn resolve(
    lowered: &Lowered,
    sizes: &Sizes,
    arena: &mut Arena,
    inputs: &[Tensor],
    fresh: &mut [Tensor],
    values: &mut Vec<RawValue>,
) -> Result<(), BackendError> {
    let bytes = slot_bytes(lowered, sizes).ok_or_else(|| too_large("an intermediate"))?;
    let mut offsets = Vec::with_capacity(bytes.len());
    let mut total = 0usize;
    for n in bytes {
        offsets.push(total);
        total = total
            .checked_add(n)
            .ok_or_else(|| too_large("the sum of all intermediates"))?;
    }
    let base = arena.reserve(total)?;
    values.clear();
    for (place, ty) in lowered.places.iter().zip(&lowered.types) {
        let shaped = || ty.shape(sizes).ok_or_else(|| too_large("a value"));
        let value = match place {
            Place::Nowhere => RawValue::none(),
            Place::Input(i) => {
                let tensor = &inputs[*i];
                RawValue::constant(tensor.bytes()?, tensor.dtype(), *tensor.shape())
            }
            Place::Const(i) => {
                let tensor = &lowered.consts[*i];
                RawValue::constant(tensor.bytes()?, tensor.dtype(), *tensor.shape())
            }
            Place::Slot(slot) => {
                let len = ty.size_bytes(sizes).ok_or_else(|| too_large("a value"))?;
                // SAFETY: the slot is inside the arena, which grows before a step only.
                unsafe { RawValue::variable(base.add(offsets[*slot as usize]), len, ty.dtype, shaped()?) }
            }
            Place::Output(i) => {
                let bytes = fresh[*i].bytes_mut()?;
                // SAFETY: the tensor is fresh and nobody else's until the step has ended.
                unsafe { RawValue::variable(bytes.as_mut_ptr(), bytes.len(), ty.dtype, shaped()?) }
            }
            // Aliases come behind what they view.
            Place::Alias(of) => values[*of as usize].viewed(
                ty.dtype,
                shaped().or_else(|e| {
                    if matches!(lowered.places[*of as usize], Place::Nowhere) {
                        Ok(values[*of as usize].shape)
                    } else {
                        Err(e)
                    }
                })?,
            ),
        };
        values.push(value);
    }
    Ok(())
}
