//! Ctrl-C ends a command at once, with the exit code that shells show for it, 130.
#![cfg(unix)]

mod support;

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::{glia, out};

/// What ends in minutes at best, and whether it prints as it goes.
const LONG: [(&[&str], bool); 4] = [
    (
        &[
            "run", "--model", "demo", "--raw", "-p", "To be", "-n", "-1", "--ctx", "100000",
        ],
        true,
    ),
    (
        &["bench", "demo", "--prefill", "0", "--decode", "20000", "--reps", "9"],
        false,
    ),
    (&["profile", "demo", "--prefill", "0", "--decode", "20000"], false),
    (
        &[
            "perplexity",
            "demo",
            "--file",
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/onnx-coverage.md"),
            "--ctx",
            "1024",
        ],
        false,
    ),
];

#[test]
fn the_cpu_stops() {
    check("cpu");
}

#[test]
fn a_gpu_stops() {
    if !out(glia(&["devices"], b"")).contains("wgpu:0") {
        println!("SKIP: no adapter");
        return;
    }
    check("wgpu");
}

fn check(backend: &str) {
    if is_ignored() {
        println!("SKIP: this process was started with Ctrl-C ignored, and so are its children");
        return;
    }
    for (args, prints) in LONG {
        let mut child = Command::new(env!("CARGO_BIN_EXE_glia"))
            .args(args)
            .args(["--backend", backend])
            .env("HF_HUB_OFFLINE", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // In the middle of its work: behind the first of its output, or of the time that opening takes.
        if prints {
            let mut first = [0];
            child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
        } else {
            std::thread::sleep(Duration::from_millis(700));
        }
        assert!(child.try_wait().unwrap().is_none(), "{args:?} ended by itself");
        let id = child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
        let asked = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if asked.elapsed() > Duration::from_secs(20) {
                let _ = child.kill();
                panic!("{args:?} on {backend} goes on");
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let code = status.code().or(status.signal().map(|signal| 128 + signal));
        assert_eq!(code, Some(130), "{args:?} on {backend}");
    }
}

/// Whether whoever started this process has it ignore Ctrl-C, as shells do with what they run in the background.
fn is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 2 != 0)
}
