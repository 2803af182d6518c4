//! Bytes of a file, mapped or read: the one module of this crate with unsafe code.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use glia_core::ByteSource;
use memmap2::{Mmap, UncheckedAdvice};

use crate::memory;

/// A read-only map of a file, and the file: what is read once is read without mapping it.
struct FileMap {
    map: Mmap,
    file: File,
}

impl fmt::Debug for FileMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileMap({} bytes)", self.map.len())
    }
}

impl ByteSource for FileMap {
    fn bytes(&self) -> &[u8] {
        &self.map
    }

    #[cfg(unix)]
    fn fetch<'a>(&'a self, range: Range<usize>, buffer: &'a mut Vec<u8>) -> std::io::Result<&'a [u8]> {
        use std::os::unix::fs::FileExt;
        if range.end > self.map.len() || range.start > range.end {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        if buffer.len() < range.len() {
            buffer.resize(range.len(), 0);
        }
        let buffer = &mut buffer[..range.len()];
        self.file.read_exact_at(buffer, range.start as u64)?;
        Ok(buffer)
    }

    fn release(&self, range: Range<usize>) {
        // Outwards to the windows in which the kernel maps neighbours of a page that is read: pages given back beyond
        // the range are only read again. 64 KiB is a multiple of every page size in use.
        const WINDOW: usize = 1 << 16;
        let start = range.start / WINDOW * WINDOW;
        let end = range.end.checked_next_multiple_of(WINDOW).unwrap_or(range.end);
        let end = end.min(self.map.len());
        if start < end {
            // SAFETY: the map is file-backed and read-only: pages that are given back are read from the file again on
            // the next access, so that every slice of it stays valid and keeps its contents.
            let _ = unsafe {
                self.map
                    .unchecked_advise_range(UncheckedAdvice::DontNeed, start, end - start)
            };
        }
    }
}

/// The bytes of a file: mapped, or read into memory.
///
/// A mapped file must not be cut short by another process while it is in use (the kernel would end the program);
/// reading avoids that.
///
/// # Errors
/// What the system says.
pub fn open(path: &Path, mmap: bool) -> std::io::Result<Arc<dyn ByteSource>> {
    // Looked at before it is opened: opening a pipe waits for somebody to write to it.
    let metadata = std::fs::metadata(path)?;
    if metadata.is_dir() {
        return Err(std::io::Error::new(
            std::io::ErrorKind::IsADirectory,
            "is a folder, not a file",
        ));
    }
    if !metadata.is_file() {
        return Err(std::io::Error::new(
            std::io::ErrorKind::InvalidInput,
            "is no regular file: copy what it gives to a file first",
        ));
    }
    let mut file = File::open(path)?;
    if !mmap || metadata.len() == 0 {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)
            .map_err(|e| memory::explain(e, metadata.len()))?;
        return Ok(Arc::new(bytes));
    }
    // SAFETY: the map is read-only and never handed out mutably. Another process may still change or cut the file: that
    // is documented above, and `mmap: false` exists for it.
    let map = unsafe { Mmap::map(&file) }.map_err(|e| memory::explain(e, metadata.len()))?;
    Ok(Arc::new(FileMap { map, file }))
}
