// Functions of one number. Constants of a dispatch that some of them take: 1 and 2.
fn is_nan(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

fn sigmoid(x: f32) -> f32 {
    return 1.0 / (1.0 + exp(-x));
}

fn silu(x: f32) -> f32 {
    // The limit at minus infinity, where the product would be no number; exp overflows long before.
    return select(x * sigmoid(x), -0.0, x < -88.0);
}

// Complementary error function, relative error below 1.2e-7 everywhere (Press et al., Numerical Recipes, erfcc).
fn erfc(x: f32) -> f32 {
    let z = abs(x);
    let t = 1.0 / (1.0 + 0.5 * z);
    var s = 0.17087277;
    s = s * t - 0.82215223;
    s = s * t + 1.48851587;
    s = s * t - 1.13520398;
    s = s * t + 0.27886807;
    s = s * t - 0.18628806;
    s = s * t + 0.09678418;
    s = s * t + 0.37409196;
    s = s * t + 1.00002368;
    let r = t * exp(-z * z - 1.26551223 + t * s);
    return select(r, 2.0 - r, x < 0.0);
}

fn gelu(x: f32) -> f32 {
    return select(0.5 * x * erfc(-0.70710678118 * x), -0.0, x < -14.0);
}

fn gelu_tanh(x: f32) -> f32 {
    let z = 1.5957691216 * (x + 0.044715 * x * x * x);
    return select(x * sigmoid(z), -0.0, x < -12.0);
}

fn relu(x: f32) -> f32 {
    return select(x, 0.0, x < 0.0);
}

fn hyperbolic_tangent(x: f32) -> f32 {
    // Beyond 9 it is one in F32, and exp would overflow.
    let z = abs(x);
    let e = exp(-2.0 * min(z, 10.0));
    // Near zero the quotient would lose its digits.
    let small = z * (1.0 - z * z * (1.0 / 3.0 - z * z * (2.0 / 15.0 - z * z * (17.0 / 315.0))));
    let t = select((1.0 - e) / (1.0 + e), small, z < 0.15);
    let signed = bitcast<f32>(bitcast<u32>(t) | (bitcast<u32>(x) & 0x80000000u));
    return select(signed, x, is_nan(x));
}

fn exponential(x: f32) -> f32 {
    return exp(x);
}

fn scaled(x: f32) -> f32 {
    return x * pf(1u);
}

fn clamped(x: f32) -> f32 {
    // Not `clamp`, which may drop NaN.
    let low = select(x, pf(1u), x < pf(1u));
    return select(low, pf(2u), low > pf(2u));
}
