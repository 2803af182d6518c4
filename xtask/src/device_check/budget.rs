//! Programs run one after the other within a time for all of them: none can take what the later ones need.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How a program ended, and what it said.
#[derive(Debug)]
pub struct Ran {
    /// Whether it ended well; else why not.
    pub ended: Result<(), Ended>,
    /// How long it ran.
    pub time: Duration,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

/// Why a program did not end well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It ended with an error, or did not start.
    Failed(String),
    /// It was stopped after this time.
    Stopped(Duration),
}

/// The time for all.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    began: Instant,
    total: Duration,
}

impl Budget {
    /// Begins now.
    pub fn new(total: Duration) -> Budget {
        let began = Instant::now();
        Budget { began, total }
    }

    /// Time since it began.
    pub fn spent(&self) -> Duration {
        self.began.elapsed()
    }

    /// The share of what is left for the first of several programs, by their weights.
    pub fn share(&self, weights: &[u32]) -> Duration {
        share(self.total.saturating_sub(self.spent()), weights)
    }
}

fn share(left: Duration, weights: &[u32]) -> Duration {
    let all: u32 = weights.iter().sum();
    match weights.first() {
        Some(&first) if all > 0 => left.mul_f64(f64::from(first) / f64::from(all)),
        _ => Duration::ZERO,
    }
}

/// Runs a program to its end, or stops it at the limit. What it says goes to the files `NAME.out` and `NAME.err` of a
/// folder, so that a run that is cut short leaves it too.
pub fn run(mut command: Command, limit: Duration, folder: &Path, name: &str) -> Ran {
    let began = Instant::now();
    let [out, err] = ["out", "err"].map(|kind| folder.join(format!("{name}.{kind}")));
    let ended = match start(&mut command, &out, &err) {
        Ok(child) => wait(child, began, limit),
        Err(e) => Err(Ended::Failed(format!("{}: {e}", crate::sh::show(&command)))),
    };
    // Bytes of a broken run need not be text.
    let text = |path: &PathBuf| String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned();
    Ran {
        ended,
        time: began.elapsed(),
        stdout: text(&out),
        stderr: text(&err),
    }
}

fn start(command: &mut Command, out: &Path, err: &Path) -> std::io::Result<std::process::Child> {
    command.stdin(Stdio::null());
    command.stdout(File::create(out)?).stderr(File::create(err)?);
    command.spawn()
}

fn wait(mut child: std::process::Child, began: Instant, limit: Duration) -> Result<(), Ended> {
    let ended = loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(Ended::Failed(status.to_string())),
            Ok(None) if began.elapsed() < limit => std::thread::sleep(Duration::from_millis(10)),
            Ok(None) => break Ended::Stopped(began.elapsed()),
            Err(e) => break Ended::Failed(e.to_string()),
        }
    };
    let _ = child.kill();
    let _ = child.wait();
    Err(ended)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device_check::tests::Folder;

    #[test]
    fn what_one_leaves_the_others_have() {
        let s = Duration::from_secs;
        assert_eq!(share(s(100), &[1, 3]), s(25));
        assert_eq!(share(s(75), &[3]), s(75));
        assert_eq!(share(s(75), &[0, 3]), s(0));
        assert_eq!(share(s(75), &[]), s(0));
        assert_eq!(Budget::new(s(0)).share(&[1]), s(0));
    }

    #[cfg(unix)]
    #[test]
    fn programs_are_run_and_stopped() {
        let folder = Folder::new("budget");
        let sh = |script: &str, limit: u64, name: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            run(command, Duration::from_millis(limit), &folder.join("."), name)
        };
        let good = sh("echo a; echo b >&2", 60_000, "good");
        assert_eq!(
            (good.ended, good.stdout.as_str(), good.stderr.as_str()),
            (Ok(()), "a\n", "b\n")
        );
        let bad = sh("echo a; exit 3", 60_000, "bad");
        assert!(
            matches!(&bad.ended, Err(Ended::Failed(why)) if why.contains('3')),
            "{bad:?}"
        );
        assert_eq!(bad.stdout, "a\n");
        let slow = sh("echo a; exec sleep 60", 200, "slow");
        assert!(matches!(slow.ended, Err(Ended::Stopped(_))), "{slow:?}");
        assert!(slow.time < Duration::from_secs(30));
        assert_eq!(
            (slow.stdout.as_str(), std::fs::read(folder.join("slow.out")).unwrap()),
            ("a\n", b"a\n".to_vec())
        );
        let none = run(
            Command::new("no/such/program"),
            Duration::from_secs(9),
            &folder.join("."),
            "none",
        );
        assert!(
            matches!(&none.ended, Err(Ended::Failed(why)) if why.contains("program")),
            "{none:?}"
        );
    }
}
