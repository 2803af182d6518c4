//! Where the bytes of a tensor live: aligned memory of ours, a range of somebody else's, or a device.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Alignment of owned tensor memory, in bytes: one cache line, one AVX-512 register.
pub const ALIGN_BYTES: usize = 64;

/// Bytes that outlive a tensor and are shared by many: a memory-mapped file, an embedded asset.
pub trait ByteSource: Send + Sync + fmt::Debug {
    /// All the bytes.
    fn bytes(&self) -> &[u8];

    /// How many bytes there are.
    fn n_bytes(&self) -> usize {
        self.bytes().len()
    }

    /// The bytes of `range`, for a reader that needs them once: in place, or read into `buffer`, so that a memory map
    /// need not map pages that are given back at once.
    ///
    /// # Errors
    /// What the system says; [`std::io::ErrorKind::UnexpectedEof`] when the source does not hold the range.
    fn fetch<'a>(&'a self, range: Range<usize>, buffer: &'a mut Vec<u8>) -> std::io::Result<&'a [u8]> {
        let _ = buffer;
        self.bytes().get(range).ok_or(std::io::ErrorKind::UnexpectedEof.into())
    }

    /// Says that nobody will read `range` soon: a memory map gives its pages back. A hint: reading the range
    /// afterwards is still right, only slower.
    fn release(&self, range: Range<usize>) {
        let _ = range;
    }
}

impl ByteSource for &'static [u8] {
    fn bytes(&self) -> &[u8] {
        self
    }
}

impl ByteSource for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

/// Guard bytes before and behind the bytes of owned memory, which the conformance suite looks at: a kernel that writes
/// past either end of its output changes them.
const GUARD_BYTES: usize = if cfg!(feature = "conformance") { ALIGN_BYTES } else { 0 };

/// What guard bytes hold.
const GUARD: u8 = 0xa7;

/// Owned bytes that begin at a multiple of [`ALIGN_BYTES`].
pub(crate) struct AlignedBytes {
    words: Vec<u128>,
    start: usize,
    len: usize,
}

impl AlignedBytes {
    pub(crate) fn zeroed(len: usize) -> AlignedBytes {
        let words = vec![0u128; len.div_ceil(16) + (ALIGN_BYTES + 2 * GUARD_BYTES) / 16 - 1];
        let start = words.as_ptr().align_offset(ALIGN_BYTES) * 16 + GUARD_BYTES;
        debug_assert!(start + len + GUARD_BYTES <= words.len() * 16);
        let mut made = AlignedBytes { words, start, len };
        made.all_mut()[start - GUARD_BYTES..start].fill(GUARD);
        made.all_mut()[start + len..start + len + GUARD_BYTES].fill(GUARD);
        made
    }

    fn all_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut::<u128, u8>(&mut self.words)
    }

    /// The first guard byte that somebody wrote to, counted from the start of the bytes; negative before it.
    #[cfg(feature = "conformance")]
    pub(crate) fn overrun(&self) -> Option<isize> {
        let all = bytemuck::cast_slice::<u128, u8>(&self.words);
        let guards =
            (self.start - GUARD_BYTES..self.start).chain(self.start + self.len..self.start + self.len + GUARD_BYTES);
        guards
            .into_iter()
            .find(|&i| all[i] != GUARD)
            .map(|i| i as isize - self.start as isize)
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &bytemuck::cast_slice::<u128, u8>(&self.words)[self.start..self.start + self.len]
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        let range = self.start..self.start + self.len;
        &mut self.all_mut()[range]
    }
}

impl Clone for AlignedBytes {
    // A derived clone would keep `start`, which is right for one allocation only.
    fn clone(&self) -> AlignedBytes {
        let mut copy = AlignedBytes::zeroed(self.len);
        copy.as_mut_slice().copy_from_slice(self.as_slice());
        copy
    }
}

#[derive(Clone)]
pub(crate) enum Storage {
    Owned(Arc<AlignedBytes>),
    Shared(Arc<dyn ByteSource>),
    Device(Arc<dyn Any + Send + Sync>),
}
