//! `cargo xtask onnx`: the node tests of the `onnx` package as one archive, for the tests of `glia-cli`.

use std::path::Path;
use std::process::Command;

use crate::{Outcome, sh};

/// What to do with the archive.
#[derive(clap::Args)]
pub struct Args {
    /// Make the archive even when it is there
    #[arg(long)]
    again: bool,
    /// Run the cases and rewrite docs/onnx-coverage.md
    #[arg(long)]
    bless: bool,
}

/// Installs the pinned package beside the archive, generates the cases, and prints where they are.
pub fn run(args: &Args) -> Outcome {
    let root = sh::root();
    let folder = root.join(".cache").join("onnx");
    let archive = folder.join("cases.zip");
    if args.again || !archive.exists() {
        std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        generate(&root.join("goldens").join("onnx"), &folder, &archive)?;
    }
    println!("{}", archive.display());
    if args.bless {
        let mut test = sh::cargo(&["test", "-p", "glia-cli", "--test", "onnx", "--", "--nocapture"]);
        test.env("GLIA_ONNX", &archive).env("GLIA_ONNX_BLESS", "1");
        sh::run(test)?;
    }
    Ok(())
}

fn generate(goldens: &Path, folder: &Path, archive: &Path) -> Outcome {
    let packages = folder.join("packages");
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
        .args(["--root-user-action", "ignore", "--no-deps", "--only-binary", ":all:"])
        .args(["--upgrade", "--require-hashes", "--target"])
        .arg(&packages)
        .arg("--requirement")
        .arg(goldens.join("requirements.txt"));
    sh::run(pip)?;
    // Written beside and moved: a broken run leaves no half archive.
    let partial = folder.join("cases.zip.part");
    let mut python = Command::new("python3");
    python
        .arg(goldens.join("generate.py"))
        .arg(&partial)
        .env("PYTHONPATH", &packages);
    sh::run(python)?;
    std::fs::rename(&partial, archive).map_err(|e| format!("{}: {e}", archive.display()))
}
