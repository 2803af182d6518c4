//! MXFP4 (OCP Microscaling 1.0) and NVFP4: E2M1 elements with a shared E8M0 or E4M3 scale.
//! Elements are kept doubled, so that they are integers, and scales halved.

use super::blocks::largest_magnitude;

/// The values of E2M1, doubled.
pub const E2M1_DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Half of `2^(e - 127)`. The two smallest are subnormal.
#[inline(always)]
fn e8m0_half(e: u8) -> f32 {
    f32::from_bits(match e {
        0 | 1 => 0x0020_0000 << e,
        _ => u32::from(e - 1) << 23,
    })
}

/// Half of an E4M3 scale without sign (bias 7); the NaN pattern is 0 and the sign bit is ignored.
#[inline(always)]
fn ue4m3_half(x: u8) -> f32 {
    if x == 0x7f {
        return 0.0;
    }
    let (exponent, mantissa) = ((x >> 3) & 15, f32::from(x & 7));
    if exponent == 0 {
        return mantissa / 1024.0;
    }
    // 2^(exponent - 8), a normal f32.
    (1.0 + mantissa / 8.0) * f32::from_bits((u32::from(exponent) + 119) << 23)
}

/// The scale, nibbles as in Q4_0.
pub(super) fn mxfp4(b: &[u8; 17], out: &mut [f32; 32]) {
    let d = e8m0_half(b[0]);
    for i in 0..16 {
        out[i] = d * f32::from(E2M1_DOUBLED[usize::from(b[1 + i] & 15)]);
        out[i + 16] = d * f32::from(E2M1_DOUBLED[usize::from(b[1 + i] >> 4)]);
    }
}

/// Four scales, then 16 elements per 8 bytes: low nibbles first.
pub(super) fn nvfp4(b: &[u8; 36], out: &mut [f32; 64]) {
    for (sub, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let d = ue4m3_half(b[sub]);
        for (i, &q) in b[4 + 8 * sub..12 + 8 * sub].iter().enumerate() {
            out[i] = d * f32::from(E2M1_DOUBLED[usize::from(q & 15)]);
            out[i + 8] = d * f32::from(E2M1_DOUBLED[usize::from(q >> 4)]);
        }
    }
}

pub(super) fn to_mxfp4(v: &[f32; 32], b: &mut [u8; 17]) {
    let max = largest_magnitude(v);
    // The exponent of the largest element less that of 4, the largest power of two in E2M1. The logarithm is rounded
    // to f32, as ggml has it: values just below a power of two may count as it.
    b[0] = if max > 0.0 {
        (f64::from(max).log2() as f32).floor() as i32 + 125
    } else {
        0
    }
    .clamp(0, 254) as u8;
    let d = e8m0_half(b[0]);
    let nearest = |v: f32| {
        let mut best = (f32::INFINITY, 0);
        for (i, &level) in (0u8..).zip(&E2M1_DOUBLED) {
            let error = (d * f32::from(level) - v).abs();
            if error < best.0 {
                best = (error, i);
            }
        }
        best.1
    };
    for i in 0..16 {
        b[1 + i] = nearest(v[i]) | nearest(v[i + 16]) << 4;
    }
}
