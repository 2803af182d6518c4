//! Int8 products: rows quantised in blocks of 32, exact integer dots, one fused multiply-add per block in order of k.
//!
//! A prepared block is 32 codes, the scale, two integers that the accumulators of its halves begin with (minus
//! offset times sum of codes; the first is of the whole block where the format has one scale), and scale times sum.

use crate::isa::Isa;
use crate::pack::Format;

/// Bytes of a prepared block of 32 activations.
pub(crate) const ACT_BLOCK: usize = 48;

/// Quantises a row to [`ACT_BLOCK`]s: scale is the largest magnitude over 127, codes round to nearest even.
pub(crate) fn quantize_row(isa: Isa, x: &[f32], format: Format, out: &mut [u8]) {
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a matrix is packed only for an instruction set that this machine has.
        Isa::Avx512Vnni | Isa::Avx2Vnni | Isa::Avx2 => unsafe { quantize_avx2(x, format, out) },
        _ => quantize(x, format, out),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn quantize_avx2(x: &[f32], format: Format, out: &mut [u8]) {
    quantize(x, format, out);
}

#[inline(always)]
fn quantize(x: &[f32], format: Format, out: &mut [u8]) {
    for (x, out) in x.as_chunks::<32>().0.iter().zip(out.chunks_exact_mut(ACT_BLOCK)) {
        let mut lanes = [0f32; 8];
        for part in x.as_chunks::<8>().0 {
            for (l, v) in lanes.iter_mut().zip(part) {
                *l = if v.abs() > *l { v.abs() } else { *l };
            }
        }
        let largest = lanes.iter().fold(0f32, |a, &v| if v > a { v } else { a });
        // A NaN or infinity must not vanish in the integers: it is carried by the scale.
        let odd = x.iter().any(|v| !v.is_finite());
        let scale = if odd { f32::NAN } else { largest / 127.0 };
        let inverse = if largest > 0.0 && !odd { 127.0 / largest } else { 0.0 };
        let inverse = if inverse.is_finite() { inverse } else { 0.0 };
        let mut codes = [0i8; 32];
        for (c, v) in codes.iter_mut().zip(x) {
            // Adding 1.5 * 2^23 rounds to the nearest integer, ties to even, in the low bits.
            *c = (v * inverse + 12_582_912.0).to_bits() as u8 as i8;
        }
        let sum = |codes: &[i8]| codes.iter().map(|&c| i32::from(c)).sum::<i32>();
        let (first, second) = (sum(&codes[..16]), sum(&codes[16..]));
        let starts = if format.n_scales == 2 {
            [first, second]
        } else {
            [first + second, 0]
        };
        out[..32].copy_from_slice(bytemuck::cast_slice(&codes));
        out[32..36].copy_from_slice(&scale.to_ne_bytes());
        out[36..40].copy_from_slice(&(-format.offset * starts[0]).to_ne_bytes());
        out[40..44].copy_from_slice(&(-format.offset * starts[1]).to_ne_bytes());
        out[44..48].copy_from_slice(&(scale * (first + second) as f32).to_ne_bytes());
    }
}

/// One tile for `m` prepared rows; `put` takes each row's 16 results.
pub(crate) fn tile(
    isa: Isa,
    format: Format,
    tile: &[u8],
    acts: &[u8],
    m: usize,
    put: &mut impl FnMut(usize, &[f32; 16]),
) {
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as in `quantize_row`.
        Isa::Avx512Vnni => unsafe { super::avx512::int8::tile(format, tile, acts, m, put) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as in `quantize_row`.
        Isa::Avx2 => unsafe { super::avx2::int8_tile(format, tile, acts, m, put) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as in `quantize_row`; the machine has one of the two encodings.
        Isa::Avx2Vnni => unsafe {
            if is_x86_feature_detected!("avxvnni") {
                super::avx2::int8_tile_vnni(format, tile, acts, m, put);
            } else {
                super::avx2::int8_tile_vl(format, tile, acts, m, put);
            }
        },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as in `quantize_row`.
        Isa::NeonDot => unsafe { super::neon::int8_tile(format, tile, acts, m, put) },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as in `quantize_row`.
        Isa::NeonI8mm => unsafe { super::neon::int8_tile_i8mm(format, tile, acts, m, put) },
        _ => tile_plain(format, tile, acts, m, put),
    }
}

#[inline(always)]
fn tile_plain(format: Format, tile: &[u8], acts: &[u8], m: usize, put: &mut impl FnMut(usize, &[f32; 16])) {
    let size = format.block_bytes();
    let row_bytes = tile.len() / size * ACT_BLOCK;
    for row in 0..m {
        let mut acc = [0f32; 16];
        let blocks = acts[row * row_bytes..][..row_bytes].chunks_exact(ACT_BLOCK);
        for (w, a) in tile.chunks_exact(size).zip(blocks) {
            let mut sums = [[word(a, 36); 16], [word(a, 40); 16]];
            for g in 0..8 {
                let sums = &mut sums[if format.n_scales == 2 { g / 4 } else { 0 }];
                let four: [i32; 4] = std::array::from_fn(|i| i32::from(a[g * 4 + i] as i8));
                let codes = group(format, w, g);
                for (sum, c) in sums.iter_mut().zip(codes.as_chunks::<4>().0) {
                    for i in 0..4 {
                        *sum += i32::from(c[i]) * four[i];
                    }
                }
            }
            let scale = f32::from_bits(word(a, 32) as u32);
            let at = format.code_bytes();
            for s in 0..format.n_scales {
                let scales = halves(&w[at + s * 32..]);
                for lane in 0..16 {
                    acc[lane] = (sums[s][lane] as f32).mul_add(scales[lane] * scale, acc[lane]);
                }
            }
            if format.has_min {
                let (mins, sum) = (
                    halves(&w[at + format.n_scales * 32..]),
                    f32::from_bits(word(a, 44) as u32),
                );
                for lane in 0..16 {
                    acc[lane] = mins[lane].mul_add(sum, acc[lane]);
                }
            }
        }
        put(row, &acc);
    }
}

#[inline(always)]
fn word(a: &[u8], at: usize) -> i32 {
    i32::from_ne_bytes([a[at], a[at + 1], a[at + 2], a[at + 3]])
}

#[inline(always)]
fn halves(b: &[u8]) -> [f32; 16] {
    std::array::from_fn(|i| half::f16::from_le_bytes([b[i * 2], b[i * 2 + 1]]).to_f32())
}

/// Codes of group `g`: 4 of each of 16 rows.
#[inline(always)]
fn group(format: Format, w: &[u8], g: usize) -> [u8; 64] {
    if format.bits == 8 {
        return std::array::from_fn(|i| w[g * 64 + i]);
    }
    let mut codes: [u8; 64] = std::array::from_fn(|i| w[g % 4 * 64 + i] >> (g / 4 * 4) & 15);
    if format.bits == 5 {
        for (i, c) in codes.iter_mut().enumerate() {
            *c |= (w[256 + g * 8 + i / 8] >> (i % 8) & 1) << 4;
        }
    }
    codes
}
