//! `glia devices`: the backends of this build and what they run on.

use std::io::Write;

use crate::exit::CliError;
use crate::ui;

/// Prints a line per backend.
pub fn run() -> Result<(), CliError> {
    let cpu = glia_backend_cpu::CpuBackend::new()?;
    let mut out = ui::stdout();
    writeln!(out, "cpu  {}", cpu.describe())?;
    Ok(out.finish()?)
}
