//! `cargo xtask models`: real models for tests and benches, fetched by the same code that the program uses.

use std::path::PathBuf;

use glia_cli::fetch::{self, Settings, catalog, progress};

use crate::{Outcome, sh};

/// What to fetch and where to.
#[derive(clap::Args)]
pub struct Args {
    /// `small` (SmolLM2), `all`, or names of the catalog
    #[arg(default_value = "small")]
    names: Vec<String>,
    /// The folder, `.cache/models` of the workspace unless given
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// Fetches each model that is not there yet and prints its path and sha256.
pub fn run(args: &Args) -> Outcome {
    let cache = args
        .dir
        .clone()
        .unwrap_or_else(|| sh::root().join(".cache").join("models"));
    let settings = Settings {
        cache,
        hub_caches: Vec::new(),
        ..Settings::from_env()
    };
    let progress = progress::Stderr::new();
    let mut entries = Vec::new();
    for name in &args.names {
        match name.as_str() {
            "small" => entries.extend(catalog::find(catalog::DEFAULT)),
            "all" => entries.extend(catalog::ENTRIES),
            name => entries
                .push(catalog::find(name).ok_or_else(|| {
                    format!("`{name}` is not a model; use small, all or one of {}", catalog::names())
                })?),
        }
    }
    for entry in entries {
        let path = fetch::fetch(entry, &settings, &progress).map_err(|e| e.to_string())?;
        println!("{}  {}", entry.sha256, path.display());
    }
    Ok(())
}
