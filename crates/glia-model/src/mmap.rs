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

/// Gives back memory that the process holds and does not use (on Linux; elsewhere it does nothing): what the allocator
/// keeps of what was freed, and the pages of the program's own file and of the C library, code and constants, which are
/// mapped again from the page cache where they are used again. Opening a model runs much code once, and the system maps
/// the neighbours of what is touched: several megabytes that count as this process's from then on.
pub fn release_unused() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: may be called at any time, by any thread; it takes the allocator's own locks.
    unsafe {
        libc::malloc_trim(0);
    }
    #[cfg(target_os = "linux")]
    release_program();
}

#[cfg(target_os = "linux")]
fn release_program() {
    let (Ok(program), Ok(smaps)) = (
        std::fs::read_link("/proc/self/exe"),
        std::fs::read_to_string("/proc/self/smaps"),
    ) else {
        return;
    };
    let Some(program) = program.to_str() else { return };
    for range in unchanged_parts(&smaps, program) {
        let start = std::ptr::with_exposed_provenance_mut(range.start);
        // SAFETY: a mapping of a file that was there when the program began and stays, that nobody can write to, and of
        // which the process has no pages of its own: every page that is given back reads the same from the file.
        let _ = unsafe { libc::madvise(start, range.len(), libc::MADV_DONTNEED) };
    }
}

/// The address ranges of `program` and of the libraries that every program begins with, in a `smaps` file, that are
/// read-only and hold the file's own pages alone: not those that were relocated or that a debugger has changed. Other
/// libraries may be in the middle of being loaded.
#[cfg(target_os = "linux")]
fn unchanged_parts(smaps: &str, program: &str) -> Vec<Range<usize>> {
    const LIBRARIES: [&str; 3] = ["libc.so.6", "libm.so.6", "libgcc_s.so.1"];
    let mut parts = Vec::new();
    let mut at: Option<Range<usize>> = None;
    for line in smaps.lines() {
        let mut words = line.split_ascii_whitespace();
        let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if !first.ends_with(':') {
            // `start-end perms offset device inode path`
            let hex = |s: &str| usize::from_str_radix(s, 16).ok();
            let range = first.split_once('-').and_then(|(a, b)| Some(hex(a)?..hex(b)?));
            let file = line.splitn(6, ' ').nth(5).unwrap_or_default().trim_start();
            let library = file.rsplit_once('/').is_some_and(|(_, name)| LIBRARIES.contains(&name));
            at = range.filter(|_| (file == program || library) && matches!(second, "r-xp" | "r--p"));
        } else if first == "Anonymous:" {
            parts.extend(at.take().filter(|_| second == "0"));
        }
    }
    parts
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_program_goes_on_without_its_pages() {
        release_unused();
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let program = std::fs::read_link("/proc/self/exe").unwrap();
        assert!(!unchanged_parts(&smaps, program.to_str().unwrap()).is_empty());
    }

    #[test]
    fn only_unchanged_parts_of_the_program_are_given_back() {
        let of = |perms: &str, path: &str, anonymous: &str| {
            format!(
                "1000-3000 {perms} 00000000 fe:00 77    {path}\nSize: 8 kB\nRss: 8 kB\nAnonymous:    {anonymous} kB\n\
                 VmFlags: rd ex mr mw me\n"
            )
        };
        let smaps = [
            of("r-xp", "/bin/glia", "0"),
            of("r--p", "/bin/glia", "4"),
            of("rw-p", "/bin/glia", "0"),
            of("r--s", "/bin/glia", "0"),
            of("r-xp", "/lib/glia", "0"),
            of("r-xp", "/lib/libother.so", "0"),
            of("rw-p", "/lib/libc.so.6", "0"),
            of("r-xp", "", "0"),
        ]
        .concat();
        let whole = 0x1000..0x3000;
        assert_eq!(unchanged_parts(&smaps, "/bin/glia"), vec![whole]);
        assert!(unchanged_parts("r-xp\n:\n\nAnonymous:\n", "/bin/glia").is_empty());
    }
}
