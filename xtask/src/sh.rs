//! Running other programs: which cargo, from which folder, and what to say when they fail.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// The workspace's root.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// The cargo that runs this program, in the workspace's root.
pub fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    command
}

/// Runs to the end with the output shown.
pub fn run(mut command: Command) -> Result<(), String> {
    eprintln!("+ {}", show(&command));
    let status = command.status().map_err(|e| format!("{}: {e}", show(&command)))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{} ended with {status}", show(&command)))
    }
}

/// Runs to the end and returns stdout.
pub fn output(mut command: Command) -> Result<String, String> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| format!("{}: {e}", show(&command)))?;
    if !output.status.success() {
        return Err(format!("{} ended with {}", show(&command), output.status));
    }
    String::from_utf8(output.stdout).map_err(|e| format!("{}: {e}", show(&command)))
}

/// The workspace as cargo sees it.
pub fn metadata() -> Result<Value, String> {
    let text = output(cargo(&["metadata", "--format-version", "1", "--no-deps"]))?;
    serde_json::from_str(&text).map_err(|e| format!("cargo metadata: {e}"))
}

/// The command as one types it.
pub fn show(command: &Command) -> String {
    let program = Path::new(command.get_program())
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let args = command.get_args().map(|a| a.to_string_lossy().into_owned());
    std::iter::once(program).chain(args).collect::<Vec<_>>().join(" ")
}
