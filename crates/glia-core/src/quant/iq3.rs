//! IQ3_XXS and IQ3_S: vectors of four magnitudes from grids of 256 and 512, with signs apart.

use super::blocks::{f16_at, nibble_at, signed, u32_at};
use super::grid::{self, even_signs};

/// `d`, an index byte per four elements, then a u32 per 32 elements: four times seven signs, scale.
pub(super) fn iq3_xxs(b: &[u8; 98], out: &mut [f32; 256]) {
    let d = f16_at(b, 0);
    for (i, out) in out.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        let bits = u32_at(b, 66 + i / 8 * 4);
        let scale = d * (0.5 + (bits >> 28) as f32) * 0.5;
        let signs = even_signs(bits >> (i % 8 / 2 * 7));
        signed(out, scale, &grid::IQ3_XXS[usize::from(b[2 + i])], signs >> (i % 2 * 4));
    }
}

/// `d`, low index bytes, ninth index bits, sign bytes, a nibble of scale per 32 elements.
pub(super) fn iq3_s(b: &[u8; 110], out: &mut [f32; 256]) {
    let d = f16_at(b, 0);
    for (i, out) in out.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        let scale = d * f32::from(1 + 2 * nibble_at(b, 106, i / 8));
        let high = usize::from((b[66 + i / 8] >> (i % 8)) & 1);
        let grid = &grid::IQ3_S[usize::from(b[2 + i]) | high << 8];
        signed(out, scale, grid, b[74 + i / 2] >> (i % 2 * 4));
    }
}
