//! The backends of this build by name: the one place that a new one is added to.

use std::sync::Arc;

use glia_backend_cpu::isa::Isa;
use glia_backend_cpu::{CpuBackend, CpuOptions};
use glia_core::Backend;
use glia_core::reference::ReferenceBackend;

use crate::args::EngineArgs;
use crate::exit::CliError;
use crate::ui;

/// A backend that this build knows.
struct Known {
    name: &'static str,
    /// Makes it; `options` are the words behind its name, as in `cpu:portable`.
    open: fn(options: &[&str], engine: &EngineArgs) -> Result<Arc<dyn Backend>, CliError>,
}

const KNOWN: &[Known] = &[
    Known {
        name: "cpu",
        open: |options, engine| Ok(Arc::new(cpu(options, engine)?)),
    },
    Known {
        name: "reference",
        open: |options, _| match options {
            [] => Ok(Arc::new(ReferenceBackend)),
            [option, ..] => Err(CliError::usage(format!(
                "`reference:{option}`: the reference takes no options"
            ))),
        },
    },
];

/// Opens a list such as `cpu,reference`, in order of preference; `flag` is the option that it was given with.
pub fn open_list(
    flag: &str,
    list: &str,
    separator: char,
    engine: &EngineArgs,
) -> Result<Vec<Arc<dyn Backend>>, CliError> {
    let available = || KNOWN.iter().map(|k| k.name).collect::<Vec<_>>().join(", ");
    let mut backends = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    for spec in list.split(separator).map(str::trim).filter(|s| !s.is_empty()) {
        let mut words = spec.split(':');
        let name = words.next().unwrap_or_default();
        let options: Vec<&str> = words.collect();
        let Some(known) = KNOWN.iter().find(|k| k.name == name) else {
            let message = format!("{flag}: `{name}` is not in this build; available: {}", available());
            return Err(CliError::usage(message));
        };
        if names.contains(&name) {
            return Err(CliError::usage(format!("{flag}: `{name}` is given twice")));
        }
        names.push(name);
        backends.push((known.open)(&options, engine)?);
    }
    if backends.is_empty() {
        let message = format!("{flag}: the list is empty; available: {}", available());
        return Err(CliError::usage(message));
    }
    Ok(backends)
}

/// The CPU backend: threads as given, at most those of the machine, and the instruction set that an option forces.
pub fn cpu(options: &[&str], engine: &EngineArgs) -> Result<CpuBackend, CliError> {
    let most = std::thread::available_parallelism().map_or(1, usize::from);
    if engine.threads > most {
        ui::note(format!(
            "--threads {} is more than the {most} of this machine; using {most}",
            engine.threads
        ));
    }
    let isa = match options {
        [] => None,
        [name] => Some(isa(name)?),
        [_, second, ..] => {
            return Err(CliError::usage(format!(
                "`cpu:..:{second}`: one instruction set at a time"
            )));
        }
    };
    Ok(CpuBackend::with_options(CpuOptions {
        threads: engine.threads.min(most),
        keep_mapped: engine.mmap,
        isa,
    })?)
}

fn isa(name: &str) -> Result<Isa, CliError> {
    let all = Isa::all_available();
    all.iter().copied().find(|isa| isa.name() == name).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|isa| isa.name()).collect();
        CliError::usage(format!(
            "`cpu:{name}`: no instruction set of this machine; it has {}",
            names.join(", ")
        ))
    })
}
