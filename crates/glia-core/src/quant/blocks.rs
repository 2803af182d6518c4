//! Loops over blocks, and what their fields have in common.

/// Decodes block by block. The block sizes follow from the signature of the decoder.
pub(super) fn decode<const B: usize, const E: usize>(
    bytes: &[u8],
    out: &mut [f32],
    block: impl Fn(&[u8; B], &mut [f32; E]),
) {
    for (b, o) in bytes.as_chunks::<B>().0.iter().zip(out.as_chunks_mut::<E>().0) {
        block(b, o);
    }
}

/// Encodes block by block. The block sizes follow from the signature of the encoder.
pub(super) fn encode<const B: usize, const E: usize>(
    values: &[f32],
    bytes: &mut [u8],
    block: impl Fn(&[f32; E], &mut [u8; B]),
) {
    for (v, b) in values.as_chunks::<E>().0.iter().zip(bytes.as_chunks_mut::<B>().0) {
        block(v, b);
    }
}

/// The little-endian f16 at byte `at`.
#[inline(always)]
pub(super) fn f16_at(b: &[u8], at: usize) -> f32 {
    half::f16::from_bits(u16_at(b, at)).to_f32()
}

/// The little-endian u16 at byte `at`.
#[inline(always)]
pub(super) fn u16_at(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([b[at], b[at + 1]])
}

/// The little-endian u32 at byte `at`.
#[inline(always)]
pub(super) fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

/// The `i`-th nibble from byte `at` on, low one first.
#[inline(always)]
pub(super) fn nibble_at(b: &[u8], at: usize, i: usize) -> u8 {
    (b[at + i / 2] >> (4 * (i % 2))) & 15
}

/// Writes an f16, rounded to nearest even, at byte `at`.
#[inline(always)]
pub(super) fn put_f16(b: &mut [u8], at: usize, value: f32) {
    b[at..at + 2].copy_from_slice(&half::f16::from_f32(value).to_le_bytes());
}

/// `1 / d`, and 0 where that is no number: the f16 scale of such a block is 0 as well.
#[inline(always)]
pub(super) fn inverse(d: f32) -> f32 {
    let inverse = 1.0 / d;
    if inverse.is_finite() { inverse } else { 0.0 }
}

/// Magnitude of the largest element.
pub(super) fn largest_magnitude(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |m, v| v.abs().max(m))
}

/// Writes `scale * grid` with the signs of `signs` (bit set: negative), lowest bit first.
#[inline(always)]
pub(super) fn signed<const N: usize>(out: &mut [f32], scale: f32, grid: &[i8; N], signs: u8) {
    for (j, (o, &g)) in out.iter_mut().zip(grid).enumerate() {
        let sign = u32::from(signs >> j) << 31;
        *o = f32::from_bits((scale * f32::from(g)).to_bits() ^ sign);
    }
}
