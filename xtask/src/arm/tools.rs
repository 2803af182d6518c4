//! A compiler, a linker and an emulator for aarch64: those of the machine, or Debian's packages unpacked into a folder
//! of the workspace. Nothing is installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::TARGET;
use crate::sh;

/// Debian's current Rust, kept up for its browsers, the linker and the emulator.
const PACKAGES: &[&str] = &[
    "rustc-web",
    "gcc-aarch64-linux-gnu",
    "libc6-dev-arm64-cross",
    "qemu-user",
];
/// The standard library, which is a package of the other architecture.
const STD: &str = "libstd-rust-web-dev:arm64";

/// What compiles and runs.
pub struct Tools {
    /// Where it is not the workspace's own.
    pub rustc: Option<PathBuf>,
    pub linker: PathBuf,
    pub qemu: PathBuf,
}

/// The machine's tools where it has all three, else unpacked packages. The error is the reason for a skip.
pub fn find() -> Result<Tools, String> {
    let (gcc, qemu) = ("aarch64-linux-gnu-gcc", "qemu-aarch64");
    if let (true, Some(linker), Some(qemu)) = (has_std(), on_path(gcc), on_path(qemu)) {
        return Ok(Tools {
            rustc: None,
            linker,
            qemu,
        });
    }
    let folder = sh::root().join(".cache/arm");
    let root = folder.join("root");
    if !folder.join("complete").exists() {
        unpack(&folder, &root)?;
    }
    let tool = |name: &str| {
        let packed = root.join("usr/bin").join(name);
        let found = packed.exists().then_some(packed).or_else(|| on_path(name));
        found.ok_or_else(|| format!("{name} is not in Debian's packages as unpacked in {}", folder.display()))
    };
    Ok(Tools {
        rustc: Some(wrapper(&folder, "rustc", &tool("rustc")?, "")?),
        linker: wrapper(&folder, gcc, &tool(gcc)?, "")?,
        // What it runs must not look for libraries of this architecture.
        qemu: wrapper(&folder, qemu, &tool(qemu)?, "-U LD_LIBRARY_PATH")?,
    })
}

/// Whether the workspace's toolchain has the target's standard library.
fn has_std() -> bool {
    let mut rustc = Command::new("rustc");
    rustc
        .args(["--print", "target-libdir", "--target", TARGET])
        .current_dir(sh::root());
    let output = rustc
        .output()
        .map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned());
    output.is_ok_and(|dir| Path::new(&dir).is_dir())
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|p| p.is_file())
}

/// Downloads what the machine lacks, with a package state of our own, and unpacks it.
fn unpack(folder: &Path, root: &Path) -> Result<(), String> {
    for tool in ["apt-get", "dpkg-deb"] {
        on_path(tool)
            .ok_or_else(|| format!("rustc, gcc and qemu for {TARGET} are not installed, and no {tool} here"))?;
    }
    let debs = folder.join("archives");
    for dir in [&debs.join("partial"), &folder.join("state/lists/partial"), root] {
        fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    }
    let apt = |args: &[&str]| {
        let mut apt = Command::new("apt-get");
        apt.args(["-qq", "-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User="]);
        apt.args(["-o", "APT::Architectures=amd64,arm64", "-o", "Acquire::Languages=none"]);
        for (key, dir) in [("Dir::State", "state"), ("Dir::Cache", "")] {
            apt.arg("-o").arg(format!("{key}={}", folder.join(dir).display()));
        }
        apt.args(["-o", "Dir::State::status=/var/lib/dpkg/status"]);
        apt.args(args).current_dir(&debs);
        apt
    };
    // Sources that do not know the architecture complain; what counts is whether the packages arrive.
    let _ = sh::run(apt(&["update"]));
    let mut install = vec!["install", "--download-only", "--no-install-recommends", "--yes"];
    install.extend(PACKAGES);
    for args in [&install[..], &["download", STD]] {
        sh::run(apt(args)).map_err(|e| format!("Debian's packages for it could not be fetched: {e}"))?;
    }
    let files = fs::read_dir(&debs).map_err(|e| format!("{}: {e}", debs.display()))?;
    for file in files.filter_map(|f| Some(f.ok()?.path())) {
        if file.extension().is_some_and(|e| e == "deb") {
            let status = Command::new("dpkg-deb").arg("-x").arg(&file).arg(root).status();
            if !status.is_ok_and(|s| s.success()) {
                return Err(format!("dpkg-deb cannot unpack {}", file.display()));
            }
        }
    }
    fs::remove_dir_all(&debs)
        .and_then(|()| fs::write(folder.join("complete"), ""))
        .map_err(|e| format!("{}: {e}", folder.display()))
}

/// A script that runs an unpacked program with the libraries beside it, and with `first` before its other arguments.
fn wrapper(folder: &Path, name: &str, program: &Path, first: &str) -> Result<PathBuf, String> {
    use std::os::unix::fs::PermissionsExt;
    let path = folder.join(name);
    let usr = folder.join("root/usr");
    let script = format!(
        "#!/bin/sh\nPATH='{usr}/bin':\"$PATH\" LD_LIBRARY_PATH='{usr}/lib/x86_64-linux-gnu' exec '{program}' {first} \"$@\"\n",
        usr = usr.display(),
        program = program.display()
    );
    fs::write(&path, script)
        .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o755)))
        .map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(path)
}
