//! Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q8_1: 32 elements with one f16 scale, and a minimum for the `_1` types.
//! Element `i` is the low nibble of byte `i`, element `i + 16` the high one; fifth bits are a u32 of 32 bits.

use super::blocks::{f16_at, inverse, largest_magnitude, put_f16, u32_at};

pub(super) fn q4_0(b: &[u8; 18], out: &mut [f32; 32]) {
    let d = f16_at(b, 0);
    for i in 0..16 {
        out[i] = d * f32::from((b[2 + i] & 15) as i8 - 8);
        out[i + 16] = d * f32::from((b[2 + i] >> 4) as i8 - 8);
    }
}

pub(super) fn q4_1(b: &[u8; 20], out: &mut [f32; 32]) {
    let (d, m) = (f16_at(b, 0), f16_at(b, 2));
    for i in 0..16 {
        out[i] = d * f32::from(b[4 + i] & 15) + m;
        out[i + 16] = d * f32::from(b[4 + i] >> 4) + m;
    }
}

/// The fifth bit of element `i`, in place.
#[inline(always)]
fn fifth(bits: u32, i: usize) -> u8 {
    ((bits >> i) & 1) as u8 * 16
}

pub(super) fn q5_0(b: &[u8; 22], out: &mut [f32; 32]) {
    let (d, high) = (f16_at(b, 0), u32_at(b, 2));
    for i in 0..16 {
        let (lo, hi) = ((b[6 + i] & 15) | fifth(high, i), (b[6 + i] >> 4) | fifth(high, i + 16));
        out[i] = d * f32::from(lo as i8 - 16);
        out[i + 16] = d * f32::from(hi as i8 - 16);
    }
}

pub(super) fn q5_1(b: &[u8; 24], out: &mut [f32; 32]) {
    let (d, m, high) = (f16_at(b, 0), f16_at(b, 2), u32_at(b, 4));
    for i in 0..16 {
        out[i] = d * f32::from((b[8 + i] & 15) | fifth(high, i)) + m;
        out[i + 16] = d * f32::from((b[8 + i] >> 4) | fifth(high, i + 16)) + m;
    }
}

pub(super) fn q8_0(b: &[u8; 34], out: &mut [f32; 32]) {
    let d = f16_at(b, 0);
    for (o, &q) in out.iter_mut().zip(&b[2..]) {
        *o = f32::from(q as i8) * d;
    }
}

/// As Q8_0; the f16 after the scale is `d * sum(q)`, which decoding does not need.
pub(super) fn q8_1(b: &[u8; 36], out: &mut [f32; 32]) {
    let d = f16_at(b, 0);
    for (o, &q) in out.iter_mut().zip(&b[4..]) {
        *o = f32::from(q as i8) * d;
    }
}

/// The element of largest magnitude with its sign, the first one on ties.
fn extreme(v: &[f32; 32]) -> f32 {
    v.iter().fold(0.0f32, |m, &v| if v.abs() > m.abs() { v } else { m })
}

fn min_max(v: &[f32; 32]) -> (f32, f32) {
    v.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(lo, hi), &v| {
        (lo.min(v), hi.max(v))
    })
}

/// Levels of the symmetric types: `trunc(v / d + bias)`, at most `most`.
fn symmetric(v: &[f32; 32], d: f32, bias: f32, most: u8) -> [u8; 32] {
    let id = inverse(d);
    v.map(|v| ((v * id + bias) as u8).min(most))
}

/// Levels of the types with a minimum: `trunc((v - min) / d + 1/2)`, at most `most`.
fn offset(v: &[f32; 32], d: f32, min: f32, most: u8) -> [u8; 32] {
    let id = inverse(d);
    v.map(|v| (((v - min) * id + 0.5) as u8).min(most))
}

/// Low four bits of 32 levels.
fn put_nibbles(b: &mut [u8], q: &[u8; 32]) {
    for (i, b) in b.iter_mut().enumerate().take(16) {
        *b = (q[i] & 15) | (q[i + 16] << 4);
    }
}

/// Fifth bits of 32 levels.
fn fifth_bits(q: &[u8; 32]) -> [u8; 4] {
    let bits = q
        .iter()
        .enumerate()
        .fold(0u32, |bits, (i, &q)| bits | (u32::from(q >> 4) & 1) << i);
    bits.to_le_bytes()
}

pub(super) fn to_q4_0(v: &[f32; 32], b: &mut [u8; 18]) {
    let d = extreme(v) / -8.0;
    put_f16(b, 0, d);
    put_nibbles(&mut b[2..], &symmetric(v, d, 8.5, 15));
}

pub(super) fn to_q4_1(v: &[f32; 32], b: &mut [u8; 20]) {
    let (min, max) = min_max(v);
    let d = (max - min) / 15.0;
    put_f16(b, 0, d);
    put_f16(b, 2, min);
    put_nibbles(&mut b[4..], &offset(v, d, min, 15));
}

pub(super) fn to_q5_0(v: &[f32; 32], b: &mut [u8; 22]) {
    let d = extreme(v) / -16.0;
    let q = symmetric(v, d, 16.5, 31);
    put_f16(b, 0, d);
    b[2..6].copy_from_slice(&fifth_bits(&q));
    put_nibbles(&mut b[6..], &q);
}

pub(super) fn to_q5_1(v: &[f32; 32], b: &mut [u8; 24]) {
    let (min, max) = min_max(v);
    let d = (max - min) / 31.0;
    let q = offset(v, d, min, 31);
    put_f16(b, 0, d);
    put_f16(b, 2, min);
    b[4..8].copy_from_slice(&fifth_bits(&q));
    put_nibbles(&mut b[8..], &q);
}

pub(super) fn to_q8_0(v: &[f32; 32], b: &mut [u8; 34]) {
    let d = largest_magnitude(v) / 127.0;
    let id = inverse(d);
    put_f16(b, 0, d);
    for (b, v) in b[2..].iter_mut().zip(v) {
        // Half away from zero, as C's roundf.
        *b = (v * id).round() as i8 as u8;
    }
}
