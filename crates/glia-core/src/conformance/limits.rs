//! How far an output may be from the oracle's, per op, dtype and precision, each with its reason.

use std::fmt;

use crate::{Binary, DType, Op, Precision, Tensor, Unary};

/// What one element may differ by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Element {
    /// Nothing (zeros of either sign are equal).
    Exact,
    /// This share of the element. Results below the smallest normal f32 may be flushed to zero.
    Relative(f64),
    /// This share of the element, or of one for smaller elements.
    Unit(f64),
    /// This share of the largest element of the tensor.
    Peak(f64),
}

impl Element {
    pub fn allowed(self, want: f64, peak: f64) -> f64 {
        match self {
            Element::Exact => 0.0,
            Element::Relative(share) => share * want.abs() + f64::from(f32::MIN_POSITIVE),
            Element::Unit(share) => share * want.abs().max(1.0),
            Element::Peak(share) => share * peak + f64::from(f32::MIN_POSITIVE),
        }
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Element::Exact => f.write_str("nothing, it is exact"),
            Element::Relative(share) => write!(f, "{share:.0e} of the element"),
            Element::Unit(share) => write!(f, "{share:.0e} of the element, or of 1"),
            Element::Peak(share) => write!(f, "{share:.0e} of the largest element"),
        }
    }
}

/// The limit of one output.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Limit {
    /// Most of `sum((got - want)²) / sum(want²)` over finite elements.
    pub nmse: f64,
    /// Most of every element.
    pub element: Element,
    /// Size that outputs have unless they cancel: errors are never judged against less.
    pub typical: f64,
    /// Why this much.
    pub why: &'static str,
}

impl Limit {
    pub const EXACT: Limit = Limit {
        nmse: 0.0,
        element: Element::Exact,
        typical: 0.0,
        why: "elements are moved, chosen or counted, not computed",
    };

    const fn of(nmse: f64, element: Element, why: &'static str) -> Limit {
        Limit {
            nmse,
            element,
            typical: 0.0,
            why,
        }
    }
}

/// The limit of an output of `dtype`.
pub(super) fn limit(op: &Op, inputs: &[Tensor], dtype: DType, precision: Precision) -> Limit {
    let mut limit = in_f32(op, inputs, precision);
    limit.typical = typical(op, inputs);
    if limit.element == Element::Exact || matches!(op, Op::Cast { .. } | Op::TokenEmbed) {
        return limit;
    }
    // Half a unit in the last place for the result and as much for one rounding on the way.
    let unit = match dtype {
        DType::F16 => 1.0 / 1024.0,
        DType::BF16 => 1.0 / 128.0,
        _ => return limit,
    };
    limit.nmse = limit.nmse.max(unit * unit / 3.0);
    limit.why = "one unit in the last place of a 16-bit result";
    limit.element = match limit.element {
        Element::Relative(share) => Element::Relative(share.max(unit)),
        Element::Unit(share) => Element::Unit(share.max(unit)),
        Element::Peak(share) => Element::Peak(share.max(unit)),
        exact => exact,
    };
    limit
}

fn in_f32(op: &Op, inputs: &[Tensor], precision: Precision) -> Limit {
    match op {
        Op::Reshape { .. }
        | Op::Transpose { .. }
        | Op::Permute { .. }
        | Op::Slice { .. }
        | Op::Concat { .. }
        | Op::Split { .. }
        | Op::Gather { .. }
        | Op::Repeat { .. }
        | Op::KvCache
        | Op::Argmax { .. }
        | Op::TopK { .. } => Limit::EXACT,
        Op::Cast { .. } => Limit {
            why: "one rounding to nearest even, from the same number",
            ..Limit::EXACT
        },
        Op::Unary(Unary::Relu) | Op::Clamp { .. } => Limit::of(
            1e-14,
            Element::Relative(1e-7),
            "elements are chosen; denormals may be flushed to zero",
        ),
        Op::Binary(Binary::Div) => Limit::of(
            1e-12,
            Element::Relative(4e-7),
            "GPUs divide to 2.5 units in the last place",
        ),
        Op::Binary(_) | Op::Scale { .. } => Limit::of(
            1e-13,
            Element::Relative(1.2e-7),
            "one rounding of f32, denormals flushed",
        ),
        Op::Unary(_) | Op::Gated(_) => Limit::of(
            1e-10,
            Element::Unit(1e-5),
            "function values to 2^-17, as the weakest math libraries give them",
        ),
        Op::TokenEmbed => Limit::of(
            1e-12,
            Element::Peak(1e-6),
            "scale times number plus minimum, fused or not",
        ),
        Op::RmsNorm { .. } | Op::LayerNorm { .. } => {
            Limit::of(1e-11, Element::Peak(1e-5), "sums of a row in f32, in any order")
        }
        Op::Sum { .. } | Op::Mean { .. } => Limit::of(1e-11, Element::Peak(1e-5), "sums in f32, in any order"),
        Op::Softmax { .. } => Limit::of(1e-10, Element::Peak(1e-5), "exponentials to 2^-17, then sums in f32"),
        Op::Rope(_) => {
            let angle = largest_angle(inputs);
            // The angle is an f32 as the models were trained: half a unit in its last place turns the pair.
            let turn = 1e-5 + angle * f64::from(f32::EPSILON);
            Limit::of(turn * turn, Element::Peak(2.0 * turn), "the angle is rounded to f32")
        }
        Op::Sdpa(_) => Limit::of(
            1e-10,
            Element::Peak(2e-5),
            "exponentials to 2^-17, sums in f32 in any order",
        ),
        Op::MatMul => match (precision, inputs.get(1).map(Tensor::dtype)) {
            (Precision::Fast, Some(dtype)) if dtype.is_quantized() => {
                Limit::of(5e-4, Element::Peak(0.06), "activations of 8 bits, a scale per block")
            }
            (Precision::Fast, Some(DType::F16 | DType::BF16)) => {
                Limit::of(2e-5, Element::Peak(0.015), "activations of 8 significant bits")
            }
            _ => Limit::of(1e-11, Element::Peak(1e-5), "sums of products in f32, in any order"),
        },
        #[allow(unreachable_patterns)] // The vocabulary grows.
        _ => Limit::of(1e-10, Element::Peak(1e-5), "f32 throughout"),
    }
}

fn largest_angle(inputs: &[Tensor]) -> f64 {
    let most = |i: usize| {
        let values = inputs
            .get(i)
            .and_then(|t| super::compare::values(t).ok())
            .unwrap_or_default();
        values.iter().fold(0f64, |m, v| m.max(v.abs()))
    };
    most(1) * most(2).max(most(3))
}

/// The size of sums that do not cancel.
fn typical(op: &Op, inputs: &[Tensor]) -> f64 {
    let rms = |i: usize| {
        let values = inputs
            .get(i)
            .and_then(|t| super::compare::values(t).ok())
            .unwrap_or_default();
        let finite: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
        (finite.iter().map(|v| v * v).sum::<f64>() / finite.len().max(1) as f64).sqrt()
    };
    let size = |axis: usize| inputs.first().and_then(|t| t.shape().get(axis).copied()).unwrap_or(1) as f64;
    match op {
        Op::MatMul => rms(0) * rms(1) * inputs.first().map_or(1.0, |t| t.shape().last_dim() as f64).sqrt(),
        Op::Sum { axis, .. } => rms(0) * size(*axis).sqrt(),
        Op::Mean { axis, .. } => rms(0) / size(*axis).max(1.0).sqrt(),
        _ => 0.0,
    }
}
