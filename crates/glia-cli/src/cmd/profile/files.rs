//! The files that a profile is written to: what they must not be, and whether they can be written, before anything is
//! measured.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::path::Path;

use crate::args::ProfileArgs;
use crate::cmd::engine;
use crate::exit::CliError;

/// Refuses files that cannot be written, one file for both, and models.
///
/// Leaves no trace: what a file holds is kept until there is something to put in its place, and one that is not there
/// is not made.
pub fn check(args: &ProfileArgs) -> Result<(), CliError> {
    for (flag, path) in [("--trace", &args.trace), ("--html", &args.html)] {
        let Some(path) = path else {
            continue;
        };
        if is_model(path, Path::new(&args.model)) {
            return Err(CliError::usage(format!(
                "{flag} {}: that is a file of a model, which would be overwritten: give another one",
                path.display()
            )));
        }
        try_open(path).map_err(|e| of_path(path, &e))?;
    }
    match (&args.trace, &args.html) {
        (Some(a), Some(b)) if is_same(a, b) => {
            Err(CliError::usage("--trace and --html name one file: give each its own"))
        }
        _ => Ok(()),
    }
}

/// Writes a file whole.
pub fn write(path: &Path, text: &str) -> Result<(), CliError> {
    fs::write(path, text).map_err(|e| of_path(path, &e))
}

fn of_path(path: &Path, error: &io::Error) -> CliError {
    CliError::failed(format!("{}: {error}", path.display()))
}

fn try_open(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(_) => fs::remove_file(path),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            OpenOptions::new().append(true).open(path)?;
            Ok(())
        }
        Err(e) => Err(e),
    }
}

/// Whether there is a model file at that path, or one of `model`'s, which is mapped while it is profiled.
fn is_model(path: &Path, model: &Path) -> bool {
    // Devices and pipes are no files, and not read: that could take for ever.
    if !path.is_file() {
        return false;
    }
    let mut magic = [0; 4];
    let is_read = File::open(path)
        .and_then(|mut file| file.read_exact(&mut magic))
        .is_ok();
    let is_beside = || model.is_dir() && path.parent().is_some_and(|folder| is_same(folder, model));
    is_read && magic == *b"GGUF" || engine::is_model_path(path.as_os_str()) || is_same(path, model) || is_beside()
}

/// Whether two paths are one file, also where it is not there yet.
fn is_same(a: &Path, b: &Path) -> bool {
    let whole = |path: &Path| {
        let in_folder = || Some(fs::canonicalize(here(path.parent()?)).ok()?.join(path.file_name()?));
        fs::canonicalize(here(path)).ok().or_else(in_folder)
    };
    whole(a).is_some_and(|a| whole(b) == Some(a))
}

/// The parent of a plain file name is empty: the current folder.
fn here(path: &Path) -> &Path {
    match path.as_os_str().is_empty() {
        true => Path::new("."),
        false => path,
    }
}
