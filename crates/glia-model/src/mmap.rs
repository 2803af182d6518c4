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

/// A read-only map of a file.
struct FileMap(Mmap);

impl fmt::Debug for FileMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileMap({} bytes)", self.0.len())
    }
}

impl ByteSource for FileMap {
    fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn release(&self, range: Range<usize>) {
        // Outwards to the windows in which the kernel maps neighbours of a page that is read: pages given back beyond
        // the range are only read again. 64 KiB is a multiple of every page size in use.
        const WINDOW: usize = 1 << 16;
        let start = range.start / WINDOW * WINDOW;
        let end = range.end.checked_next_multiple_of(WINDOW).unwrap_or(range.end);
        let end = end.min(self.0.len());
        if start < end {
            // SAFETY: the map is file-backed and read-only: pages that are given back are read from the file again on
            // the next access, so that every slice of it stays valid and keeps its contents.
            let _ = unsafe {
                self.0
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
    let mut file = File::open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(std::io::Error::new(
            std::io::ErrorKind::IsADirectory,
            "is a folder, not a file",
        ));
    }
    if !mmap || metadata.len() == 0 || !metadata.is_file() {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)
            .map_err(|e| memory::explain(e, metadata.len()))?;
        return Ok(Arc::new(bytes));
    }
    // SAFETY: the map is read-only and never handed out mutably. Another process may still change or cut the file: that
    // is documented above, and `mmap: false` exists for it.
    let map = unsafe { Mmap::map(&file) }.map_err(|e| memory::explain(e, metadata.len()))?;
    Ok(Arc::new(FileMap(map)))
}
