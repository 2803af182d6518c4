//! Token ids and decoded texts against those of the reference tokenizers.

use super::{CaseResult, Outcome};
use crate::gguf::GgufFile;
use crate::tokenizer::{GgufVocab, Tokenizer};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Runs every tokenizer case of a folder (`NAME.json` beside `tiny/NAME/`). The vocabularies of real models are looked
/// for as `NAME/tokenizer.json` in `extra`.
pub fn run(dir: &Path, extra: Option<&Path>) -> Vec<CaseResult> {
    let mut results = Vec::new();
    for file in json_files(dir) {
        let name = stem(&file);
        match read_json(&file) {
            Ok(case) if case["rows"].is_array() && case.get("template").is_none() => {
                results.push(run_case(&name, &case, dir, extra));
            }
            Ok(_) => {}
            Err(e) => results.push(CaseResult {
                name,
                outcome: Outcome::Fail(e),
            }),
        }
    }
    results
}

/// Runs ids per vocabulary: a JSON object of `FILE.gguf` to rows, with the files in `vocabs`.
pub fn run_gguf_suite(suite: &Path, vocabs: &Path) -> Vec<CaseResult> {
    let cases = match read_json(suite) {
        Ok(cases) => cases,
        Err(e) => {
            return vec![CaseResult {
                name: stem(suite),
                outcome: Outcome::Fail(e),
            }];
        }
    };
    let Some(cases) = cases.as_object() else {
        return Vec::new();
    };
    let run_vocab = |(name, rows): (&String, &Value)| {
        let path = vocabs.join(name);
        if !path.exists() {
            return CaseResult {
                name: name.clone(),
                outcome: Outcome::Unsupported(format!("{name} is not there")),
            };
        }
        let tokenizer = GgufFile::open(&path, true)
            .map_err(|e| e.to_string())
            .and_then(|f| Tokenizer::from_gguf_file(&f, None).map_err(|e| e.to_string()));
        match tokenizer {
            Err(e) => CaseResult {
                name: name.clone(),
                outcome: Outcome::Fail(e),
            },
            Ok(tokenizer) => {
                let mut failures = Vec::new();
                for row in rows.as_array().map_or(&[][..], Vec::as_slice) {
                    let text = row["text"].as_str().unwrap_or_default();
                    check_ids(&tokenizer, text, (false, true), &row["ids"], &mut failures);
                }
                from_failures(name, &failures)
            }
        }
    };
    cases.iter().map(run_vocab).collect()
}

/// Runs every `NAME.gguf` of a folder that has texts (`NAME.gguf.inp`, separated by a line of their own) and ids
/// (`NAME.gguf.out`, a line per text) beside it, in the form of llama.cpp's tests.
pub fn run_gguf_texts(vocabs: &Path) -> Vec<CaseResult> {
    let Ok(entries) = std::fs::read_dir(vocabs) else {
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "gguf"));
    files.sort();
    let run_vocab = |path: &PathBuf| {
        let (name, beside) = (stem(path), |kind: &str| {
            std::fs::read_to_string(format!("{}.{kind}", path.display()))
        });
        let outcome = |outcome| CaseResult {
            name: name.clone(),
            outcome,
        };
        let (Ok(texts), Ok(ids)) = (beside("inp"), beside("out")) else {
            return outcome(Outcome::Unsupported("there are no texts and ids beside it".into()));
        };
        let tokenizer = GgufFile::open(path, true)
            .map_err(|e| e.to_string())
            .and_then(|f| Tokenizer::from_gguf_file(&f, None).map_err(|e| e.to_string()));
        let tokenizer = match tokenizer {
            Ok(tokenizer) => tokenizer,
            Err(e) => return outcome(Outcome::Fail(e)),
        };
        let mut failures = Vec::new();
        for (text, line) in texts.split("\n__ggml_vocab_test__\n").zip(ids.lines()) {
            let expected: Vec<u32> = line.split_whitespace().filter_map(|id| id.parse().ok()).collect();
            check_ids(&tokenizer, text, (false, false), &Value::from(expected), &mut failures);
        }
        from_failures(&name, &failures)
    };
    files.iter().map(run_vocab).collect()
}

/// The `.json` files of a folder in order of name.
pub(super) fn json_files(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = entries
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|e| e == "json"))
        .collect();
    files.sort();
    files
}

pub(super) fn stem(path: &Path) -> String {
    path.file_stem()
        .map_or_else(String::new, |s| s.to_string_lossy().into_owned())
}

pub(super) fn read_json(path: &Path) -> Result<Value, String> {
    let text = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    serde_json::from_slice(&text).map_err(|e| format!("{}: {e}", path.display()))
}

fn run_case(name: &str, case: &Value, dir: &Path, extra: Option<&Path>) -> CaseResult {
    let outcome = |outcome| CaseResult {
        name: name.into(),
        outcome,
    };
    let tokenizer = match find(name, case, dir, extra) {
        Ok(Some(tokenizer)) => tokenizer,
        Ok(None) => return outcome(Outcome::Unsupported("its vocabulary is not there".into())),
        Err(e) => return outcome(Outcome::Fail(e)),
    };
    let mut failures = Vec::new();
    for row in case["rows"].as_array().map_or(&[][..], Vec::as_slice) {
        let text = row["text"].as_str().unwrap_or_default();
        // SentencePiece itself never reads control pieces in a text.
        let parse_special = case["sentencepiece_version"].is_null();
        check_ids(&tokenizer, text, (false, parse_special), &row["ids"], &mut failures);
        check_ids(&tokenizer, text, (true, true), &row["ids_special"], &mut failures);
        check_text(&tokenizer, &row["ids"], false, &row["decode"], &mut failures);
        check_text(
            &tokenizer,
            &row["ids_special"],
            false,
            &row["decode_special"],
            &mut failures,
        );
        check_text(
            &tokenizer,
            &row["ids_special"],
            true,
            &row["decode_skip"],
            &mut failures,
        );
    }
    from_failures(name, &failures)
}

