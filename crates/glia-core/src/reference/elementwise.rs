//! Elementwise ops: arithmetic with broadcasting, activations, gated units.

use super::array::Array;
use crate::{Binary, Gate, Unary};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI, FRAC_2_SQRT_PI, PI};

/// `f` of every element.
pub(super) fn map(x: Array, f: impl Fn(f64) -> f64) -> Vec<f64> {
    x.data.into_iter().map(f).collect()
}

/// NumPy broadcasting: dimensions are aligned at the end, size 1 repeats.
pub(super) fn binary(op: Binary, a: &Array, b: &Array, out: &[usize]) -> Vec<f64> {
    let n_elems: usize = out.iter().product();
    let at = |x: &Array, mut index: usize| {
        let (mut offset, mut stride) = (0, 1);
        for (i, &size) in out.iter().enumerate().rev() {
            let coordinate = index % size;
            index /= size;
            let Some(own) = (i + x.shape.rank()).checked_sub(out.len()) else {
                break;
            };
            if x.shape[own] > 1 {
                offset += coordinate * stride;
            }
            stride *= x.shape[own];
        }
        x.data[offset]
    };
    let apply = |x: f64, y: f64| match op {
        Binary::Add => x + y,
        Binary::Sub => x - y,
        Binary::Mul => x * y,
        Binary::Div => x / y,
    };
    (0..n_elems).map(|i| apply(at(a, i), at(b, i))).collect()
}

pub(super) fn gated(gate: Gate, a: &Array, b: &Array) -> Vec<f64> {
    let act = match gate {
        Gate::Silu => Unary::Silu,
        Gate::Gelu => Unary::Gelu,
        Gate::GeluTanh => Unary::GeluTanh,
    };
    a.data.iter().zip(&b.data).map(|(&g, &up)| unary(act, g) * up).collect()
}

pub(super) fn unary(op: Unary, x: f64) -> f64 {
    match op {
        // `-inf * 0` is no number; the limit is.
        Unary::Silu | Unary::Gelu | Unary::GeluTanh if x == f64::NEG_INFINITY => -0.0,
        Unary::Silu => x * sigmoid(x),
        Unary::Gelu => x / 2.0 * erfc(-x * FRAC_1_SQRT_2),
        // (1 + tanh(z)) / 2 = sigmoid(2z), which keeps its digits where tanh nears -1.
        Unary::GeluTanh => x * sigmoid(2.0 * FRAC_2_PI.sqrt() * (x + 0.044715 * x * x * x)),
        Unary::Relu => {
            if x < 0.0 {
                0.0
            } else {
                x
            }
        }
        Unary::Sigmoid => sigmoid(x),
        Unary::Tanh => x.tanh(),
        Unary::Exp => x.exp(),
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Complementary error function: the series of erf (Abramowitz & Stegun 7.1.6) for small arguments, the continued
/// fraction (7.1.14) for large ones.
fn erfc(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    if x < 0.0 {
        return 2.0 - erfc(-x);
    }
    if x < 2.0 {
        let (mut term, mut sum) = (x, x);
        for n in 1..100 {
            term *= 2.0 * x * x / f64::from(2 * n + 1);
            sum += term;
        }
        return 1.0 - FRAC_2_SQRT_PI * (-x * x).exp() * sum;
    }
    let tail = (1..200).rev().fold(x, |tail, n| x + f64::from(n) / 2.0 / tail);
    (-x * x).exp() / (PI.sqrt() * tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erfc_agrees_with_tables() {
        // Abramowitz & Stegun, table 7.1, and known values of the tail.
        for (x, want) in [
            (0.0, 1.0),
            (0.5, 0.479_500_122_186_953_5),
            (1.0, 0.157_299_207_050_285_13),
            (2.0, 0.004_677_734_981_047_266),
            (3.0, 2.209_049_699_858_544e-5),
            (5.0, 1.537_459_794_428_034_8e-12),
            (-1.0, 1.842_700_792_949_715),
        ] {
            let got = erfc(x);
            assert!((got - want).abs() <= 1e-13 * want, "erfc({x}) = {got:e}, not {want:e}");
        }
        assert_eq!(erfc(f64::INFINITY), 0.0);
        // The two forms meet.
        assert!((erfc(2.0) - erfc(2.0f64.next_down())).abs() < 1e-15);
    }

    #[test]
    fn activations_have_their_limits() {
        for op in [Unary::Silu, Unary::Gelu, Unary::GeluTanh] {
            assert_eq!(unary(op, f64::NEG_INFINITY), 0.0);
            assert_eq!(unary(op, -1e6), 0.0);
            assert_eq!(unary(op, 1e6), 1e6);
            assert_eq!(unary(op, 0.0), 0.0);
            assert!(unary(op, f64::NAN).is_nan());
        }
        assert!(unary(Unary::Relu, f64::NAN).is_nan());
    }
}
