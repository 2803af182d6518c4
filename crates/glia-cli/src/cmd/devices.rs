//! `glia devices`: the backends of this build and what they run on.

use std::io::Write;

use glia_backend_cpu::{CpuBackend, ceiling};

use super::backends;
use crate::args::DevicesArgs;
use crate::exit::CliError;
use crate::ui;

/// Prints a line per backend, and what the machine allows if that is asked for.
pub fn run(args: &DevicesArgs) -> Result<(), CliError> {
    let cpu = CpuBackend::new()?;
    let mut out = ui::stdout();
    writeln!(out, "cpu     {}", cpu.describe())?;
    let adapters = glia_backend_wgpu::adapters();
    for (i, adapter) in adapters.iter().enumerate() {
        let remark = adapter.remark().map_or(String::new(), |r| format!("; {r}"));
        writeln!(out, "wgpu:{i}  {adapter}{remark}")?;
    }
    if adapters.is_empty() {
        writeln!(
            out,
            "wgpu    no adapter: install the driver of a GPU (or Mesa's lavapipe, which runs on the processor)"
        )?;
    }
    if args.measure {
        let mut counts = vec![1, cpu.n_threads()];
        counts.dedup();
        let all = ceiling::measure(&counts)?;
        writeln!(
            out,
            "\n{:>7} {:>22} {:>22} {:>22} {:>22}",
            "threads",
            "read, huge pages",
            "read, 4 KiB pages",
            format!("int8, {}", all.int8_kernel),
            format!("f32, {}", all.f32_kernel)
        )?;
        for c in &all.by_threads {
            writeln!(
                out,
                "{:>7} {:>17.1} GB/s {:>17.1} GB/s {:>16.0} Gop/s {:>16.0} Gop/s",
                c.n_threads,
                c.read_huge / 1e9,
                c.read_small / 1e9,
                c.int8_ops / 1e9,
                c.f32_ops / 1e9
            )?;
        }
        for i in 0..adapters.len() {
            let gpu = backends::wgpu(&[&i.to_string()])?;
            writeln!(
                out,
                "\nwgpu:{i} copies {:>12.1} GB/s, reading and writing",
                gpu.copy_bandwidth()? / 1e9
            )?;
        }
    }
    Ok(out.finish()?)
}
