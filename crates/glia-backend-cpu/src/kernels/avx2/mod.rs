//! Matrix kernels for AVX2, alone or with the byte dot products of VNNI on 256 bits (in either encoding).

mod lanes;

use glia_core::DType;

use self::lanes::{Avx512Vl, AvxVnni, Plain};
use super::lanes::{float, int8, runs};
use super::runs::{Kind, Run};
use crate::pack::Format;

/// One tile for `m` prepared rows: the exact sums come from pairs of 16-bit products.
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::kernels) fn int8_tile(
    format: Format,
    tile: &[u8],
    acts: &[u8],
    m: usize,
    put: &mut impl FnMut(usize, &[f32; 16]),
) {
    // SAFETY: this function has the instructions.
    unsafe { int8::tile::<Plain>(format, tile, acts, m, put) }
}

/// One tile for `m` prepared rows, with the dot products of AVX-512 VNNI.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512vl,avx512vnni")]
pub(in crate::kernels) fn int8_tile_vl(
    format: Format,
    tile: &[u8],
    acts: &[u8],
    m: usize,
    put: &mut impl FnMut(usize, &[f32; 16]),
) {
    // SAFETY: this function has the instructions.
    unsafe { int8::tile::<Avx512Vl>(format, tile, acts, m, put) }
}

/// One tile for `m` prepared rows, with the dot products of AVX-VNNI.
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
pub(in crate::kernels) fn int8_tile_vnni(
    format: Format,
    tile: &[u8],
    acts: &[u8],
    m: usize,
    put: &mut impl FnMut(usize, &[f32; 16]),
) {
    // SAFETY: this function has the instructions.
    unsafe { int8::tile::<AvxVnni>(format, tile, acts, m, put) }
}

/// `m` rows of f32 activations by consecutive tiles of F32, F16 or BF16.
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::kernels) fn float_tiles(
    dtype: DType,
    tiles: &[u8],
    k: usize,
    acts: &[u8],
    m: usize,
    put: &mut impl FnMut(usize, usize, &[f32; 16]),
) {
    // SAFETY: this function has the instructions.
    unsafe { float::tiles::<Plain>(dtype, tiles, k, acts, m, put) }
}

/// Adds the products of `runs` and as many prepared blocks of each row of a panel of `width` to the row's sums.
#[target_feature(enable = "avx2,fma,f16c")]
pub(in crate::kernels) fn add_runs(kind: Kind, runs: &[Run], acts: &[u8], width: usize, sums: &mut [[f32; 16]]) {
    // SAFETY: this function has the instructions.
    unsafe { runs::add::<Plain>(kind, runs, acts, width, sums) }
}

/// [`add_runs`] with the dot products of AVX-512 VNNI.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512vl,avx512vnni")]
pub(in crate::kernels) fn add_runs_vl(kind: Kind, runs: &[Run], acts: &[u8], width: usize, sums: &mut [[f32; 16]]) {
    // SAFETY: this function has the instructions.
    unsafe { runs::add::<Avx512Vl>(kind, runs, acts, width, sums) }
}

/// [`add_runs`] with the dot products of AVX-VNNI.
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
pub(in crate::kernels) fn add_runs_vnni(kind: Kind, runs: &[Run], acts: &[u8], width: usize, sums: &mut [[f32; 16]]) {
    // SAFETY: this function has the instructions.
    unsafe { runs::add::<AvxVnni>(kind, runs, acts, width, sums) }
}
