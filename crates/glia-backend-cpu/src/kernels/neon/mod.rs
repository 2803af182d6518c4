//! Matrix kernels for aarch64: NEON with dot products, and with the products of 8-bit matrices.

mod instructions;
mod lanes;

use glia_core::DType;

use self::lanes::{Dot, I8mm};
use super::lanes::{float, int8, runs};
use super::runs::{Kind, Run};
use crate::pack::Format;

/// One tile for `m` prepared rows, with dot products.
#[target_feature(enable = "neon,dotprod")]
pub(in crate::kernels) fn int8_tile(
    format: Format,
    tile: &[u8],
    acts: &[u8],
    m: usize,
    put: &mut impl FnMut(usize, &[f32; 16]),
) {
    // SAFETY: this function has the instructions.
    unsafe { int8::tile::<Dot>(format, tile, acts, m, put) }
}

/// One tile for `m` prepared rows, with products of matrices.
#[target_feature(enable = "neon,dotprod,i8mm")]
pub(in crate::kernels) fn int8_tile_i8mm(
    format: Format,
    tile: &[u8],
    acts: &[u8],
    m: usize,
    put: &mut impl FnMut(usize, &[f32; 16]),
) {
    // SAFETY: this function has the instructions.
    unsafe { int8::tile::<I8mm>(format, tile, acts, m, put) }
}

/// `m` rows of f32 activations by consecutive tiles of F32, F16 or BF16.
#[target_feature(enable = "neon")]
pub(in crate::kernels) fn float_tiles(
    dtype: DType,
    tiles: &[u8],
    k: usize,
    acts: &[u8],
    m: usize,
    put: &mut impl FnMut(usize, usize, &[f32; 16]),
) {
    // SAFETY: this function has the instructions.
    unsafe { float::tiles::<Dot>(dtype, tiles, k, acts, m, put) }
}

/// Adds the products of `runs` and as many prepared blocks of each row of a panel of `width` to the row's sums, with dot
/// products.
#[target_feature(enable = "neon,dotprod")]
pub(in crate::kernels) fn add_runs(kind: Kind, runs: &[Run], acts: &[u8], width: usize, sums: &mut [[f32; 16]]) {
    // SAFETY: this function has the instructions.
    unsafe { runs::add::<Dot>(kind, runs, acts, width, sums) }
}

/// [`add_runs`] with products of matrices.
#[target_feature(enable = "neon,dotprod,i8mm")]
pub(in crate::kernels) fn add_runs_i8mm(kind: Kind, runs: &[Run], acts: &[u8], width: usize, sums: &mut [[f32; 16]]) {
    // SAFETY: this function has the instructions.
    unsafe { runs::add::<I8mm>(kind, runs, acts, width, sums) }
}
