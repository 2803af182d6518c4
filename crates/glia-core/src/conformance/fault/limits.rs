//! Wrong answers to NaN, infinity and very large numbers, which no formula gives: only their places are looked at.

use super::list;
use crate::Tensor;
use crate::conformance::compare::wrong_elems;
use crate::conformance::limits::Limit;

/// Inputs beyond this make exponentials overflow or vanish.
const LARGE: f64 = 80.0;

const LOST: &str = "NaN is lost: it is a value that stays in its element and spreads within its row (`relu(NaN)` is \
                    NaN, a row of softmax that holds NaN is all NaN)";
const MADE: &str = "NaN or infinity where the answer is a number: activations have limits (`silu(-inf)` is 0, not \
                    -inf * 0), and nothing may overflow on the way";
const INFINITE: &str = "infinity is a value: it is neither clamped nor lost";

/// What is wrong when only elements that are no ordinary numbers, or should be none, are.
pub(super) fn named(inputs: &[Tensor], got: &[Tensor], want: &[Tensor], limits: &[Limit]) -> Option<&'static str> {
    let extreme = |t: &Tensor| {
        let all = list(t).unwrap_or_default();
        t.dtype().is_float() && all.iter().any(|v| v.abs() >= LARGE || v.is_nan())
    };
    inputs.iter().any(extreme).then_some(())?;
    let mut says = None;
    for ((got, want), limit) in got.iter().zip(want).zip(limits) {
        let (a, b) = (list(got)?, list(want)?);
        for i in wrong_elems(got, want, limit) {
            let this = match (a[i].is_nan(), b[i].is_nan()) {
                (_, true) => LOST,
                _ if b[i].is_infinite() => INFINITE,
                (true, _) => MADE,
                _ if a[i].is_infinite() => MADE,
                _ => return None,
            };
            says = says.or(Some(this));
        }
    }
    says
}
