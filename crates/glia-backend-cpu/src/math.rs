//! Elementary functions that vectorise: no branches, no fused steps, so every lane of every instruction level gives
//! the same bits.

/// 1.5 * 2^23: adding and taking it away rounds to an integer.
const ROUND: f32 = 12_582_912.0;

/// `e^x` to about 1 ulp; 0 below -87.3 (results that would be subnormal), infinite above 88.7, NaN stays NaN.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    let clamped = if x > 89.0 { 89.0 } else { x };
    let clamped = if clamped < -88.0 { -88.0 } else { clamped };
    let n = clamped * std::f32::consts::LOG2_E + ROUND - ROUND;
    // ln 2 in two parts; the first has trailing zeros, so that n times it is exact.
    let r = (clamped - n * 0.693_359_4) + n * 2.121_944_4e-4;
    let p = 1.984_127e-4f32;
    let p = p * r + 1.388_888_9e-3;
    let p = p * r + 8.333_333_4e-3;
    let p = p * r + 4.166_666_8e-2;
    let p = p * r + 1.666_666_7e-1;
    let p = p * r + 0.5;
    let p = (p * r) * r + r + 1.0;
    // 2^n as two factors: n reaches 128, one more than an exponent holds.
    let half = n * 0.5 + ROUND - ROUND;
    let power =
        |n: f32| f32::from_bits((((n + ROUND).to_bits().wrapping_sub(ROUND.to_bits())).wrapping_add(127)) << 23);
    let y = p * power(half) * power(n - half);
    let y = if x < -87.336_54 { 0.0 } else { y };
    if x > 88.722_84 { f32::INFINITY } else { y }
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// `x * sigmoid(x)`.
#[inline(always)]
pub(crate) fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// Hyperbolic tangent.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    let a = x.abs();
    let u = x * x;
    // Fitted to tanh(x)/x over x² below 0.36.
    let p = -5.856_428e-3f32;
    let p = p * u + 2.075_747_5e-2;
    let p = p * u - 5.376_992e-2;
    let p = p * u + 1.333_170_5e-1;
    let p = p * u - 3.333_328_5e-1;
    let small = p * u * x + x;
    let large = (1.0 - 2.0 / (exp(2.0 * a) + 1.0)).copysign(x);
    if a < 0.6 { small } else { large }
}

/// GELU, tanh form.
#[inline(always)]
pub(crate) fn gelu_tanh(x: f32) -> f32 {
    const ROOT_2_BY_PI: f32 = 0.797_884_6;
    0.5 * x * (1.0 + tanh(ROOT_2_BY_PI * (x + 0.044_715 * x * x * x)))
}

/// GELU, erf form.
#[inline(always)]
pub(crate) fn gelu(x: f32) -> f32 {
    let x = f64::from(x);
    (0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2))) as f32
}

/// Chebyshev coefficients of erf(x)/x in x²/8 - 1, fitted over x in 0..4.
const ERF: [f64; 20] = [
    4.85912956902862958e-1,
    -3.45407855004949693e-1,
    1.61829101213645882e-1,
    -7.64827561055088229e-2,
    3.46699368005072353e-2,
    -1.48118641478145168e-2,
    5.92293795623189540e-3,
    -2.21184065881002484e-3,
    7.71415427840174109e-4,
    -2.51596587809452840e-4,
    7.68865822107822660e-5,
    -2.20654959386701320e-5,
    5.96127404132396063e-6,
    -1.51977507122147406e-6,
    3.66493043182369868e-7,
    -8.37899833650013224e-8,
    1.82014486060921846e-8,
    -3.76447774508292816e-9,
    7.42736647740827088e-10,
    -1.40053151298502587e-10,
];

/// The error function to about 1e-8.
#[inline(always)]
fn erf(x: f64) -> f64 {
    let a = if x.abs() > 4.0 { 4.0 } else { x.abs() };
    let t = a * a / 8.0 - 1.0;
    let (mut b1, mut b2) = (0.0, 0.0);
    let mut k = ERF.len() - 1;
    while k > 0 {
        (b1, b2) = (2.0 * t * b1 - b2 + ERF[k], b1);
        k -= 1;
    }
    let y = (t * b1 - b2 + ERF[0]) * a;
    let y = if x.abs() > 4.0 { 1.0 } else { y };
    // NaN passes every comparison above: carry it through.
    if x.is_nan() { x } else { y.copysign(x) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_within_two_ulp() {
        let mut x = -87.3f32;
        let mut worst = 0f64;
        while x < 88.7 {
            let exact = f64::from(x).exp();
            worst = worst.max((f64::from(exp(x)) / exact - 1.0).abs());
            x += 0.001_37;
        }
        assert!(worst < 2.4e-7, "{worst}");
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn tanh_and_gelu_follow_their_f64_forms() {
        let mut x = -12f32;
        while x < 12.0 {
            let exact = f64::from(x).tanh();
            assert!(
                (f64::from(tanh(x)) - exact).abs() <= 1.5e-7 * exact.abs().max(1e-3),
                "tanh {x}"
            );
            let reference = f64::from(x) / (1.0 + (-f64::from(x)).exp());
            assert!(
                (f64::from(silu(x)) - reference).abs() <= 3e-7 * reference.abs().max(1e-3),
                "silu {x}"
            );
            x += 0.000_97;
        }
        // Values of the error function: Abramowitz and Stegun, table 7.1.
        for (x, y) in [(0.5, 0.520_499_877_8), (1.0, 0.842_700_792_9), (2.0, 0.995_322_265_0)] {
            assert!((erf(x) - y).abs() < 2e-8 && (erf(-x) + y).abs() < 2e-8, "erf {x}");
        }
        assert!(gelu(f32::NAN).is_nan() && tanh(f32::NAN).is_nan() && silu(f32::NAN).is_nan());
        assert_eq!(gelu(0.0), 0.0);
    }
}
