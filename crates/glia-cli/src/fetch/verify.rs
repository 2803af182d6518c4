//! Whether a file holds the promised bytes. A stamp remembers the answer, so that a warm start hashes nothing.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use sha2::{Digest, Sha256};

use super::error::FetchError;

/// SHA-256 of a reader to its end, as lower-case hex.
pub fn sha256_of(mut reader: impl Read) -> io::Result<String> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0u8; 1 << 16];
    loop {
        match reader.read(&mut buffer)? {
            0 => return Ok(hex(&hasher.finalize())),
            n => hasher.update(&buffer[..n]),
        }
    }
}

/// Lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// What a place in a cache holds.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// The promised bytes.
    Intact,
    /// No file.
    Nothing,
    /// Other bytes: how they differ.
    Other(String),
}

/// Whether `path` has this size and hash. The stamps live in `stamps`; one that cannot be written only costs time.
pub fn look(path: &Path, size_bytes: u64, sha256: &str, stamps: &Path) -> Result<Found, FetchError> {
    let Ok(meta) = fs::metadata(path) else {
        return Ok(Found::Nothing);
    };
    if !meta.is_file() {
        return Ok(Found::Other("is no regular file".to_owned()));
    }
    if meta.len() != size_bytes {
        return Ok(Found::Other(format!(
            "has {} bytes instead of {size_bytes}",
            meta.len()
        )));
    }
    let line = stamp_line(&meta, sha256);
    let stamp = stamp_path(path, stamps);
    if line.is_some() && fs::read_to_string(&stamp).ok() == line {
        return Ok(Found::Intact);
    }
    let file = File::open(path).map_err(FetchError::io(path))?;
    let got = sha256_of(file).map_err(FetchError::io(path))?;
    if got != sha256 {
        return Ok(Found::Other(format!("has sha256 {got} instead of {sha256}")));
    }
    if let Some(line) = line {
        let _ = fs::create_dir_all(stamps).and_then(|()| fs::write(&stamp, line));
    }
    Ok(Found::Intact)
}

fn stamp_line(meta: &fs::Metadata, sha256: &str) -> Option<String> {
    let changed = meta.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(format!("{sha256} {} {}\n", meta.len(), changed.as_nanos()))
}

fn stamp_path(path: &Path, stamps: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let place = hex(&Sha256::digest(path.as_os_str().as_encoded_bytes()));
    stamps.join(format!("{name}.{}.sha256", &place[..12]))
}
