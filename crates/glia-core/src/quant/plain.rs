//! One element per block: floats, integers, booleans.

use half::slice::HalfFloatSliceExt;

/// Element by element.
pub(super) fn each<const N: usize>(bytes: &[u8], out: &mut [f32], read: impl Fn([u8; N]) -> f32) {
    for (o, &b) in out.iter_mut().zip(bytes.as_chunks::<N>().0) {
        *o = read(b);
    }
}

/// Element by element, the other way.
pub(super) fn put<const N: usize>(values: &[f32], bytes: &mut [u8], write: impl Fn(f32) -> [u8; N]) {
    for (b, &v) in bytes.as_chunks_mut::<N>().0.iter_mut().zip(values) {
        *b = write(v);
    }
}

pub(super) fn f32(bytes: &[u8], out: &mut [f32]) {
    each(bytes, out, f32::from_le_bytes);
}

pub(super) fn f16(bytes: &[u8], out: &mut [f32]) {
    // The conversion of a slice uses the CPU's instructions; unaligned bytes go one by one.
    match bytemuck::try_cast_slice::<u8, half::f16>(bytes) {
        Ok(halves) if cfg!(target_endian = "little") => halves.convert_to_f32_slice(out),
        _ => each(bytes, out, |b| half::f16::from_le_bytes(b).to_f32()),
    }
}

pub(super) fn bf16(bytes: &[u8], out: &mut [f32]) {
    // Shifted by hand: every NaN keeps its bits.
    each(bytes, out, |b| f32::from_bits(u32::from(u16::from_le_bytes(b)) << 16));
}
