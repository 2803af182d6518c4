//! What is checked of a `tokenizer.json` before and after the library has read it: it trusts references within the file,
//! and some patterns.

use super::Encoding;
use super::error::{Result, TokenizerError, within_library};
use super::hf::HfEngine;
use serde::Deserialize;
use serde_json::Value;

/// The parts of the file that refer to others; the vocabulary is passed over.
#[derive(Deserialize)]
#[serde(expecting = "an object with `model`, `post_processor` and more")]
struct Outline {
    #[serde(default)]
    post_processor: Value,
}

/// Texts of different kinds: what fails on these fails on any.
const PROBES: &[&str] = &[
    "",
    " ",
    "a",
    "Hello, w\u{f6}rld  12!\n",
    "\u{65e5}\u{672c} \u{1f600}<a|b>",
];

fn bad(problem: impl Into<String>) -> TokenizerError {
    TokenizerError::BadFile {
        file: "tokenizer.json",
        problem: problem.into(),
    }
}

/// Checks the references of the post-processor.
///
/// # Errors
/// [`TokenizerError::BadFile`] naming the template and the token.
pub(crate) fn references(tokenizer_json: &[u8]) -> Result<()> {
    let outline: Outline = serde_json::from_slice(tokenizer_json).map_err(|e| bad(e.to_string()))?;
    post_processor(&outline.post_processor)
}

fn post_processor(processor: &Value) -> Result<()> {
    if let Some(list) = processor["processors"].as_array() {
        return list.iter().try_for_each(post_processor);
    }
    if processor["type"] != "TemplateProcessing" {
        return Ok(());
    }
    for form in ["single", "pair"] {
        for piece in processor[form].as_array().into_iter().flatten() {
            let Some(id) = piece["SpecialToken"]["id"].as_str() else {
                continue;
            };
            if processor["special_tokens"].get(id).is_none() {
                return Err(bad(format!(
                    "post_processor.{form} puts `{id}` around a text, which post_processor.special_tokens lacks"
                )));
            }
        }
    }
    Ok(())
}

/// Encodes texts of different kinds, so that a tokenizer that fails on every text is refused when it is loaded.
///
/// # Errors
/// [`TokenizerError::BadFile`] when the library panics.
pub(crate) fn probe(engine: &HfEngine) -> Result<()> {
    for parse_special in [false, true] {
        let how = Encoding {
            parse_special,
            guarded: false,
        };
        for text in PROBES {
            // A text may well have no tokens in a small vocabulary; that is no fault of the file.
            if let Err(e) = within_library(|| engine.encode_unguarded(text, true, how).map_or(0, |ids| ids.len())) {
                return Err(bad(format!(
                    "no text can be encoded with it, such as {text:?} ({e}): its normalizer, pre_tokenizer or \
                     post_processor is damaged"
                )));
            }
        }
    }
    Ok(())
}
