//! The backends of this build by name: the one place that a new one is added to.

use std::sync::Arc;

use glia_backend_cpu::isa::Isa;
use glia_backend_cpu::{CpuBackend, CpuOptions};
use glia_backend_wgpu::{AdapterChoice, WgpuBackend, WgpuOptions};
use glia_cli::fetch::Settings;
use glia_core::reference::ReferenceBackend;
use glia_core::{Backend, BackendError};

use crate::args::EngineArgs;
use crate::closest::{hint, shortened};
use crate::exit::CliError;
use crate::ui;

/// A backend that this build knows.
struct Known {
    name: &'static str,
    /// Makes it; `options` are the words behind its name, as in `cpu:portable`.
    open: Open,
}

/// What people call a backend that runs on GPUs.
const OF_GPUS: [&str; 7] = ["gpu", "vulkan", "metal", "dx12", "cuda", "webgpu", "vk"];

/// A backend, and in words what it runs on.
type Described = (Arc<dyn Backend>, String);

type Open = fn(options: &[&str], engine: &EngineArgs) -> Result<Described, CliError>;

/// A list of backends that is open.
pub struct Opened {
    /// In order of preference.
    pub backends: Vec<Arc<dyn Backend>>,
    /// What they run on, a line.
    pub machine: String,
}

const KNOWN: &[Known] = &[
    Known {
        name: "cpu",
        open: |options, engine| {
            note_threads(engine);
            let cpu = cpu(options, engine)?;
            let machine = cpu.describe();
            Ok((Arc::new(cpu), machine))
        },
    },
    Known {
        name: "wgpu",
        open: |options, _| {
            let gpu = wgpu(options)?;
            let machine = gpu.adapter().to_string();
            Ok((Arc::new(gpu), machine))
        },
    },
    Known {
        name: "reference",
        open: |options, _| match options {
            [] => Ok((Arc::new(ReferenceBackend), "plain loops in f64".to_owned())),
            [option, ..] => Err(CliError::usage(format!(
                "`reference:{}`: the reference takes no options{}",
                shortened(option),
                precision_hint(option)
            ))),
        },
    },
];

/// Opens a list such as `cpu,reference`, in order of preference; `flag` is the option that it was given with.
pub fn open_list(flag: &str, list: &str, separator: char, engine: &EngineArgs) -> Result<Opened, CliError> {
    let available = || KNOWN.iter().map(|k| k.name).collect::<Vec<_>>().join(", ");
    let mut backends = Vec::new();
    let mut machines = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    for spec in list.split(separator).map(str::trim).filter(|s| !s.is_empty()) {
        let mut words = spec.split(':').map(str::trim);
        let name = words.next().unwrap_or_default();
        let options: Vec<&str> = words.collect();
        let Some(known) = KNOWN.iter().find(|k| k.name == name) else {
            let names: Vec<&str> = KNOWN.iter().map(|k| k.name).collect();
            let hint = match OF_GPUS.contains(&name.to_lowercase().as_str()) {
                true => "; did you mean wgpu, which runs on GPUs?".to_owned(),
                false => hint(name, &names),
            };
            let name = shortened(name);
            let message = format!(
                "{flag}: `{name}` is not in this build{hint}; available: {}",
                available()
            );
            return Err(CliError::usage(message));
        };
        if names.contains(&name) {
            return Err(CliError::usage(format!("{flag}: `{name}` is given twice")));
        }
        names.push(name);
        let (backend, machine) = (known.open)(&options, engine)?;
        backends.push(backend);
        machines.push(machine);
    }
    if backends.is_empty() {
        let message = format!("{flag}: the list is empty; available: {}", available());
        return Err(CliError::usage(message));
    }
    Ok(Opened {
        backends,
        machine: machines.join("; "),
    })
}

