//! Building what a check needs into a folder, so that it runs where there is no cargo, no network and no source.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::Args;
use super::vulkan::{CARRIED, LOADER, Machine};
use crate::{Outcome, sh};

/// Programs of the backend that run the conformance suite.
pub const SUITES: &[&str] = &["conformance", "conformance_baseline"];
/// The other programs.
const PROGRAMS: &[&str] = &["glia", "xtask"];

/// Runs the check that lies beside it, with the options given. Needs nothing of the machine but a shell.
const SCRIPT: &str = "#!/bin/sh
case \"$0\" in
*/*) here=${0%/*} ;;
*) here=. ;;
esac
exec \"$here/xtask\" device-check --prepared \"$here\" \"$@\"
";

/// Fills the folder: programs, golden models, libraries for Vulkan, the models given, and `run.sh`.
pub fn prepare(folder: &Path, models: &[PathBuf], args: &Args) -> Outcome {
    make(folder)?;
    programs(folder, &args.profile)?;
    let source = args.goldens.clone().unwrap_or_else(|| sh::root().join("goldens"));
    copy_all(&source.join("models"), &folder.join("goldens/models"))?;
    let own = folder.join("models");
    make(&own)?;
    for model in models {
        let name = model
            .file_name()
            .ok_or_else(|| format!("{}: no file", model.display()))?;
        copy_all(model, &own.join(name))?;
    }
    libraries(&Machine::of_this(), &folder.join("lib"))?;
    let script = folder.join("run.sh");
    std::fs::write(&script, SCRIPT).map_err(|e| format!("{}: {e}", script.display()))?;
    executable(&script)
}

fn make(folder: &Path) -> Outcome {
    std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))
}

/// All in one build, so that no crate is built twice.
fn programs(folder: &Path, profile: &str) -> Outcome {
    let mut args = vec![
        "build",
        "--profile",
        profile,
        "--message-format=json-render-diagnostics",
    ];
    args.extend(["-p", "glia-cli", "-p", "xtask", "-p", "glia-backend-wgpu"]);
    args.extend(["--features", "xtask/engine"]);
    args.extend(PROGRAMS.iter().flat_map(|name| ["--bin", name]));
    args.extend(SUITES.iter().flat_map(|name| ["--example", name]));
    let said = sh::output(sh::cargo(&args))?;
    let built = built(&said);
    for name in PROGRAMS.iter().chain(SUITES) {
        let program = built.iter().find(|(n, _)| n == name);
        let (_, program) = program.ok_or_else(|| format!("cargo built no `{name}`"))?;
        let target = folder.join(name);
        // A program that runs cannot be written to, but it can be replaced.
        let _ = std::fs::remove_file(&target);
        std::fs::copy(program, &target).map_err(|e| format!("{}: {e}", target.display()))?;
        // What is carried should be small; without `strip` it is larger.
        let _ = Command::new("strip").arg(&target).status();
    }
    Ok(())
}

/// Names and paths of the programs in what cargo says of a build.
fn built(messages: &str) -> Vec<(String, PathBuf)> {
    let parse = |line: &str| {
        let message: Value = serde_json::from_str(line).ok()?;
        let name = message["target"]["name"].as_str()?.to_owned();
        Some((name, message["executable"].as_str()?.into()))
    };
    messages.lines().filter_map(parse).collect()
}

/// A file or a folder with all that is in it.
fn copy_all(from: &Path, to: &Path) -> Outcome {
    let fail = |e: std::io::Error| format!("{}: {e}", from.display());
    if from.is_dir() {
        make(to)?;
        for entry in std::fs::read_dir(from).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            copy_all(&entry.path(), &to.join(entry.file_name()))?;
        }
        return Ok(());
    }
    if let Some(parent) = to.parent() {
        make(parent)?;
    }
    std::fs::copy(from, to).map(|_| ()).map_err(fail)
}

fn libraries(machine: &Machine, folder: &Path) -> Outcome {
    make(folder)?;
    for name in CARRIED {
        match machine.linked(name) {
            Some(path) => copy_all(&path, &folder.join(name))?,
            None if *name == LOADER => {
                println!("note: this machine has no {LOADER}, so none is carried: the other machine must have it");
            }
            None => {}
        }
    }
    Ok(())
}

#[cfg(unix)]
fn executable(file: &Path) -> Outcome {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(file, mode).map_err(|e| format!("{}: {e}", file.display()))
}

#[cfg(not(unix))]
fn executable(_file: &Path) -> Outcome {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device_check::tests::Folder;

    #[test]
    fn programs_are_found_in_what_cargo_says() {
        let said = "{\"reason\": \"compiler-artifact\", \"target\": {\"name\": \"glia\"}, \"executable\": \"/t/glia\"}\n\
                    {\"reason\": \"compiler-artifact\", \"target\": {\"name\": \"serde\"}, \"executable\": null}\n\
                    no JSON\n{\"reason\": \"build-finished\", \"success\": true}\n";
        assert_eq!(built(said), [("glia".to_owned(), PathBuf::from("/t/glia"))]);
    }

    #[test]
    fn files_and_folders_are_copied() {
        let folder = Folder::new("copy");
        folder.write("from/a/b", "x");
        folder.write("from/c", "y");
        copy_all(&folder.join("from"), &folder.join("to/here")).unwrap();
        assert_eq!(std::fs::read_to_string(folder.join("to/here/a/b")).unwrap(), "x");
        copy_all(&folder.join("from/c"), &folder.join("d/e")).unwrap();
        assert_eq!(std::fs::read_to_string(folder.join("d/e")).unwrap(), "y");
        assert!(
            copy_all(&folder.join("none"), &folder.join("f"))
                .unwrap_err()
                .contains("none")
        );
        libraries(&Machine::default(), &folder.join("lib")).unwrap();
    }

    /// The script finds its folder by the path that it was started with, from anywhere, also with blanks in it.
    #[cfg(unix)]
    #[test]
    fn the_script_runs_what_lies_beside_it() {
        let folder = Folder::new("the script");
        folder.write("run.sh", SCRIPT);
        folder.write("xtask", "#!/bin/sh\nprintf '%s\\n' \"$@\"\n");
        for name in ["run.sh", "xtask"] {
            executable(&folder.join(name)).unwrap();
        }
        let here = folder.join(".");
        for (program, cwd) in [
            (folder.join("run.sh"), Path::new("/")),
            ("./run.sh".into(), here.as_path()),
        ] {
            let mut command = Command::new(&program);
            command.args(["--seconds", "9"]).current_dir(cwd).env_clear();
            let said = sh::output(command).unwrap();
            let said: Vec<&str> = said.lines().collect();
            assert_eq!(
                (said[0], said[1], said[3], said[4]),
                ("device-check", "--prepared", "--seconds", "9")
            );
            let told = cwd.join(said[2]);
            assert_eq!(told.canonicalize().unwrap(), here.canonicalize().unwrap());
        }
    }
}
