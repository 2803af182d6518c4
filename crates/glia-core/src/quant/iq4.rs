//! IQ4_NL and IQ4_XS: nibbles that index sixteen unevenly spaced levels.

use super::blocks::{f16_at, nibble_at, u16_at};

/// The levels of IQ4_NL and IQ4_XS, in multiples of the scale.
pub const LEVELS: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

#[inline(always)]
fn put(out: &mut [f32; 32], scale: f32, nibbles: &[u8]) {
    for (i, &q) in nibbles.iter().enumerate().take(16) {
        out[i] = scale * f32::from(LEVELS[usize::from(q & 15)]);
        out[i + 16] = scale * f32::from(LEVELS[usize::from(q >> 4)]);
    }
}

/// `d`, nibbles as in Q4_0.
pub(super) fn iq4_nl(b: &[u8; 18], out: &mut [f32; 32]) {
    put(out, f16_at(b, 0), &b[2..]);
}

/// `d`, high bits of the scales (u16, two each), low nibbles of the scales, then 32 elements per 16 bytes.
pub(super) fn iq4_xs(b: &[u8; 136], out: &mut [f32; 256]) {
    let (d, high) = (f16_at(b, 0), u16_at(b, 2));
    for (sub, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let scale = nibble_at(b, 4, sub) | (((high >> (2 * sub)) & 3) as u8) << 4;
        let at = 8 + 16 * sub;
        put(out, d * f32::from(scale as i8 - 32), &b[at..at + 16]);
    }
}