/// A vocabulary in the case itself, in `tiny/NAME`, or in the extra folder.
fn find(name: &str, case: &Value, dir: &Path, extra: Option<&Path>) -> Result<Option<Tokenizer>, String> {
    if let Some(pieces) = case["pieces"].as_array() {
        return from_pieces(case, pieces).map(Some);
    }
    let mut folders = vec![dir.join("tiny").join(name)];
    if let Some(extra) = extra {
        folders.push(extra.join(name));
        if let Some(source) = case["source"].as_str().and_then(|s| Path::new(s).parent()) {
            folders.push(extra.join(source));
        }
    }
    for folder in folders {
        let read = |file: &str| std::fs::read(folder.join(file)).ok();
        if let Some(json) = read("tokenizer.json") {
            let config = read("tokenizer_config.json");
            return Tokenizer::from_hf(&json, config.as_deref())
                .map(Some)
                .map_err(|e| e.to_string());
        }
        if let Some(model) = read("tokenizer.model") {
            return Tokenizer::from_sentencepiece(&model)
                .map(Some)
                .map_err(|e| e.to_string());
        }
    }
    case["pieces"]
        .as_array()
        .map(|pieces| from_pieces(case, pieces))
        .transpose()
}

/// A SentencePiece BPE vocabulary that the case lists piece by piece.
fn from_pieces(case: &Value, pieces: &[Value]) -> Result<Tokenizer, String> {
    let mut vocab = GgufVocab {
        model: "llama".into(),
        prefix_once: true,
        ..GgufVocab::default()
    };
    // The vocabulary begins with the special pieces and those that the user defined, listed as normal; bytes follow.
    let n_special = pieces.iter().position(|p| p[2] == "byte").unwrap_or(0);
    for (i, piece) in pieces.iter().enumerate() {
        vocab.tokens.push(piece[0].as_str().unwrap_or_default().as_bytes());
        vocab.scores.push(piece[1].as_f64().unwrap_or_default() as f32);
        vocab.token_types.push(match piece[2].as_str() {
            Some("unk") => 2,
            Some("control") => 3,
            Some("user_defined") => 4,
            Some("unused") => 5,
            Some("byte") => 6,
            Some("normal") if i < n_special => 4,
            _ => 1,
        });
    }
    let id = |key: &str| case[key].as_u64().and_then(|id| u32::try_from(id).ok());
    (vocab.bos, vocab.eos, vocab.unk, vocab.pad) = (id("bos"), id("eos"), id("unk"), id("pad"));
    Tokenizer::from_gguf(vocab, None).map_err(|e| e.to_string())
}

fn ids_of(value: &Value) -> Option<Vec<u32>> {
    value
        .as_array()?
        .iter()
        .map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok()))
        .collect()
}

fn check_ids(tokenizer: &Tokenizer, text: &str, special: (bool, bool), expected: &Value, failures: &mut Vec<String>) {
    let Some(expected) = ids_of(expected) else { return };
    match tokenizer.encode(text, special.0, special.1) {
        Ok(ids) if ids == expected => {}
        Ok(ids) => failures.push(format!(
            "{text:?} (special tokens {}) gave {ids:?}, not {expected:?}",
            special.0
        )),
        Err(e) => failures.push(format!("{text:?}: {e}")),
    }
}

fn check_text(tokenizer: &Tokenizer, ids: &Value, skip: bool, expected: &Value, failures: &mut Vec<String>) {
    let (Some(ids), Some(expected)) = (ids_of(ids), expected.as_str()) else {
        return;
    };
    let streamed = || {
        let mut stream = tokenizer.decode_stream(skip);
        let mut text = String::new();
        for id in &ids {
            text.push_str(&stream.push(*id)?);
        }
        text.push_str(&stream.finish());
        Ok(text)
    };
    for (how, text) in [("decode", tokenizer.decode(&ids, skip)), ("decode stream", streamed())] {
        match text {
            Ok(text) if text == expected => {}
            Ok(text) => failures.push(format!(
                "{how} of {ids:?} (skip {skip}) gave {text:?}, not {expected:?}"
            )),
            Err(e) => failures.push(format!("{how} of {ids:?}: {e}")),
        }
    }
}

/// A case that passed when there are no failures; else the first few.
pub(super) fn from_failures(name: &str, failures: &[String]) -> CaseResult {
    let outcome = if failures.is_empty() {
        Outcome::Pass
    } else {
        let shown: Vec<&str> = failures.iter().take(5).map(String::as_str).collect();
        Outcome::Fail(format!("{} checks failed: {}", failures.len(), shown.join("; ")))
    };
    CaseResult {
        name: name.into(),
        outcome,
    }
}
