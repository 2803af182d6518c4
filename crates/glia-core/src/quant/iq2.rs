//! IQ2_XXS, IQ2_XS, IQ2_S: vectors of eight magnitudes from grids of 256, 512 and 1024, with signs apart.

use super::blocks::{f16_at, nibble_at, signed, u16_at, u32_at};
use super::grid::{self, even_signs};

/// `d`, then per 32 elements four index bytes and a u32: four times seven signs, scale.
pub(super) fn iq2_xxs(b: &[u8; 66], out: &mut [f32; 256]) {
    let d = f16_at(b, 0);
    for (i, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let at = 2 + i / 4 * 8;
        let bits = u32_at(b, at + 4);
        let scale = d * (0.5 + (bits >> 28) as f32) * 0.25;
        let grid = &grid::IQ2_XXS[usize::from(b[at + i % 4])];
        signed(out, scale, grid, even_signs(bits >> (7 * (i % 4))));
    }
}

/// `d`, a u16 per vector (nine index bits, seven signs), a nibble of scale per 16 elements.
pub(super) fn iq2_xs(b: &[u8; 74], out: &mut [f32; 256]) {
    let d = f16_at(b, 0);
    for (i, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let bits = u16_at(b, 2 + 2 * i);
        let scale = d * (0.5 + f32::from(nibble_at(b, 66, i / 2))) * 0.25;
        let grid = &grid::IQ2_XS[usize::from(bits & 511)];
        signed(out, scale, grid, even_signs(u32::from(bits >> 9)));
    }
}

/// `d`, low index bytes, sign bytes, bit pairs of high index bits, a nibble of scale per 16 elements.
pub(super) fn iq2_s(b: &[u8; 82], out: &mut [f32; 256]) {
    let d = f16_at(b, 0);
    for (i, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let high = usize::from((b[66 + i / 4] >> (2 * (i % 4))) & 3);
        let scale = d * (0.5 + f32::from(nibble_at(b, 74, i / 2))) * 0.25;
        let grid = &grid::IQ2_S[usize::from(b[2 + i]) | high << 8];
        signed(out, scale, grid, b[34 + i]);
    }
}
