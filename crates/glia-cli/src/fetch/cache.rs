//! Where finished files lie, and the lock that lets one process at a time write there.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::catalog::Entry;
use super::error::FetchError;
use super::settings::Settings;
use super::verify::Found;
use super::{names, verify};

/// What the caches hold of an entry.
pub enum Lookup {
    /// Its exact bytes.
    Intact(PathBuf),
    /// A file of its name with other bytes, and how they differ.
    Damaged(PathBuf, String),
    /// Nothing.
    Missing,
}

/// Looks for the entry's exact bytes: our folder first, then the caches in the Hub's layout.
pub fn find(entry: &Entry, settings: &Settings) -> Result<Lookup, FetchError> {
    let stamps = stamps(settings);
    let mut candidates = vec![settings.cache.join(entry.file)];
    if let Some(hub) = &entry.hub {
        let folder = format!("models--{}", hub.repo.replace('/', "--"));
        for root in &settings.hub_caches {
            let Ok(snapshots) = fs::read_dir(root.join(&folder).join("snapshots")) else {
                continue;
            };
            candidates.extend(snapshots.filter_map(|s| Some(s.ok()?.path().join(hub.file))));
        }
    }
    let mut outcome = Lookup::Missing;
    for path in candidates {
        match verify::look(&path, entry.size_bytes, entry.sha256, &stamps)? {
            Found::Intact => return Ok(Lookup::Intact(path)),
            Found::Other(how) if matches!(outcome, Lookup::Missing) => outcome = Lookup::Damaged(path, how),
            Found::Other(_) | Found::Nothing => {}
        }
    }
    Ok(outcome)
}

/// The folder of stamps.
pub fn stamps(settings: &Settings) -> PathBuf {
    settings.cache.join(".stamps")
}

/// The folders that `find` looks into, for messages.
pub fn searched(settings: &Settings) -> String {
    let mut folders = vec![settings.cache.display().to_string()];
    folders.extend(settings.hub_caches.iter().map(|p| p.display().to_string()));
    folders.join(", ")
}

/// Makes the folder and takes its lock for this file; waits while another process fetches it.
pub fn lock(entry: &Entry, settings: &Settings) -> Result<File, FetchError> {
    names::check(entry.file)?;
    fs::create_dir_all(&settings.cache).map_err(FetchError::io(&settings.cache))?;
    let path = settings.cache.join(format!("{}.lock", entry.file));
    let file = File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(&path)
        .map_err(FetchError::io(&path))?;
    file.lock().map_err(FetchError::io(&path))?;
    Ok(file)
}

/// Checks size and hash of a finished part and moves it to its place; a wrong one is removed.
pub fn install(part: &Path, entry: &Entry, what: &str, settings: &Settings) -> Result<PathBuf, FetchError> {
    let file = File::open(part).map_err(FetchError::io(part))?;
    let got = verify::sha256_of(&file).map_err(FetchError::io(part))?;
    if got != entry.sha256 {
        let _ = fs::remove_file(part);
        return Err(FetchError::Hash {
            what: what.to_owned(),
            expected: entry.sha256.to_owned(),
            got,
        });
    }
    file.sync_all().map_err(FetchError::io(part))?;
    let place = settings.cache.join(entry.file);
    fs::rename(part, &place).map_err(FetchError::io(&place))?;
    Ok(place)
}
