//! The name of a new crate: what cargo and the compiler accept, and the names in the code that follow from it.

use std::path::Path;

/// Keywords of every edition, and names that are taken by the compiler's own crates or by cargo's folders.
const RESERVED: &[&str] = &[
    "abstract",
    "alloc",
    "as",
    "async",
    "await",
    "become",
    "box",
    "break",
    "build",
    "const",
    "continue",
    "core",
    "crate",
    "deps",
    "do",
    "dyn",
    "else",
    "enum",
    "examples",
    "extern",
    "false",
    "final",
    "fn",
    "for",
    "gen",
    "if",
    "impl",
    "in",
    "incremental",
    "let",
    "loop",
    "macro",
    "match",
    "mod",
    "move",
    "mut",
    "override",
    "priv",
    "proc-macro",
    "pub",
    "ref",
    "return",
    "self",
    "static",
    "std",
    "struct",
    "super",
    "test",
    "trait",
    "true",
    "try",
    "type",
    "typeof",
    "unsafe",
    "unsized",
    "use",
    "virtual",
    "where",
    "while",
    "yield",
];

/// File names that Windows keeps for devices.
const DEVICES: &[&str] = &["aux", "con", "nul", "prn"];

/// A crate name and its spellings.
#[derive(Debug)]
pub struct Name {
    /// As in Cargo.toml: `glia-backend-foo`.
    pub package: String,
    /// What the backend calls itself: `foo`.
    short: String,
    /// Its type: `FooBackend`.
    type_name: String,
}

impl Name {
    /// Checks a name.
    pub fn new(package: &str) -> Result<Name, String> {
        let bad = |why: &str| {
            Err(format!(
                "`{package}` is no name for a crate: {why}; take one such as glia-backend-foo"
            ))
        };
        if !package.starts_with(|c: char| c.is_ascii_lowercase()) {
            return bad("it must begin with a small letter a to z");
        }
        if let Some(c) = package
            .chars()
            .find(|c| !matches!(c, 'a'..='z' | '0'..='9' | '-' | '_'))
        {
            return bad(&format!("it may not hold `{}`", c.escape_default()));
        }
        if package.len() > 64 {
            return bad("it is longer than 64 characters");
        }
        if package.ends_with(['-', '_']) || package.contains("--") || package.contains("__") {
            return bad("a `-` or `_` must stand between two words");
        }
        let hyphened = package.replace('_', "-");
        if RESERVED.contains(&hyphened.as_str()) || DEVICES.contains(&hyphened.as_str()) {
            return bad("the word is reserved by Rust, cargo or Windows");
        }
        if OURS.contains(&hyphened.as_str()) {
            return bad("glia has a crate of that name");
        }
        let short = ["glia-backend-", "backend-", "glia-"]
            .iter()
            .find_map(|prefix| hyphened.strip_prefix(prefix))
            .filter(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()))
            .unwrap_or(&hyphened);
        let short = short.strip_suffix("-backend").unwrap_or(short).to_owned();
        let camel: String = short.split('-').map(capital).collect();
        Ok(Name {
            package: package.to_owned(),
            type_name: format!("{camel}Backend"),
            short,
        })
    }

    /// A template with the names in place of the words in `__`.
    pub fn fill(&self, text: &str, root: &Path) -> String {
        // Inside a TOML string.
        let core = slashed(&root.join("crates").join("glia-core")).replace('"', "\\\"");
        let mut text = text.to_owned();
        for (word, value) in [
            ("__crate__", self.package.as_str()),
            ("__ident__", &self.package.replace('-', "_")),
            ("__short__", &self.short),
            ("__Struct__", &self.type_name),
            ("__glia_core__", &core),
            ("__guide__", &guide(root)),
            ("__version__", env!("CARGO_PKG_VERSION")),
            ("__rust_version__", env!("CARGO_PKG_RUST_VERSION")),
            ("__repository__", env!("CARGO_PKG_REPOSITORY")),
        ] {
            text = text.replace(word, value);
        }
        text
    }
}

/// Crates of the workspace, and what the new crate depends on.
const OURS: &[&str] = &[
    "glia",
    "glia-backend-cpu",
    "glia-backend-wgpu",
    "glia-cli",
    "glia-core",
    "glia-ir",
    "glia-model",
    "xtask",
];

/// Where the guide for authors of backends lies.
pub fn guide(root: &Path) -> String {
    slashed(&root.join("docs").join("writing-a-backend.md"))
}

/// A path as TOML and markdown take it on every system.
fn slashed(path: &Path) -> String {
    path.to_string_lossy().replace('\\', "/")
}

fn capital(word: &str) -> String {
    let mut chars = word.chars();
    chars
        .next()
        .map(|c| c.to_ascii_uppercase().to_string() + chars.as_str())
        .unwrap_or_default()
}
