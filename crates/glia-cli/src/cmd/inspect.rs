//! `glia inspect`: what a model file holds and how it would run.

use std::io::Write;

use glia_model::{Model, ModelFile};

use super::engine;
use crate::args::{GraphForm, InspectArgs};
use crate::exit::CliError;

/// Prints the card, and what else was asked for.
pub fn run(args: &InspectArgs) -> Result<(), CliError> {
    let mut options = engine::options(&args.engine, None)?;
    options.max_intermediate_bytes = args.max_intermediate_bytes;
    let file = match engine::locate(Some(&args.model), true)? {
        glia_cli::fetch::Located::Path(path) => ModelFile::open(&path, &options)?,
        #[cfg(feature = "demo")]
        glia_cli::fetch::Located::Demo => ModelFile::open_demo(&options)?,
        #[cfg(not(feature = "demo"))]
        glia_cli::fetch::Located::Demo => return Err(CliError::failed("this build leaves the demo model out")),
    };
    let mut out = std::io::stdout().lock();
    if let Some(form) = args.graph {
        let graph = file.graph()?;
        match form {
            GraphForm::Text => write!(out, "{graph}")?,
            GraphForm::Dot => write!(out, "{}", graph.to_dot())?,
        }
    }
    if args.tensors {
        for tensor in file.tensors() {
            writeln!(out, "{tensor}")?;
        }
    }
    if args.metadata {
        for (key, value) in file.metadata() {
            writeln!(out, "{key} = {value}")?;
        }
    }
    if args.plan {
        let model = Model::load(file, options)?;
        write!(out, "{}", model.plan())?;
    } else if args.graph.is_none() && !args.tensors && !args.metadata {
        write!(out, "{}", file.card())?;
    }
    Ok(())
}
