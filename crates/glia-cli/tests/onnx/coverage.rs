//! The kept list of what is covered and what is not, with the reason: `docs/onnx-coverage.md`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::case::Case;

/// What became of a case.
pub struct Entry {
    pub name: String,
    /// Op that the case is about.
    pub op: String,
    /// `None` when it is covered.
    pub reason: Option<String>,
}

/// Where the list is kept.
pub fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/onnx-coverage.md")
}

/// The op of a case: its only node's, or that of the case whose definition it spells out.
pub fn op_of(case: &Case, cases: &[Case]) -> String {
    let whole = match case.name.find("_expanded") {
        Some(end) => cases.iter().find(|c| c.name == case.name[..end]),
        None => None,
    };
    let nodes = &whole.unwrap_or(case).graph.node;
    match nodes.as_slice() {
        [node] if !node.domain.is_empty() => format!("{}.{}", node.domain, node.op_type),
        [node, ..] => node.op_type.clone(),
        [] => "none".to_owned(),
    }
}

/// The list as text.
pub fn print(entries: &[Entry]) -> String {
    let n_covered = entries.iter().filter(|e| e.reason.is_none()).count();
    let mut text = format!(
        "# ONNX node tests\n\n\
         The node tests of the `onnx` package (version in `goldens/onnx/requirements.txt`) that the op vocabulary can say\n\
         exactly run on the oracle and on every backend; this list says which, and why the others do not. It is written by\n\
         the test that runs them (`cargo xtask onnx --bless`), which fails when the list is stale.\n\n\
         {n_covered} of {} cases are covered. A case `.._expanded` spells out the definition of another in smaller ops.\n\n\
         | op | cases | covered | why others are not |\n|---|---|---|---|\n",
        entries.len()
    );
    let mut ops: BTreeMap<&str, Vec<&Entry>> = BTreeMap::new();
    for entry in entries {
        ops.entry(&entry.op).or_default().push(entry);
    }
    for (op, cases) in &ops {
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        for reason in cases.iter().filter_map(|e| e.reason.as_deref()) {
            *reasons.entry(reason).or_default() += 1;
        }
        let why: Vec<String> = reasons.iter().map(|(reason, n)| format!("{n} {reason}")).collect();
        let n_covered = cases.iter().filter(|e| e.reason.is_none()).count();
        let _ = writeln!(text, "| {op} | {} | {n_covered} | {} |", cases.len(), why.join("; "));
    }
    text.push_str("\n## Covered\n\n```text\n");
    for entry in entries.iter().filter(|e| e.reason.is_none()) {
        let _ = writeln!(text, "{}", entry.name);
    }
    text.push_str("```\n\n## Not covered\n\n```text\n");
    for entry in entries {
        if let Some(reason) = &entry.reason {
            let _ = writeln!(text, "{}: {reason}", entry.name);
        }
    }
    text.push_str("```\n");
    text
}

/// Names that a list calls covered.
pub fn covered(text: &str) -> Vec<&str> {
    let list = text
        .split("## Covered")
        .nth(1)
        .and_then(|rest| rest.split("```").nth(1));
    list.unwrap_or("").lines().filter(|l| l.starts_with("test_")).collect()
}
