//! `glia run`: one prompt, one answer on stdout.

use std::io::{Read, Write};
use std::path::Path;
use std::time::Instant;

use glia_core::CancelToken;
use glia_model::{Event, GenerateParams, Model, SampleParams};

use super::engine;
use crate::args::RunArgs;
use crate::exit::CliError;
use crate::ui;

/// Generates and prints.
pub fn run(args: &RunArgs) -> Result<(), CliError> {
    let start = Instant::now();
    let (model, prompt) = words(args)?;
    let params = params(args)?;
    let prompt = match prompt.as_deref() {
        Some("-") => read_stdin()?,
        Some(text) => text.to_owned(),
        None => {
            return Err(CliError::usage(
                "no prompt: give it as a word, with -p, or with -p - from stdin",
            ));
        }
    };
    let ctx = (args.engine.ctx > 0).then_some(args.engine.ctx);
    let model = engine::open_model(model.as_deref(), &args.engine, args.offline, ctx)?;
    let opened = start.elapsed();
    let ids = prompt_ids(&model, args, &prompt)?;
    let mut out = std::io::stdout().lock();
    let mut generated: Vec<u32> = Vec::new();
    let mut first = None;
    for event in model.generate_ids(&ids, params)? {
        match event? {
            Event::Token { id, text, .. } => {
                first.get_or_insert_with(|| start.elapsed());
                generated.push(id);
                if !args.ids && !text.is_empty() {
                    write(&mut out, &text)?;
                }
            }
            Event::End { text, .. } if !args.ids => write(&mut out, &text)?,
            _ => {}
        }
    }
    let ids_text = generated.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
    write(&mut out, if args.ids { &ids_text } else { "" })?;
    write(&mut out, "\n")?;
    if args.timings {
        let first = first.unwrap_or_else(|| start.elapsed());
        let decode = start.elapsed().saturating_sub(first).as_secs_f64();
        let n = generated.len().saturating_sub(1);
        ui::note(format!(
            "opened in {:.3} s, first token after {:.3} s ({} prompt tokens), then {n} tokens in {decode:.3} s ({:.1} tok/s)",
            opened.as_secs_f64(),
            first.as_secs_f64(),
            ids.len(),
            n as f64 / decode.max(1e-9),
        ));
    }
    Ok(())
}

/// Output that nobody reads any more ends the program quietly, as other filters do.
fn write(out: &mut impl Write, text: &str) -> Result<(), CliError> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        other => Ok(other?),
    }
}

/// Which word is the model and which the prompt.
fn words(args: &RunArgs) -> Result<(Option<String>, Option<String>), CliError> {
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

fn looks_like_model(word: &str) -> bool {
    let path = Path::new(word);
    path.extension().is_some_and(|e| e == "gguf" || e == "safetensors")
        || glia_cli::fetch::is_catalog_name(word)
        || (!word.contains('\n') && path.exists())
}

fn params(args: &RunArgs) -> Result<GenerateParams, CliError> {
    let max_tokens = match args.max_tokens {
        -1 => None,
        n => Some(usize::try_from(n).map_err(|_| {
            CliError::usage(format!(
                "--max-tokens {n}: must be 0 or more, or -1 to go on until the context ends"
            ))
        })?),
    };
    let top_k = match args.top_k {
        -1 => 0,
        k => usize::try_from(k).map_err(|_| CliError::usage(format!("--top-k {k}: must be 0 (off) or more")))?,
    };
    let sample = SampleParams {
        temperature: args.temperature,
        top_k,
        top_p: args.top_p,
        min_p: args.min_p,
        seed: args.seed,
        ..SampleParams::default()
    };
    sample.check().map_err(|e| CliError::usage(format!("--{e}")))?;
    let cancel = CancelToken::new();
    Ok(GenerateParams {
        max_tokens,
        sample,
        stop: args.stop.clone(),
        cancel: Some(cancel),
        ..Default::default()
    })
}

/// All of stdin as UTF-8; a byte order mark is dropped.
fn read_stdin() -> Result<String, CliError> {
    /// More text than any context holds; a runaway pipe must not fill the memory.
    const MAX_BYTES: u64 = 64 << 20;
    let mut bytes = Vec::new();
    std::io::stdin().lock().take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(CliError::failed(format!(
            "stdin: more than {MAX_BYTES} bytes of prompt"
        )));
    }
    let text = String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        CliError::failed(format!(
            "stdin: byte {at} is not UTF-8; convert the text first (iconv -t UTF-8)"
        ))
    })?;
    Ok(text.strip_prefix('\u{feff}').map_or(text.clone(), str::to_owned))
}

fn prompt_ids(model: &Model, args: &RunArgs, prompt: &str) -> Result<Vec<u32>, CliError> {
    if args.raw || !model.has_chat_template() {
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
