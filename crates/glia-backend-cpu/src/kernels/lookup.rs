//! Codes through a table of sixteen bytes.

use super::runs::Run;
use crate::simd::Level;

/// Replaces every code (0 to 15) by its entry.
pub(crate) fn lookup(level: Level, table: &[u8; 16], run: &mut Run) {
    match level {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `Level::of` found these instructions on this machine.
        Level::Avx2 => unsafe { avx2(table, run) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Level::Avx512 => unsafe { avx512(table, run) },
        #[cfg(target_arch = "aarch64")]
        Level::Base => neon(table, run),
        #[cfg(not(target_arch = "aarch64"))]
        Level::Base => {
            for word in run.codes.as_flattened_mut() {
                let bytes = word.to_le_bytes().map(|code| table[usize::from(code & 15)]);
                *word = u32::from_le_bytes(bytes);
            }
        }
    }
}

#[cfg(target_arch = "aarch64")]
fn neon(table: &[u8; 16], run: &mut Run) {
    use std::arch::aarch64::*;
    // SAFETY: every aarch64 has NEON; 16 bytes are read.
    let table = unsafe { vld1q_u8(table.as_ptr()) };
    for words in run.codes.as_flattened_mut().as_chunks_mut::<4>().0 {
        let at = words.as_mut_ptr().cast();
        // SAFETY: 16 bytes are read and written.
        unsafe { vst1q_u8(at, vqtbl1q_u8(table, vld1q_u8(at))) };
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2(table: &[u8; 16], run: &mut Run) {
    use std::arch::x86_64::*;
    // SAFETY: 16 bytes are read.
    let table = _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(table.as_ptr().cast()) });
    for words in run.codes.as_flattened_mut().as_chunks_mut::<8>().0 {
        // SAFETY: 32 bytes are read and written.
        unsafe {
            let codes = _mm256_loadu_si256(words.as_ptr().cast());
            _mm256_storeu_si256(words.as_mut_ptr().cast(), _mm256_shuffle_epi8(table, codes));
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw")]
fn avx512(table: &[u8; 16], run: &mut Run) {
    use std::arch::x86_64::*;
    // SAFETY: 16 bytes are read.
    let table = _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(table.as_ptr().cast()) });
    for words in &mut run.codes {
        // SAFETY: 64 bytes are read and written.
        unsafe {
            let codes = _mm512_loadu_si512(words.as_ptr().cast());
            _mm512_storeu_si512(words.as_mut_ptr().cast(), _mm512_shuffle_epi8(table, codes));
        }
    }
}
