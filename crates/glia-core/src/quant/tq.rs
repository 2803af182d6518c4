//! TQ1_0 and TQ2_0: ternary weights with one f16 scale per 256 elements.

use super::blocks::{f16_at, inverse, largest_magnitude, put_f16};

const POWERS: [u8; 5] = [1, 3, 9, 27, 81];

/// Where TQ1_0 keeps its digits: bytes, first element, digits per byte. Digit `n` of byte `i` is element
/// `first + n * bytes + i`, the highest digit first.
const RUNS: [(std::ops::Range<usize>, usize, usize); 3] = [(0..32, 0, 5), (32..48, 160, 5), (48..52, 240, 4)];

/// Five digits of base 3 per byte, as a fraction of 256, then `d`.
pub(super) fn tq1_0(b: &[u8; 54], out: &mut [f32; 256]) {
    let d = f16_at(b, 52);
    for (bytes, first, digits) in RUNS {
        let n = bytes.len();
        for (digit, power) in POWERS.into_iter().enumerate().take(digits) {
            let out = &mut out[first + digit * n..first + (digit + 1) * n];
            for (o, &q) in out.iter_mut().zip(&b[bytes.clone()]) {
                let q = (u16::from(q.wrapping_mul(power)) * 3) >> 8;
                *o = d * f32::from(q as i8 - 1);
            }
        }
    }
}

/// Four bit pairs per byte (32 bytes hold 128 elements, 32 per pair), then `d`.
pub(super) fn tq2_0(b: &[u8; 66], out: &mut [f32; 256]) {
    let d = f16_at(b, 64);
    for (sub, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (at, shift) = (sub / 4 * 32, sub % 4 * 2);
        for (o, &q) in out.iter_mut().zip(&b[at..at + 32]) {
            *o = d * f32::from(((q >> shift) & 3) as i8 - 1);
        }
    }
}

/// -1, 0, 1 as 0, 1, 2, and the scale.
fn ternary(v: &[f32; 256]) -> ([u8; 256], f32) {
    let d = largest_magnitude(v);
    let id = inverse(d);
    (v.map(|v| ((v * id).round() as i8 + 1) as u8), d)
}

pub(super) fn to_tq1_0(v: &[f32; 256], b: &mut [u8; 54]) {
    let (q, d) = ternary(v);
    for (bytes, first, digits) in RUNS {
        let n = bytes.len();
        for (i, b) in b[bytes].iter_mut().enumerate() {
            let value: u16 = (0..digits)
                .map(|digit| u16::from(q[first + digit * n + i]) * u16::from(POWERS[4 - digit]))
                .sum();
            // Rounded up, so that the product with 3 ends above the digit.
            *b = (value * 256).div_ceil(243) as u8;
        }
    }
    put_f16(b, 52, d);
}

pub(super) fn to_tq2_0(v: &[f32; 256], b: &mut [u8; 66]) {
    let (q, d) = ternary(v);
    for (i, b) in b.iter_mut().enumerate().take(64) {
        let first = i / 32 * 128 + i % 32;
        *b = (0..4).fold(0, |byte, pair| byte | q[first + 32 * pair] << (2 * pair));
    }
    put_f16(b, 64, d);
}
