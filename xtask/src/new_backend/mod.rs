//! `cargo xtask new-backend NAME`: writes a crate outside the workspace that runs two ops, passes the conformance suite
//! and is ready to grow. The files are those of `template-backend/`, with the names filled in.

mod name;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};

use crate::{Outcome, sh};
use name::Name;

/// What the command takes.
#[derive(clap::Args)]
pub struct Args {
    /// Name of the crate, such as glia-backend-foo
    name: String,
    /// Folder to write, new or empty, outside the workspace [default: NAME beside the workspace]
    #[arg(long)]
    out: Option<PathBuf>,
}

/// Path in the new crate, and text with placeholders.
const TEMPLATE: [(&str, &str); 8] = [
    ("Cargo.toml", include_str!("../../template-backend/Cargo.toml.in")),
    (".gitignore", include_str!("../../template-backend/gitignore")),
    ("README.md", include_str!("../../template-backend/README.md.in")),
    ("src/lib.rs", include_str!("../../template-backend/src/lib.rs")),
    ("src/add.rs", include_str!("../../template-backend/src/add.rs")),
    ("src/matmul.rs", include_str!("../../template-backend/src/matmul.rs")),
    (
        "examples/conformance.rs",
        include_str!("../../template-backend/examples/conformance.rs"),
    ),
    (
        "tests/conformance.rs",
        include_str!("../../template-backend/tests/conformance.rs"),
    ),
];

/// Writes the crate and says what to do next.
pub fn run(args: &Args) -> Outcome {
    let root = sh::root();
    let out = match &args.out {
        Some(out) => out.clone(),
        None => root.parent().unwrap_or(&root).join(&args.name),
    };
    let name = Name::new(&args.name)?;
    let folder = write(&name, &out)?;
    println!("{}", next_steps(&name, &folder));
    Ok(())
}

/// Writes the crate into `out`; returns the folder's absolute path.
fn write(name: &Name, out: &Path) -> Result<PathBuf, String> {
    let root = sh::root();
    let folder = std::path::absolute(out).map_err(|e| format!("{}: {e}", out.display()))?;
    check_folder(&folder, &root)?;
    for (path, text) in TEMPLATE {
        let path = folder.join(path);
        let said = |e: std::io::Error| format!("{}: {e}", path.display());
        fs::create_dir_all(path.parent().unwrap_or(&folder)).map_err(said)?;
        fs::write(&path, name.fill(text, &root)).map_err(said)?;
    }
    // The versions that the checkout is tested with; cargo drops what the crate does not use.
    let lock = root.join("Cargo.lock");
    fs::copy(&lock, folder.join("Cargo.lock")).map_err(|e| format!("{}: {e}", lock.display()))?;
    Ok(folder)
}

/// That the folder is new or empty, and no part of the workspace.
fn check_folder(folder: &Path, root: &Path) -> Outcome {
    // A path that does not exist yet is judged by the part of it that does, with links followed.
    let real = |path: &Path| {
        let exists = path.ancestors().find(|p| p.exists()).unwrap_or(path);
        let rest = path.strip_prefix(exists).unwrap_or(Path::new("")).to_owned();
        exists.canonicalize().map(|p| p.join(rest)).unwrap_or(path.to_owned())
    };
    if real(folder).starts_with(real(root)) {
        return Err(format!(
            "{} lies inside the workspace {}: choose a folder outside with --out",
            folder.display(),
            root.display()
        ));
    }
    match fs::read_dir(folder) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(format!(
                "{} is not empty: choose another folder with --out, or empty it",
                folder.display()
            )),
        },
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(format!("{}: {e}", folder.display())),
    }
}

fn next_steps(name: &Name, folder: &Path) -> String {
    format!(
        "\
{} is ready in {folder}: it runs add and matmul on f32.

  cd {folder}
  cargo test                     the conformance suite, one test per case
  cargo test matmul              the cases of one op
  cargo run --example conformance    what it supports, as a table

Next: name another op in `supports` of src/lib.rs, compute it in `execute`, run its cases.
The guide, level by level: {}",
        name.package,
        name::guide(&sh::root()),
        folder = folder.display(),
    )
}
