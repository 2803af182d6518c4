//! Runs the program and checks what it says.
#![allow(dead_code)] // Not every test file uses all of it.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

/// `glia` with these arguments and stdin.
pub fn glia<A: AsRef<OsStr>>(args: &[A], stdin: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_glia"))
        .args(args)
        .env("HF_HUB_OFFLINE", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that ends without reading closes the pipe.
    let _ = child.stdin.take().unwrap().write_all(stdin);
    child.wait_with_output().unwrap()
}

/// `glia run` on the demo model with more arguments.
pub fn run(args: &[&str], stdin: &[u8]) -> Output {
    glia(&[&["run", "--model", "demo", "--raw"], args].concat(), stdin)
}

/// Output as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Stdout of a run that must succeed.
pub fn out(output: Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for stream in [&output.stdout, &output.stderr] {
        assert!(
            !stream.contains(&0x1b) && !stream.contains(&b'\r'),
            "control characters in a pipe"
        );
    }
    text(&output.stdout)
}

/// Stderr of a run that must fail with this code and say all of `parts`.
pub fn fails(output: Output, code: i32, parts: &[&str]) -> String {
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{error}");
    assert!(output.stdout.is_empty());
    for part in parts {
        assert!(error.contains(part), "`{error}` does not say `{part}`");
    }
    error
}

/// The demo model's file.
pub fn demo_file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../assets/bard-3.7m-q8_0.gguf")
}

/// A fresh folder.
pub fn folder() -> PathBuf {
    static N: AtomicUsize = AtomicUsize::new(0);
    let name = format!("glia-cli-{}-{}", std::process::id(), N.fetch_add(1, Ordering::Relaxed));
    let folder = std::env::temp_dir().join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// The demo model with another value of an integer key, in a file of its own.
pub fn demo_with(key: &str, value: u32) -> PathBuf {
    let mut bytes = std::fs::read(demo_file()).unwrap();
    let at = bytes.windows(key.len()).position(|w| w == key.as_bytes()).unwrap() + key.len();
    // The type (4: u32), then the value.
    assert_eq!(bytes[at..at + 4], 4u32.to_le_bytes(), "{key}");
    bytes[at + 4..at + 8].copy_from_slice(&value.to_le_bytes());
    let path = folder().join("model.gguf");
    std::fs::write(&path, bytes).unwrap();
    path
}