fn most_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn note_threads(engine: &EngineArgs) {
    let most = most_threads();
    if engine.threads > most {
        ui::note(format!(
            "--threads {} is more than the {most} of this machine; using {most}",
            engine.threads
        ));
    }
}

/// The CPU backend: threads as given, at most those of the machine, and the instruction set that an option forces.
pub fn cpu(options: &[&str], engine: &EngineArgs) -> Result<CpuBackend, CliError> {
    let isa = match options {
        [] => None,
        [name] => Some(isa(name)?),
        [_, second, ..] => {
            return Err(CliError::usage(format!(
                "`cpu:..:{}`: one instruction set at a time{}",
                shortened(second),
                precision_hint(second)
            )));
        }
    };
    Ok(CpuBackend::with_options(CpuOptions {
        threads: engine.threads.min(most_threads()),
        keep_mapped: engine.mmap,
        isa,
    })?)
}

/// The GPU backend: the words behind its name choose an adapter, by index or a part of its name, and `baseline` masks it
/// to what WebGPU guarantees.
pub fn wgpu(options: &[&str]) -> Result<WgpuBackend, CliError> {
    let mut wgpu = WgpuOptions::default();
    let mut adapter: Option<&str> = None;
    for &option in options {
        if option == "baseline" {
            wgpu = wgpu.with_baseline(true);
            continue;
        }
        if adapter.replace(option).is_some() {
            let message = format!("`wgpu:..:{}`: one adapter at a time", shortened(option));
            return Err(CliError::usage(message));
        }
        wgpu = wgpu.with_adapter(adapter_choice(option)?);
    }
    let pipelines = Settings::from_env().cache.join("pipelines");
    WgpuBackend::new(wgpu.with_pipeline_cache(pipelines)).map_err(|e| match e {
        // No such adapter: the list was wrong, not the work.
        BackendError::InvalidInput { .. } => {
            let hint = adapter.map_or(String::new(), |name| hint(name, &["baseline"]));
            CliError::usage(format!("{e}{hint}"))
        }
        other => other.into(),
    })
}

fn adapter_choice(word: &str) -> Result<AdapterChoice, CliError> {
    let refuse = |reason: &str| {
        Err(CliError::usage(format!(
            "`wgpu:{}`: {reason}; behind `wgpu:` goes an adapter's index, as `glia devices` lists them, a part of its name, \
             or baseline",
            shortened(word)
        )))
    };
    let is_precision = precision_hint(word);
    if word.is_empty() {
        return refuse("nothing follows the colon");
    }
    if !is_precision.is_empty() {
        return refuse(&format!("no adapter{is_precision}"));
    }
    if let Ok(index) = word.parse() {
        return match word.starts_with('+') {
            true => refuse("an index has no sign"),
            false => Ok(AdapterChoice::Index(index)),
        };
    }
    if word.bytes().all(|b| b.is_ascii_digit()) {
        return refuse("no adapter of so large an index");
    }
    let numeric = word.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c));
    if numeric && word.parse::<f64>().is_ok() {
        return refuse("an index is a whole number from 0");
    }
    Ok(AdapterChoice::Name(word.to_owned()))
}

/// For those who look for the precision among the options of a backend, where only `compare` has it.
fn precision_hint(word: &str) -> String {
    match word {
        "exact" | "fast" => format!("; the precision is an option of its own, --precision {word}"),
        _ => String::new(),
    }
}

fn isa(name: &str) -> Result<Isa, CliError> {
    let all = Isa::all_available();
    all.iter().copied().find(|isa| isa.name() == name).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|isa| isa.name()).collect();
        let reason = match name {
            "" => "nothing follows the colon, where an instruction set of this machine goes".to_owned(),
            _ => format!(
                "no instruction set of this machine{}{}",
                precision_hint(name),
                hint(name, &names)
            ),
        };
        let (name, names) = (shortened(name), names.join(", "));
        CliError::usage(format!("`cpu:{name}`: {reason}; it has {names}"))
    })
}
