//! `glia run`: one prompt, one answer on stdout.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use glia_model::{Event, GenerateParams, Model, SampleParams};

use super::timings::Times;
use super::{engine, text};
use crate::args::RunArgs;
use crate::exit::CliError;
use crate::ui;

/// Generates and prints.
pub fn run(args: &RunArgs) -> Result<(), CliError> {
    let start = Instant::now();
    let (model, prompt) = words(args)?;
    let max_tokens = max_tokens(args)?;
    // What can be told before a model is opened is told then.
    sample(args, &SampleParams::default())?;
    let prompt = match prompt {
        Some(word) if word == "-" => text::stdin()?,
        Some(word) => word
            .into_string()
            .map_err(|_| CliError::usage("the prompt is not UTF-8; give it through stdin: -p - < FILE"))?,
        None => {
            return Err(CliError::usage(
                "no prompt: give it as a word, with -p, or with -p - from stdin",
            ));
        }
    };
    if prompt.is_empty() && !args.raw {
        return Err(CliError::usage(
            "the prompt is empty: say something, or let the model begin by itself with --raw",
        ));
    }
    let (model, open) = engine::open_timed(model.as_deref(), &args.engine, args.offline, args.ctx)?;
    let params = GenerateParams {
        max_tokens,
        sample: sample(args, model.default_sampling())?,
        stop: args.stop.clone(),
        ..Default::default()
    };
    let encoding = Instant::now();
    let ids = prompt_ids(&model, args, &prompt)?;
    let mut times = Times::new(&model, open, encoding.elapsed(), ids.len());
    let mut out = ui::stdout();
    let mut generated: Vec<u32> = Vec::new();
    let mut printed = false;
    let mut print = |text: &str| -> Result<(), CliError> {
        if !text.is_empty() {
            printed = true;
            out.write_all(text.as_bytes())?;
            out.flush()?;
        }
        Ok(())
    };
    // Template and tokenizer are done; steps use little of the program.
    glia_model::release_unused();
    let feeding = Instant::now();
    for event in model.generate_ids(&ids, params)? {
        let event = event?;
        // Without room for a token there is no step.
        if args.max_tokens != 0 {
            times.first.get_or_insert_with(|| (feeding.elapsed(), start.elapsed()));
        }
        match event {
            Event::Token { id, text, .. } => {
                generated.push(id);
                if !args.ids {
                    print(&text)?;
                }
            }
            Event::End { text, .. } if !args.ids => print(&text)?,
            _ => {}
        }
    }
    if args.ids {
        print(&generated.iter().map(u32::to_string).collect::<Vec<_>>().join(" "))?;
    }
    // Nothing generated is nothing printed.
    if printed {
        out.write_all(b"\n")?;
    }
    out.finish()?;
    if args.timings {
        ui::line(times.table(generated.len(), start.elapsed()));
    }
    Ok(())
}

/// Which word is the model and which the prompt.
fn words(args: &RunArgs) -> Result<(Option<OsString>, Option<OsString>), CliError> {
    let (mut model, mut prompt) = (args.model.clone(), args.prompt.clone());
    let twice = |what: &str| CliError::usage(format!("the {what} is given twice: as a word and as an option"));
    match args.words.as_slice() {
        [] => {}
        [one] => {
            let is_model = model.is_none() && looks_like_model(one);
            let place = if is_model { &mut model } else { &mut prompt };
            if place.replace(one.clone()).is_some() {
                return Err(twice(if is_model { "model" } else { "prompt" }));
            }
        }
        [first, second] => {
            if model.replace(first.clone()).is_some() {
                return Err(twice("model"));
            }
            if prompt.replace(second.clone()).is_some() {
                return Err(twice("prompt"));
            }
        }
        _ => {
            return Err(CliError::usage(
                "at most two words: MODEL and PROMPT; quote a prompt of several words",
            ));
        }
    }
    Ok((model, prompt))
}

fn looks_like_model(word: &OsStr) -> bool {
    engine::is_model_path(word)
        || word.to_str().is_some_and(glia_cli::fetch::is_catalog_name)
        || (!word.as_encoded_bytes().contains(&b'\n') && Path::new(word).exists())
}

fn max_tokens(args: &RunArgs) -> Result<Option<usize>, CliError> {
    match args.max_tokens {
        -1 => Ok(None),
        n => usize::try_from(n).map(Some).map_err(|_| {
            CliError::usage(format!(
                "--max-tokens {n}: must be 0 or more, or -1 to go on until the context ends"
            ))
        }),
    }
}

/// The options that are given, over what the model's makers recommend.
fn sample(args: &RunArgs, recommended: &SampleParams) -> Result<SampleParams, CliError> {
    let top_k = match args.top_k {
        None => recommended.top_k,
        Some(-1) => 0,
        Some(k) => usize::try_from(k).map_err(|_| CliError::usage(format!("--top-k {k}: must be 0 (off) or more")))?,
    };
    let sample = SampleParams {
        temperature: args.temperature.unwrap_or(recommended.temperature),
        top_k,
        top_p: args.top_p.unwrap_or(recommended.top_p),
        min_p: args.min_p.unwrap_or(recommended.min_p),
        seed: args.seed,
        ..recommended.clone()
    };
    sample.check().map_err(|e| CliError::usage(format!("--{e}")))?;
    Ok(sample)
}

fn prompt_ids(model: &Model, args: &RunArgs, prompt: &str) -> Result<Vec<u32>, CliError> {
    if args.raw || !model.has_chat_template() {
        if !args.raw {
            ui::note(
                "this model has no chat template (a base model?): it goes on with the text as it is, rather than answer \
                 it; --raw says that this is meant",
            );
        }
        if args.system.is_some() {
            ui::note("--system has no effect without a chat template");
        }
        return Ok(model.tokenizer().encode_prompt(prompt, true)?);
    }
    let mut messages = Vec::new();
    if let Some(system) = &args.system {
        messages.push(serde_json::json!({ "role": "system", "content": system }));
    }
    messages.push(serde_json::json!({ "role": "user", "content": prompt }));
    Ok(model.chat_ids(&messages)?)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Args, Command};

    fn sampled(options: &[&str]) -> SampleParams {
        let Command::Run(args) = Args::parse_from([&["glia", "run"], options].concat()).command else {
            panic!("not `run`");
        };
        let recommended = SampleParams {
            temperature: 0.7,
            top_k: 40,
            top_p: 0.9,
            repeat_penalty: 1.1,
            ..SampleParams::default()
        };
        sample(&args, &recommended).unwrap()
    }

    #[test]
    fn options_win_over_what_the_model_recommends() {
        let own = sampled(&[]);
        assert_eq!((own.temperature, own.top_k, own.top_p, own.min_p), (0.7, 40, 0.9, 0.0));
        let greedy = sampled(&["--temperature", "0"]);
        assert_eq!((greedy.temperature, greedy.repeat_penalty), (0.0, 1.1));
        let other = sampled(&["--top-k", "-1", "--min-p", "0.1", "--seed", "7"]);
        assert_eq!((other.top_k, other.min_p, other.seed), (0, 0.1, Some(7)));
    }
}
