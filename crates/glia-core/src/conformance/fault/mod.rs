//! Mistakes that backends make, each as an oracle of its own: a wrong answer that equals one of these is named.
//!
//! The same list is planted in a backend by the tests, which see that each mistake is found and named.

mod attention;
mod backend;
mod linear;
mod moves;
mod program;
mod rows;
mod state;
#[cfg(test)]
mod tests;

pub(super) use backend::FaultyBackend;
pub(super) use state::StateFault;

use super::compare::explains;
use super::data::plain;
use super::limits::Limit;
use crate::{BackendError, DType, Op, Shape, Tensor, reference};

/// The wrong answer to an op on these inputs, or `None` where the mistake makes no sense.
type Wrong = fn(&Op, &[Tensor]) -> Option<Vec<Tensor>>;

/// A mistake in one op.
#[derive(Clone, Copy)]
pub(super) struct Fault {
    /// How a hint calls it.
    pub says: &'static str,
    pub wrong: Wrong,
}

/// All mistakes, the likelier first.
pub(super) fn all() -> Vec<Fault> {
    let lists = [linear::FAULTS, attention::FAULTS, rows::FAULTS, moves::FAULTS];
    lists.into_iter().flatten().copied().collect()
}

/// The mistake that explains every element of `got` that is not as in `want`.
pub(super) fn named(op: &Op, inputs: &[Tensor], got: &[Tensor], want: &[Tensor], limits: &[Limit]) -> Option<String> {
    let explained = |wrong: &[Tensor]| {
        let mut differs = false;
        wrong.len() == got.len()
            && (0..got.len()).all(|i| {
                let near = explains(&got[i], &want[i], &wrong[i], &limits[i]);
                differs |= near == Some(true);
                near.is_some()
            })
            && differs
    };
    let fault = all()
        .into_iter()
        .find(|f| (f.wrong)(op, inputs).is_some_and(|wrong| explained(&wrong)));
    fault.map(|f| f.says.to_owned())
}

/// The oracle's answer.
fn right(op: &Op, inputs: &[Tensor]) -> Option<Vec<Tensor>> {
    let inputs: Vec<&Tensor> = inputs.iter().collect();
    reference::execute(op, &inputs).ok()
}

/// The answer to other inputs.
fn with_input(op: &Op, inputs: &[Tensor], i: usize, other: Tensor) -> Option<Vec<Tensor>> {
    let mut inputs = inputs.to_vec();
    *inputs.get_mut(i)? = other;
    right(op, &inputs)
}

/// Elements as f64.
fn list(tensor: &Tensor) -> Option<Vec<f64>> {
    super::compare::values(tensor).ok()
}

/// A tensor of f64, for inputs of the oracle.
fn wide(tensor: &Tensor) -> Option<Tensor> {
    Some(plain(DType::F64, tensor.shape(), &list(tensor)?))
}

/// A tensor like another with other elements.
fn like(tensor: &Tensor, values: &[f64]) -> Tensor {
    plain(tensor.dtype(), tensor.shape(), values)
}

fn shaped(dtype: DType, shape: &Shape, values: &[f64]) -> Tensor {
    plain(dtype, shape, values)
}

/// One op of another kind on the same inputs.
fn one(op: Op, inputs: &[Tensor]) -> Option<Tensor> {
    right(&op, inputs)?.into_iter().next()
}

/// Runs an op with a mistake; where the mistake makes no sense, the right answer.
fn execute(fault: Option<&Fault>, op: &Op, inputs: &[&Tensor]) -> Result<Vec<Tensor>, BackendError> {
    if let Some(fault) = fault {
        let inputs: Vec<Tensor> = inputs.iter().map(|t| (*t).clone()).collect();
        if let Some(wrong) = (fault.wrong)(op, &inputs) {
            return Ok(wrong);
        }
    }
    reference::execute(op, inputs)
}
