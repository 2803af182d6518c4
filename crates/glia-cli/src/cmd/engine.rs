//! From the common options to an open model: backends, context, precision.

use std::path::Path;
use std::sync::Arc;

use glia_backend_cpu::{CpuBackend, CpuOptions};
use glia_core::{Backend, DType};
use glia_model::{Model, Options};

use crate::args::{CacheType, EngineArgs, PrecisionArg};
use crate::exit::CliError;
use crate::ui;

/// The CPU backend that the options ask for.
pub fn cpu(engine: &EngineArgs) -> Result<CpuBackend, CliError> {
    let most = std::thread::available_parallelism().map_or(1, usize::from);
    if engine.threads > most {
        ui::note(format!(
            "--threads {} is more than the {most} of this machine; using {most}",
            engine.threads
        ));
    }
    Ok(CpuBackend::with_options(CpuOptions {
        threads: engine.threads.min(most),
        ..CpuOptions::default()
    })?)
}

fn backends(engine: &EngineArgs) -> Result<Vec<Arc<dyn Backend>>, CliError> {
    let mut backends: Vec<Arc<dyn Backend>> = Vec::new();
    for name in engine.backend.split(',').map(str::trim).filter(|n| !n.is_empty()) {
        match name {
            "cpu" => backends.push(Arc::new(cpu(engine)?)),
            other => {
                return Err(CliError::usage(format!(
                    "--backend: `{other}` is not in this build; available: cpu"
                )));
            }
        }
    }
    if backends.is_empty() {
        return Err(CliError::usage("--backend: the list is empty; available: cpu"));
    }
    Ok(backends)
}

/// The options of the library that the command line stands for.
pub fn options(engine: &EngineArgs, ctx: Option<usize>) -> Result<Options, CliError> {
    let plain = match engine.precision {
        PrecisionArg::Exact => CacheType::F32,
        PrecisionArg::Fast => CacheType::F16,
    };
    let kv: [DType; 2] = [
        engine.cache_type_k.unwrap_or(plain).into(),
        engine.cache_type_v.unwrap_or(plain).into(),
    ];
    let ctx = ctx.or((engine.ctx > 0).then_some(engine.ctx));
    Ok(Options {
        backends: Some(backends(engine)?),
        precision: engine.precision.into(),
        max_context: ctx,
        kv_dtypes: Some(kv),
        mmap: !engine.no_mmap,
        pre_tokenizer: engine.pre_tokenizer.clone(),
        ..Options::default()
    })
}

/// Finds, opens and prepares a model; `None` is the default model.
pub fn open_model(
    spec: Option<&str>,
    engine: &EngineArgs,
    offline: bool,
    ctx: Option<usize>,
) -> Result<Model, CliError> {
    let options = options(engine, ctx)?;
    let located = locate(spec, offline)?;
    let bar = ui::spinner("loading the model");
    let model = match &located {
        glia_cli::fetch::Located::Path(path) => Model::open_with(path, options)?,
        #[cfg(feature = "demo")]
        glia_cli::fetch::Located::Demo => Model::open_demo_with(options)?,
        #[cfg(not(feature = "demo"))]
        glia_cli::fetch::Located::Demo => return Err(CliError::failed("this build leaves the demo model out")),
    };
    bar.finish_and_clear();
    Ok(model)
}

/// A path that exists is itself; anything else is looked up in the catalog.
pub fn locate(spec: Option<&str>, offline: bool) -> Result<glia_cli::fetch::Located, CliError> {
    if let Some(path) = spec.map(Path::new)
        && (path.exists() || path.extension().is_some_and(|e| e == "gguf" || e == "safetensors"))
    {
        return Ok(glia_cli::fetch::Located::Path(path.to_owned()));
    }
    Ok(glia_cli::fetch::resolve(spec, offline)?)
}
