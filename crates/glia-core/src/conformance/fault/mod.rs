//! Mistakes that backends make, each as an oracle of its own: a wrong answer that equals one of these is named.
//!
//! The same list is planted in a backend by the tests, which see that each mistake is found and named.

mod attention;
mod backend;
mod blocks;
mod limits;
mod linear;
mod moves;
mod program;
mod rows;
mod scores;
mod state;
#[cfg(test)]
mod tests;

pub(super) use backend::FaultyBackend;
pub(super) use state::StateFault;

use super::compare::{ENOUGH, explains, pattern, wrong_elems};
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

/// Mistakes of one kind of op each, the likelier first.
fn specific() -> impl Iterator<Item = Fault> {
    let lists = [
        linear::FAULTS,
        blocks::FAULTS,
        attention::FAULTS,
        scores::FAULTS,
        rows::FAULTS,
        moves::FAULTS,
    ];
    lists.into_iter().flatten().copied()
}

/// All mistakes, the likelier first.
pub(super) fn all() -> Vec<Fault> {
    specific().chain(moves::GUESSES.iter().copied()).collect()
}

/// Mistakes of attention and rotation: those that can depend on the past.
pub(super) fn of_the_past() -> Vec<Fault> {
    attention::FAULTS.iter().chain(scores::FAULTS).copied().collect()
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
    let fits = |f: &Fault| (f.wrong)(op, inputs).is_some_and(|wrong| explained(&wrong));
    let says = |f: Fault| f.says.to_owned();
    let limit = || limits::named(inputs, got, want, limits).map(str::to_owned);
    if let Some(says) = specific().find(fits).map(says).or_else(limit) {
        return Some(says);
    }
    let triples = || got.iter().zip(want).zip(limits);
    let n_wrong: usize = triples().map(|((a, b), limit)| wrong_elems(a, b, limit).len()).sum();
    let n: usize = want.iter().map(Tensor::n_elems).sum();
    let mut guesses = moves::GUESSES.iter().filter(|_| n_wrong >= ENOUGH.min(n)).copied();
    let guess = guesses.find(fits).map(says);
    guess.or_else(|| triples().find_map(|((got, want), limit)| pattern(got, want, limit)))
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
