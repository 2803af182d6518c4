//! The house rules that no lint knows: who may depend on whom, headers, unsafe, unfinished work, file lengths.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Longer files are reported.
const WARN_LINES: usize = 500;
/// Longer files are refused.
const MAX_LINES: usize = 1000;

/// What was found.
#[derive(Default)]
pub struct Report {
    /// Broken rules.
    pub errors: Vec<String>,
    /// What should be looked at.
    pub warnings: Vec<String>,
}

/// Looks at the crates of `metadata` and at every source file under `root`.
pub fn inspect(root: &Path, metadata: &Value) -> Report {
    let mut report = Report::default();
    dependencies(metadata, &mut report);
    let mut files = Vec::new();
    for folder in ["crates", "xtask"] {
        collect(&root.join(folder), &mut files);
    }
    files.sort();
    for path in files {
        let name = path
            .strip_prefix(root)
            .unwrap_or(&path)
            .to_string_lossy()
            .replace('\\', "/");
        match fs::read_to_string(&path) {
            Ok(text) => file(&name, &text, &mut report),
            Err(error) => report.errors.push(format!("{name}: {error}")),
        }
    }
    for (name, line) in [
        ("crates/glia-core/src/lib.rs", "#![forbid(unsafe_code)]"),
        ("crates/glia-ir/src/lib.rs", "#![forbid(unsafe_code)]"),
        ("crates/glia-model/src/lib.rs", "#![deny(unsafe_code)]"),
    ] {
        let text = fs::read_to_string(root.join(name)).unwrap_or_default();
        if !text.contains(line) {
            report.errors.push(format!("{name}: `{line}` is missing"));
        }
    }
    report
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.filter_map(|e| Some(e.ok()?.path())) {
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
}

/// The crates of ours that `name` may depend on outside its tests; `None` is any.
fn allowed(name: &str) -> Option<&'static [&'static str]> {
    match name {
        "glia-core" => Some(&[]),
        "glia-ir" => Some(&["glia-core"]),
        "glia-model" => Some(&["glia-core", "glia-ir", "glia-backend-cpu"]),
        backend if backend.starts_with("glia-backend-") => Some(&["glia-core"]),
        _ => None,
    }
}

fn dependencies(metadata: &Value, report: &mut Report) {
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or("");
        if package["description"].as_str().is_none_or(str::is_empty) {
            report.errors.push(format!("{name}: Cargo.toml has no description"));
        }
        let Some(allowed) = allowed(name) else { continue };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let other = dependency["name"].as_str().unwrap_or("");
            if !other.starts_with("glia") || dependency["kind"].as_str() == Some("dev") {
                continue;
            }
            if !allowed.contains(&other) {
                report.errors.push(format!(
                    "{name} must not depend on {other} (see ARCHITECTURE.md, invariants)"
                ));
            }
            if name == "glia-model" && other.starts_with("glia-backend-") && dependency["optional"] != true {
                report
                    .errors
                    .push(format!("{name}: {other} must be optional, behind a feature"));
            }
        }
    }
}

fn file(name: &str, text: &str, report: &mut Report) {
    let mut error = |line: usize, what: &str| report.errors.push(format!("{name}:{line}: {what}"));
    if name.contains("/src/") && !text.starts_with("//!") {
        error(1, "a file begins with a `//!` header that says what it owns");
    }
    let may_be_unsafe = name.starts_with("crates/glia-backend-") || name.ends_with("glia-model/src/mmap.rs");
    // Spelt in two parts, so that this file does not find itself.
    let unfinished = [
        concat!("to", "do!("),
        concat!("unimpl", "emented!("),
        concat!("#[ig", "nore"),
    ];
    let places = [
        concat!("/ro", "ot/"),
        concat!("/ho", "me/"),
        concat!("/Us", "ers/"),
        concat!("/wo", "rk/"),
    ];
    for (i, line) in text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or("");
        for word in unfinished.iter().filter(|w| code.contains(**w)) {
            error(i + 1, &format!("`{word}` is not finished work"));
        }
        if let Some(place) = places.iter().find(|p| line.contains(**p)) {
            error(i + 1, &format!("`{place}` is a path of one machine"));
        }
        if !may_be_unsafe && code.contains(concat!("uns", "afe {")) {
            error(i + 1, "unsafe lives in the backends and in glia-model's mmap.rs only");
        }
    }
    let n_lines = text.lines().count();
    if n_lines > MAX_LINES {
        error(n_lines, &format!("{n_lines} lines; at most {MAX_LINES}: split it"));
    } else if n_lines > WARN_LINES {
        report
            .warnings
            .push(format!("{name}: {n_lines} lines; a median near 150 is the aim"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_workspace_keeps_the_rules() {
        let report = inspect(&crate::sh::root(), &crate::sh::metadata().unwrap());
        assert!(report.errors.is_empty(), "{}", report.errors.join("\n"));
    }

    #[test]
    fn broken_rules_are_found() {
        let cases = [
            ("crates/a/src/x.rs", "fn f() {}\n".to_owned()),
            ("crates/a/src/x.rs", format!("//! H.\n{}", concat!("to", "do!()"))),
            (
                "crates/a/src/x.rs",
                format!("//! H.\nconst P: &str = \"{}x\";", concat!("/ro", "ot/")),
            ),
            (
                "crates/glia-core/src/x.rs",
                format!("//! H.\n{} }}", concat!("uns", "afe {")),
            ),
            ("crates/a/src/x.rs", format!("//! H.\n{}", "\n".repeat(1001))),
        ];
        for (name, text) in cases {
            let mut report = Report::default();
            file(name, &text, &mut report);
            assert_eq!(report.errors.len(), 1, "{name}: {:?}", report.errors);
        }
    }

    #[test]
    fn wrong_directions_are_found() {
        let package = |name: &str, other: &str, kind: Value| json!({"packages": [{"name": name, "description": "d", "dependencies": [{"name": other, "kind": kind}]}]});
        let n_errors = |metadata: &Value| {
            let mut report = Report::default();
            dependencies(metadata, &mut report);
            report.errors.len()
        };
        assert_eq!(n_errors(&package("glia-backend-x", "glia-ir", Value::Null)), 1);
        assert_eq!(n_errors(&package("glia-core", "glia-model", Value::Null)), 1);
        assert_eq!(n_errors(&package("glia-model", "glia-backend-cpu", Value::Null)), 1);
        assert_eq!(n_errors(&package("glia-ir", "glia-backend-cpu", json!("dev"))), 0);
        assert_eq!(n_errors(&package("glia-ir", "glia-core", Value::Null)), 0);
    }
}
