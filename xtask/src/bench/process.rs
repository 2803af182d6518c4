//! One run of a program: how long it took, how much memory it had, or that it never came to an end.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use wait4::Wait4;

use crate::sh;

/// What a run took.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// From before the process was made to after it had ended.
    pub wall: Duration,
    /// The most memory that was resident at a time, shared pages of files included.
    pub peak_bytes: u64,
}

/// Runs to the end, the output thrown away.
pub fn cost(mut command: Command) -> Result<Cost, String> {
    let who = sh::show(&command);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let start = Instant::now();
    let used = command
        .spawn()
        .and_then(Wait4::wait4)
        .map_err(|e| format!("{who}: {e}"))?;
    let wall = start.elapsed();
    if !used.status.success() {
        let status = used.status;
        return Err(format!("{who} ended with {status}; run it by hand to see why"));
    }
    let peak_bytes = used.rusage.maxrss;
    Ok(Cost { wall, peak_bytes })
}

/// Stdout of a run; `None` when it had not ended within the limit and was killed.
pub fn output_within(mut command: Command, limit: Duration) -> Result<Option<String>, String> {
    let who = sh::show(&command);
    let error = |e: std::io::Error| format!("{who}: {e}");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit());
    let mut child = command.spawn().map_err(error)?;
    let pipe = child.stdout.take();
    // Read beside the wait: a full pipe would stop the program.
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        pipe.map_or(Ok(0), |mut pipe| pipe.read_to_string(&mut text))
            .map(|_| text)
    });
    let end = Instant::now() + limit;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Ok(status),
            Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_millis(20)),
            other => {
                let _ = child.kill();
                let _ = child.wait();
                match other {
                    Ok(_) => return Ok(None),
                    Err(e) => break Err(error(e)),
                }
            }
        }
    }?;
    let text = reader.join().map_err(|_| format!("{who}: cannot be read"))?;
    if !status.success() {
        return Err(format!("{who} ended with {status}"));
    }
    text.map(Some).map_err(error)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn runs_are_measured_and_failures_told_of() {
        let used = cost(sh("sleep 0.05; echo hi")).unwrap();
        assert!(
            used.wall >= Duration::from_millis(50) && used.peak_bytes > 100_000,
            "{used:?}"
        );
        assert!(cost(sh("exit 3")).unwrap_err().contains("3"));
        assert!(cost(Command::new("no/such/program")).unwrap_err().contains("program"));
    }

    #[test]
    fn runs_that_do_not_end_are_killed() {
        let long = Duration::from_secs(60);
        assert_eq!(output_within(sh("echo hi"), long).unwrap().as_deref(), Some("hi\n"));
        // More than a pipe holds.
        let many = output_within(sh("yes | head -n 100000"), long).unwrap();
        assert_eq!(many.map(|text| text.len()), Some(200_000));
        assert!(output_within(sh("exit 3"), long).is_err());
        let start = Instant::now();
        assert_eq!(
            output_within(sh("exec sleep 60"), Duration::from_millis(50)).unwrap(),
            None
        );
        assert!(start.elapsed() < Duration::from_secs(30));
    }
}
