//! K-quants: superblocks of 256 elements, sub-blocks of 16 or 32 with small integer scales.

use super::blocks::{f16_at, u32_at};

/// Scales, levels (two bits), `d`, `dmin`. A sub-block of 16: `d sc q - dmin m`, scale and minimum in one byte.
pub(super) fn q2_k(b: &[u8; 84], out: &mut [f32; 256]) {
    let (d, dmin) = (f16_at(b, 80), f16_at(b, 82));
    for (sub, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let (dl, ml) = (d * f32::from(b[sub] & 15), dmin * f32::from(b[sub] >> 4));
        let (at, shift) = level_pairs(sub);
        for (o, &q) in out.iter_mut().zip(&b[16 + at..16 + at + 16]) {
            *o = dl * f32::from((q >> shift) & 3) - ml;
        }
    }
}

/// Where sub-block `sub` of 16 has its two-bit levels: byte and shift. 32 bytes hold 128 elements, 32 per bit pair.
#[inline(always)]
fn level_pairs(sub: usize) -> (usize, usize) {
    (sub / 8 * 32 + sub % 2 * 16, sub % 8 / 2 * 2)
}

/// High bits, levels (two bits), scales (6 bits, packed), `d`. A cleared high bit means minus 4.
pub(super) fn q3_k(b: &[u8; 110], out: &mut [f32; 256]) {
    let (scales, d) = (&b[96..108], f16_at(b, 108));
    for (sub, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let low = (scales[sub % 8] >> (sub / 8 * 4)) & 15;
        let high = (scales[8 + sub % 4] >> (sub / 4 * 2)) & 3;
        let dl = d * f32::from((low | high << 4) as i8 - 32);
        let (at, shift) = level_pairs(sub);
        let (levels, high) = (&b[32 + at..32 + at + 16], &b[sub % 2 * 16..sub % 2 * 16 + 16]);
        for ((o, &q), &h) in out.iter_mut().zip(levels).zip(high) {
            let minus = (!(h >> (sub / 2)) & 1) << 2;
            *o = dl * f32::from(((q >> shift) & 3) as i8 - minus as i8);
        }
    }
}

/// The 6-bit scale and minimum of sub-block `i` of 32, from the 12 bytes that Q4_K and Q5_K share.
#[inline(always)]
fn scale_min(s: &[u8], i: usize) -> (u8, u8) {
    if i < 4 {
        (s[i] & 63, s[i + 4] & 63)
    } else {
        let both = s[i + 4];
        (
            (both & 15) | ((s[i - 4] >> 2) & 0x30),
            (both >> 4) | ((s[i] >> 2) & 0x30),
        )
    }
}

/// `d`, `dmin`, scales, nibbles. A sub-block of 32: `d sc q - dmin m`.
pub(super) fn q4_k(b: &[u8; 144], out: &mut [f32; 256]) {
    let (d, dmin) = (f16_at(b, 0), f16_at(b, 2));
    for (sub, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (sc, m) = scale_min(&b[4..16], sub);
        let (dl, ml) = (d * f32::from(sc), dmin * f32::from(m));
        let (at, shift) = (16 + sub / 2 * 32, sub % 2 * 4);
        for (o, &q) in out.iter_mut().zip(&b[at..at + 32]) {
            *o = dl * f32::from((q >> shift) & 15) - ml;
        }
    }
}

/// As Q4_K with a fifth bit: bit `sub` of byte `i` of the 32 high bytes.
pub(super) fn q5_k(b: &[u8; 176], out: &mut [f32; 256]) {
    let (d, dmin) = (f16_at(b, 0), f16_at(b, 2));
    for (sub, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (sc, m) = scale_min(&b[4..16], sub);
        let (dl, ml) = (d * f32::from(sc), dmin * f32::from(m));
        let (at, shift) = (48 + sub / 2 * 32, sub % 2 * 4);
        for ((o, &q), &h) in out.iter_mut().zip(&b[at..at + 32]).zip(&b[16..48]) {
            let q = ((q >> shift) & 15) | ((h >> sub) & 1) << 4;
            *o = dl * f32::from(q) - ml;
        }
    }
}

/// Low nibbles, high bit pairs, scales (i8), `d`. A sub-block of 16: `d sc (q - 32)`.
pub(super) fn q6_k(b: &[u8; 210], out: &mut [f32; 256]) {
    let d = f16_at(b, 208);
    for (sub, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let dl = d * f32::from(b[192 + sub] as i8);
        // 64 bytes of low nibbles and 32 of bit pairs hold 128 elements: 64 per nibble, 32 per bit pair.
        let (half, within) = (sub / 8, sub % 8);
        let (low_at, low_shift) = (half * 64 + within % 4 * 16, within / 4 * 4);
        let (high_at, high_shift) = (128 + half * 32 + within % 2 * 16, within / 2 * 2);
        let (low, high) = (&b[low_at..low_at + 16], &b[high_at..high_at + 16]);
        for ((o, &l), &h) in out.iter_mut().zip(low).zip(high) {
            let q = ((l >> low_shift) & 15) | ((h >> high_shift) & 3) << 4;
            *o = dl * f32::from(q as i8 - 32);
        }
    }
}

/// `d` in f32, levels (i8), sums of 16 that decoding does not need.
pub(super) fn q8_k(b: &[u8; 292], out: &mut [f32; 256]) {
    let d = f32::from_bits(u32_at(b, 0));
    for (o, &q) in out.iter_mut().zip(&b[4..260]) {
        *o = d * f32::from(q as i8);
    }
}
