//! From the common options to an open model: backends, context, precision.

use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, Instant};

use glia_cli::fetch::{self, Located};
use glia_model::{Model, ModelFile, Options};

use super::backends;
use crate::args::EngineArgs;
use crate::exit::CliError;
use crate::ui;

/// The options of the library that the command line stands for; a `ctx` of 0 is the model's own.
pub fn options(engine: &EngineArgs, ctx: usize) -> Result<Options, CliError> {
    options_and_machine(engine, ctx).map(|(options, _)| options)
}

/// As [`options`]; also in words what the backends run on.
pub fn options_and_machine(engine: &EngineArgs, ctx: usize) -> Result<(Options, String), CliError> {
    let opened = backends::open_list("--backend", &engine.backend, ',', engine)?;
    let options = Options {
        backends: Some(opened.backends),
        precision: engine.precision.into(),
        max_context: (ctx > 0).then_some(ctx),
        max_step_tokens: engine.max_step_tokens,
        max_intermediate_bytes: engine.max_intermediate_bytes,
        kv_dtypes: Some(engine.kv_dtypes()),
        mmap: !engine.no_mmap,
        pre_tokenizer: engine.pre_tokenizer.clone(),
        release_unused: true,
        ..Options::default()
    };
    Ok((options, opened.machine))
}

/// Finds, opens and prepares a model; `None` is the default model.
pub fn open_model(spec: Option<&OsStr>, engine: &EngineArgs, offline: bool, ctx: usize) -> Result<Model, CliError> {
    open_timed(spec, engine, offline, ctx).map(|(model, _)| model)
}

/// As [`open_model`]; also how long it took to find the file and read its header.
pub fn open_timed(
    spec: Option<&OsStr>,
    engine: &EngineArgs,
    offline: bool,
    ctx: usize,
) -> Result<(Model, Duration), CliError> {
    open_with(spec, options(engine, ctx)?, offline, ctx)
}

/// As [`open_timed`], with the library's options.
pub fn open_with(
    spec: Option<&OsStr>,
    options: Options,
    offline: bool,
    ctx: usize,
) -> Result<(Model, Duration), CliError> {
    let start = Instant::now();
    let located = locate(spec, offline)?;
    let bar = ui::spinner("loading the model");
    let file = open_file(&located, &options)?;
    let open = start.elapsed();
    let trained = file.spec().max_positions;
    let model = load(&located, file, options)?;
    bar.finish_and_clear();
    note_fallbacks(&model);
    if ctx > trained {
        ui::note(format!(
            "a context of {ctx} tokens is more than the {trained} that the model was trained on: what lies beyond may be \
             nonsense"
        ));
    }
    Ok((model, open))
}

/// Nothing falls back in silence.
fn note_fallbacks(model: &Model) {
    let plan = model.plan();
    let elsewhere = plan
        .fallbacks
        .iter()
        .filter(|f| f.backend > 0 || plan.backends.len() > 1)
        .count();
    if elsewhere > 0 {
        let (all, first) = (plan.graph.nodes.len(), &plan.backends[0]);
        ui::note(format!(
            "{elsewhere} of {all} nodes do not run on {first} itself (inspect --plan shows where)"
        ));
        plan.fallback_lines()
            .iter()
            .for_each(|line| ui::line(format!("  {line}")));
    }
}

/// Opens what was located; errors name the file.
pub fn open_file(located: &Located, options: &Options) -> Result<ModelFile, CliError> {
    match located {
        Located::Path(path) => {
            check_folder(path)?;
            ModelFile::open(path, options).map_err(|e| CliError::from(e).of_file(path))
        }
        #[cfg(feature = "demo")]
        Located::Demo => Ok(ModelFile::open_demo(options)?),
        #[cfg(not(feature = "demo"))]
        Located::Demo => Err(CliError::failed("this build leaves the demo model out")),
    }
}

/// Prepares an open file; errors name it.
pub fn load(located: &Located, file: ModelFile, options: Options) -> Result<Model, CliError> {
    let model = Model::load(file, options).map_err(|e| match located {
        Located::Path(path) => CliError::from(e).of_file(path),
        Located::Demo => e.into(),
    })?;
    model.warnings().iter().for_each(ui::note);
    Ok(model)
}

/// A folder without one of the files that make it a model, and what to do.
fn check_folder(folder: &Path) -> Result<(), CliError> {
    if !folder.is_dir() {
        return Ok(());
    }
    let fail = |reason: String| Err(CliError::failed(format!("{}: {reason}", folder.display())));
    if !folder.join("config.json").exists() {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut gguf: Vec<_> = entries.map(|e| e.path()).filter(|p| is_gguf(p)).collect();
        gguf.sort();
        return match gguf.first() {
            Some(file) => fail(format!(
                "is a folder without config.json; it holds {} GGUF file(s): name the file, such as {}",
                gguf.len(),
                file.display()
            )),
            None => fail(
                "is a folder without config.json, so no model: give a GGUF file, or a folder with config.json, \
                 tokenizer.json and safetensors"
                    .to_owned(),
            ),
        };
    }
    if !folder.join("tokenizer.json").exists() && !folder.join("tokenizer.model").exists() {
        return fail(
            "holds no tokenizer.json: copy it from where the model came from, or save it there with \
             AutoTokenizer.from_pretrained(...).save_pretrained(folder)"
                .to_owned(),
        );
    }
    Ok(())
}

fn is_gguf(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "gguf")
}

/// Whether a word is the path of a model file, there or not.
pub fn is_model_path(word: &OsStr) -> bool {
    let path = Path::new(word);
    is_gguf(path) || path.extension().is_some_and(|e| e == "safetensors")
}

/// A path that exists is itself; anything else is looked up in the catalog.
pub fn locate(spec: Option<&OsStr>, offline: bool) -> Result<Located, CliError> {
    let name = match spec {
        None => None,
        Some(word) if is_model_path(word) || Path::new(word).exists() => {
            return Ok(Located::Path(word.into()));
        }
        // No catalog name has other characters than these, so the lossy form is only ever shown.
        Some(word) => Some(word.to_string_lossy()),
    };
    Ok(fetch::resolve(name.as_deref(), offline)?)
}
