//! `glia compare`: one text through two sides, node by node.

mod logits;
mod report;
mod side;

use glia_core::Tensor;
use glia_ir::compare::{Task, compare};
use glia_model::{ModelError, ModelFile, Options};

use super::{engine, text};
use crate::args::{CompareArgs, DEFAULT_TOKENS};
use crate::exit::CliError;
use crate::ui;
use logits::Divergence;
use report::Report;
use side::Named;

/// What both sides read when no text is given.
const TEXT: &str = "The lighthouse keeper climbed the spiral stairs each evening at dusk, carrying a lamp and a small \
book of numbers. He wrote down the height of the tide, the direction of the wind and the names of the ships that passed, \
because his father had done so before him, and because 1847 had been the year in which nobody wrote anything, and three \
boats were lost.";

/// Runs both sides and prints what differs.
pub fn run(args: &CompareArgs) -> Result<(), CliError> {
    check(args)?;
    let sides = side::pair(args)?;
    let options = Options {
        pre_tokenizer: args.pre_tokenizer.clone(),
        ..Options::default()
    };
    let located = engine::locate(Some(&args.model), false)?;
    let file = engine::open_file(&located, &options)?;
    let words = match (&args.prompt, &args.file) {
        (Some(prompt), _) => prompt.clone(),
        (None, Some(file)) => text::file(file)?,
        (None, None) => TEXT.to_owned(),
    };
    let tokenizer = file.tokenizer(&options)?;
    let mut ids = tokenizer.encode(&words, true, false).map_err(ModelError::from)?;
    check_tokens(args, &file, ids.len())?;
    ids.truncate(args.tokens);
    let steps = steps(&ids, args.decode)?;
    let (graph, weights) = (file.graph()?, file.weights());
    let of_sides = sides.each_ref().map(|s| s.side(ids.len()));
    let mut task = Task::new(&graph, &*weights, [&of_sides[0], &of_sides[1]], &steps);
    task.piece_by_piece = args.piece_by_piece;
    let mut divergence = Divergence::default();
    let bar = ui::bar(graph.nodes.len() as u64, "nodes");
    let found = compare(
        &task,
        |name, [a, b]| {
            if name == "logits" {
                divergence.add(a, b);
            }
        },
        |done, of| {
            bar.set_length(of as u64);
            bar.set_position(done as u64);
        },
    );
    bar.finish_and_clear();
    let limit = args.limit.unwrap_or_else(|| Named::usual_limit(&sides));
    let report = Report {
        model: args.model.to_string_lossy().into_owned(),
        sides: sides.map(|s| s.name),
        steps: steps.iter().map(|s| s.iter().map(|(_, t)| t.n_elems()).sum()).collect(),
        piece_by_piece: args.piece_by_piece,
        limit,
        logits: divergence,
        found: found?,
    };
    let mut out = ui::stdout();
    if args.json {
        report.json(&mut out)?;
    } else {
        report.table(&mut out)?;
    }
    out.finish()?;
    match report.worst() {
        Some(worst) if args.limit.is_some() && worst.difference.error() > limit => Err(CliError::failed(format!(
            "the error of `{}` is {:.3e}, more than the --limit of {limit:e}",
            worst.value,
            worst.difference.error()
        ))),
        _ => Ok(()),
    }
}

fn check(args: &CompareArgs) -> Result<(), CliError> {
    if args.tokens == 0 {
        return Err(CliError::usage("--tokens must be at least 1"));
    }
    if args.limit.is_some_and(|limit| limit.is_nan() || limit < 0.0) {
        return Err(CliError::usage("--limit must be 0 or more"));
    }
    Ok(())
}

/// That the tokens to compare are there, that the model was made for so many, and that they fit.
fn check_tokens(args: &CompareArgs, file: &ModelFile, n_given: usize) -> Result<(), CliError> {
    let (asked, trained) = (args.tokens, file.spec().max_positions);
    let n_tokens = asked.min(n_given);
    if n_tokens == 0 {
        return Err(CliError::usage(
            "the text has no tokens: give one with --prompt or --file",
        ));
    }
    if n_tokens > trained {
        return Err(CliError::usage(format!(
            "--tokens {asked}: {n_tokens} tokens of the text are more than the {trained} of the model's context; compare \
             at most so many"
        )));
    }
    if asked > n_given && args.tokens != DEFAULT_TOKENS {
        ui::note(format!(
            "the text has {n_given} tokens, fewer than the {asked} asked for; --file gives a longer one"
        ));
    }
    // All of them are computed in one step, whose values are kept.
    let options = Options {
        max_step_tokens: n_tokens,
        ..Options::default()
    };
    file.check_memory(&options, n_tokens)
        .map_err(|e| CliError::from(e).with_help("here the context is --tokens, which are computed at once"))
}

/// The text in one step but for the last `decode` tokens, which are a step each.
fn steps(ids: &[u32], decode: usize) -> Result<Vec<Vec<(String, Tensor)>>, CliError> {
    let (head, tail) = ids.split_at(ids.len() - decode.min(ids.len() - 1));
    let step = |ids: &[u32]| -> Result<Vec<(String, Tensor)>, CliError> {
        let ids: Vec<i32> = ids.iter().map(|&id| i32::try_from(id).unwrap_or(i32::MAX)).collect();
        Ok(vec![("input_ids".to_owned(), Tensor::from_i32([ids.len()], &ids)?)])
    };
    std::iter::once(head).chain(tail.chunks(1)).map(step).collect()
}
