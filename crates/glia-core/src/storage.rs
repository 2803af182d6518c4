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

/// Owned bytes that begin at a multiple of [`ALIGN_BYTES`].
pub(crate) struct AlignedBytes {
    words: Vec<u128>,
    start: usize,
    len: usize,
}

impl AlignedBytes {
    pub(crate) fn zeroed(len: usize) -> AlignedBytes {
        let words = vec![0u128; len.div_ceil(16) + ALIGN_BYTES / 16 - 1];
        let start = words.as_ptr().align_offset(ALIGN_BYTES) * 16;
        debug_assert!(start + len <= words.len() * 16);
        AlignedBytes { words, start, len }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &bytemuck::cast_slice::<u128, u8>(&self.words)[self.start..self.start + self.len]
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut::<u128, u8>(&mut self.words)[self.start..self.start + self.len]
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
