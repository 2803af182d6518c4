//! Rendered chat templates against those of the reference.

use super::tokenizers::{from_failures, json_files, read_json, stem};
use super::{CaseResult, Outcome};
use crate::template::{ChatInput, ChatTemplate, Clock};
use serde_json::{Map, Value};
use std::path::Path;

/// Runs every `chat-*.json` of a folder: one case a template, one check a row.
pub fn run(dir: &Path) -> Vec<CaseResult> {
    let mut results = Vec::new();
    for file in json_files(dir) {
        let name = stem(&file);
        match read_json(&file) {
            Ok(case) if case["template"].is_string() => results.push(run_case(&name, &case)),
            Ok(_) => {}
            Err(e) => results.push(CaseResult {
                name,
                outcome: Outcome::Fail(e),
            }),
        }
    }
    results
}

/// Runs a list of `{name, template, vars, expect}` rows, those that Python's Jinja agrees with.
pub fn run_suite(file: &Path) -> Vec<CaseResult> {
    let rows = match read_json(file) {
        Ok(rows) => rows,
        Err(e) => {
            return vec![CaseResult {
                name: stem(file),
                outcome: Outcome::Fail(e),
            }];
        }
    };
    let run_row = |row: &Value| {
        let name = format!(
            "{}/{}",
            row["group"].as_str().unwrap_or("?"),
            row["name"].as_str().unwrap_or("?")
        );
        if row["python_jinja2_agrees"] != true {
            return CaseResult {
                name,
                outcome: Outcome::Unsupported("Python's Jinja does not agree".into()),
            };
        }
        let rendered = ChatTemplate::new(row["template"].as_str().unwrap_or_default(), Map::new(), Clock::System)
            .and_then(|t| t.render_raw(&row["vars"]))
            .map_err(|e| e.to_string());
        let mut failures = Vec::new();
        compare(&row["template"].to_string(), &rendered, &row["expect"], &mut failures);
        from_failures(&name, &failures)
    };
    rows.as_array()
        .map_or(&[][..], Vec::as_slice)
        .iter()
        .map(run_row)
        .collect()
}

fn run_case(name: &str, case: &Value) -> CaseResult {
    let special = case["special_tokens"].as_object().cloned().unwrap_or_default();
    let source = case["template"].as_str().unwrap_or_default();
    let template = match ChatTemplate::new(source, special, Clock::System) {
        Ok(template) => template,
        Err(e) => {
            return CaseResult {
                name: name.into(),
                outcome: Outcome::Fail(e.to_string()),
            };
        }
    };
    let mut failures = Vec::new();
    for row in case["rows"].as_array().map_or(&[][..], Vec::as_slice) {
        let conv = row["conv"].as_str().unwrap_or_default();
        let mut variables = case["conversations"][conv].as_object().cloned().unwrap_or_default();
        let input = ChatInput {
            messages: variables.shift_remove("messages").unwrap_or_default(),
            tools: variables.shift_remove("tools").unwrap_or_default(),
            variables,
            add_generation_prompt: row["add_generation_prompt"] == true,
            continue_final_message: row["continue_final_message"] == true,
        };
        let rendered = template.render(&input).map_err(|e| e.to_string());
        let what = format!(
            "{conv} (prompt {}, continue {})",
            input.add_generation_prompt, input.continue_final_message
        );
        compare(&what, &rendered, &row["text"], &mut failures);
    }
    from_failures(name, &failures)
}

/// A row without a text must be refused.
fn compare(what: &str, rendered: &Result<String, String>, expected: &Value, failures: &mut Vec<String>) {
    match (rendered, expected.as_str()) {
        (Ok(text), Some(expected)) if text == expected => {}
        (Ok(text), Some(expected)) => failures.push(format!("{what} gave {text:?}, not {expected:?}")),
        (Ok(text), None) => failures.push(format!("{what} gave {text:?}, but must be refused")),
        (Err(e), Some(_)) => failures.push(format!("{what}: {e}")),
        (Err(_), None) => {}
    }
}
