//! `glia inspect`: what a model file holds and how it would run.

use std::ffi::OsStr;
use std::io::Write;

use clap::ValueEnum;
use glia_cli::fetch::Located;
use glia_model::{Contents, Options};

use super::engine;
use crate::args::{GraphForm, InspectArgs};
use crate::exit::CliError;
use crate::ui;

/// Prints the card, and what else was asked for.
pub fn run(args: &InspectArgs) -> Result<(), CliError> {
    let (model, graph) = words(&args.model, args.form.as_deref(), args.graph)?;
    let options = engine::options(&args.engine, args.ctx)?;
    let located = engine::locate(Some(model), false)?;
    let file = match engine::open_file(&located, &options) {
        Ok(file) => file,
        Err(error) if graph.is_none() && !args.plan => return list(&located, &options, args, error),
        Err(error) => return Err(error),
    };
    let mut out = ui::stdout();
    if let Some(form) = graph {
        let graph = file.graph()?;
        match form {
            GraphForm::Text => write!(out, "{graph}")?,
            GraphForm::Dot => write!(out, "{}", graph.to_dot())?,
        }
    }
    lists(&mut out, args, file.tensors(), file.metadata())?;
    if args.plan {
        let model = engine::load(&located, file, options)?;
        write!(out, "{}", model.plan())?;
    } else if graph.is_none() && !args.tensors && !args.metadata {
        write!(out, "{}", file.card())?;
    }
    Ok(out.finish()?)
}

/// Lists a file that makes no model that can run, and says why it does not; `error` where it cannot even be listed.
fn list(located: &Located, options: &Options, args: &InspectArgs, error: CliError) -> Result<(), CliError> {
    let Located::Path(path) = located else {
        return Err(error);
    };
    let Ok(contents) = Contents::open(path, options.mmap) else {
        return Err(error);
    };
    let mut out = ui::stdout();
    if args.tensors || args.metadata {
        ui::note(error.to_string());
        lists(&mut out, args, contents.tensors(), contents.metadata())?;
    } else {
        write!(out, "{}", contents.card(&error.to_string()))?;
    }
    Ok(out.finish()?)
}

fn lists(
    out: &mut impl Write,
    args: &InspectArgs,
    tensors: Vec<String>,
    metadata: Vec<(String, String)>,
) -> Result<(), CliError> {
    if args.tensors {
        for tensor in tensors {
            writeln!(out, "{tensor}")?;
        }
    }
    if args.metadata {
        for (key, value) in metadata {
            writeln!(out, "{key} = {value}")?;
        }
    }
    Ok(())
}

/// The model and the form of the graph: `--graph=dot` is one word, `--graph dot` leaves `dot` among the others.
fn words<'a>(
    model: &'a OsStr,
    second: Option<&'a OsStr>,
    graph: Option<GraphForm>,
) -> Result<(&'a OsStr, Option<GraphForm>), CliError> {
    let form = |word: &OsStr| word.to_str().and_then(|w| GraphForm::from_str(w, false).ok());
    let Some(second) = second else {
        return Ok((model, graph));
    };
    if graph.is_none() {
        return Err(CliError::usage(format!(
            "`{}` is one word too many: one model at a time",
            second.display()
        )));
    }
    match (form(second), form(model)) {
        (Some(form), _) => Ok((model, Some(form))),
        (None, Some(form)) => Ok((second, Some(form))),
        (None, None) => Err(CliError::usage(format!(
            "`{}` is no form of the graph: --graph=text or --graph=dot",
            second.display()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_of_the_graph_may_be_a_word_of_its_own() {
        let (text, dot) = (Some(GraphForm::Text), Some(GraphForm::Dot));
        for (model, second, graph, expected) in [
            ("m", None, None, ("m", None)),
            ("m", None, dot, ("m", dot)),
            ("m", Some("dot"), text, ("m", dot)),
            ("dot", Some("m"), text, ("m", dot)),
            ("dot", None, text, ("dot", text)),
        ] {
            let got = words(OsStr::new(model), second.map(OsStr::new), graph).unwrap();
            assert_eq!(got, (OsStr::new(expected.0), expected.1));
        }
        assert!(words(OsStr::new("m"), Some(OsStr::new("dot")), None).is_err());
        assert!(words(OsStr::new("m"), Some(OsStr::new("png")), text).is_err());
    }
}
