//! IQ1_S and IQ1_M: vectors of eight ternary elements from a grid of 2048, shifted by an eighth.

use super::blocks::{f16_at, u16_at};
use super::grid;

const DELTA: f32 = 0.125;

#[inline(always)]
fn put(out: &mut [f32; 8], scale: f32, index: usize, delta: f32) {
    for (o, &g) in out.iter_mut().zip(&grid::IQ1[index & 2047]) {
        *o = scale * (f32::from(g) + delta);
    }
}

/// `d`, low index bytes, then a u16 per 32 elements: four times three high index bits, scale, sign of the shift.
pub(super) fn iq1_s(b: &[u8; 50], out: &mut [f32; 256]) {
    let d = f16_at(b, 0);
    for (i, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let bits = u16_at(b, 34 + i / 4 * 2);
        let scale = d * f32::from(2 * ((bits >> 12) & 7) + 1);
        let delta = if bits & 0x8000 == 0 { DELTA } else { -DELTA };
        let high = usize::from((bits >> (3 * (i % 4))) & 7);
        put(out, scale, usize::from(b[2 + i]) | high << 8, delta);
    }
}

/// Low index bytes, a nibble per vector (high index bits, sign of the shift), scales of 16 elements with the f16
/// `d` in the top nibbles of their four u16.
pub(super) fn iq1_m(b: &[u8; 56], out: &mut [f32; 256]) {
    let scales: [u16; 4] = std::array::from_fn(|i| u16_at(b, 48 + 2 * i));
    let bits = scales[0] >> 12 | (scales[1] >> 8) & 0xf0 | (scales[2] >> 4) & 0xf00 | scales[3] & 0xf000;
    let d = half::f16::from_bits(bits).to_f32();
    for (i, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let sub = i / 2;
        let scale = d * f32::from(2 * ((scales[sub / 4] >> (3 * (sub % 4))) & 7) + 1);
        let nibble = b[32 + sub] >> (4 * (i % 2));
        let delta = if nibble & 8 == 0 { DELTA } else { -DELTA };
        put(out, scale, usize::from(b[i]) | usize::from(nibble & 7) << 8, delta);
    }
}
