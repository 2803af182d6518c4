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
    let p = p * r + 8.333_334e-3;
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

/// The smallest number for -inf, whose products with zero are no numbers: the activations are zero there.
#[inline(always)]
fn above_infinity(x: f32) -> f32 {
    if x < f32::MIN { f32::MIN } else { x }
}

/// `x * sigmoid(x)`.
#[inline(always)]
pub(crate) fn silu(x: f32) -> f32 {
    let x = above_infinity(x);
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
    let x = above_infinity(x);
    0.5 * x * (1.0 + tanh(ROOT_2_BY_PI * (x + 0.044_715 * x * x * x)))
}

/// GELU, erf form.
#[inline(always)]
pub(crate) fn gelu(x: f32) -> f32 {
    let x = f64::from(above_infinity(x));
    (0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2))) as f32
}

/// Chebyshev coefficients of erf(x)/x in x²/8 - 1, fitted over x in 0..4.
const ERF: [f64; 20] = [
    0.485_912_956_902_862_96,
    -0.345_407_855_004_949_7,
    0.161_829_101_213_645_88,
    -0.076_482_756_105_508_82,
    0.034_669_936_800_507_235,
    -0.014_811_864_147_814_517,
    0.005_922_937_956_231_895,
    -0.002_211_840_658_810_025,
    0.000_771_415_427_840_174_1,
    -0.000_251_596_587_809_452_84,
    7.688_658_221_078_227e-5,
    -2.206_549_593_867_013_2e-5,
    5.961_274_041_323_961e-6,
    -1.519_775_071_221_474e-6,
    3.664_930_431_823_698_7e-7,
    -8.378_998_336_500_132e-8,
    1.820_144_860_609_218_5e-8,
    -3.764_477_745_082_928e-9,
    7.427_366_477_408_271e-10,
    -1.400_531_512_985_025_9e-10,
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
        let low = f32::NEG_INFINITY;
        assert_eq!([gelu(low), gelu_tanh(low), silu(low)], [0.0; 3]);
    }
}
