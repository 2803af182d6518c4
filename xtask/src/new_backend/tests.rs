//! Names and folders that are refused, and a crate that is written, built and tested.

use std::fs;
use std::path::PathBuf;

use super::name::Name;
use super::write;
use crate::sh;

/// A folder of this process, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(what: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("glia-new-backend-{}-{what}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn names_that_no_crate_can_have_are_refused() {
    let long = "a".repeat(65);
    for (name, said) in [
        ("", "begin with a small letter"),
        ("9lives", "begin with a small letter"),
        ("-x", "begin with a small letter"),
        ("Foo", "begin with a small letter"),
        ("foo bar", "may not hold ` `"),
        ("foo/bar", "may not hold `/`"),
        ("../foo", "begin with a small letter"),
        ("fooé", "may not hold `\\u{e9}`"),
        ("foo-", "between two words"),
        ("foo--bar", "between two words"),
        ("a__crate__b", "between two words"),
        (&long, "longer than 64"),
        ("match", "reserved"),
        ("async", "reserved"),
        ("gen", "reserved"),
        ("self", "reserved"),
        ("proc_macro", "reserved"),
        ("test", "reserved"),
        ("std", "reserved"),
        ("nul", "reserved"),
        ("glia-core", "glia has a crate"),
        ("glia_backend_cpu", "glia has a crate"),
    ] {
        let err = Name::new(name).unwrap_err();
        assert!(err.contains(said), "{name:?}: {err}");
    }
}

#[test]
fn names_are_spelt_as_code_needs_them() {
    for (package, expected) in [
        ("glia-backend-foo", "glia_backend_foo foo FooBackend"),
        ("npu", "npu npu NpuBackend"),
        ("my_fast-chip", "my_fast_chip my-fast-chip MyFastChipBackend"),
        ("tpu-backend", "tpu_backend tpu TpuBackend"),
        ("backend-9", "backend_9 backend-9 Backend9Backend"),
    ] {
        let name = Name::new(package).unwrap();
        assert_eq!(name.fill("__ident__ __short__ __Struct__", &sh::root()), expected);
    }
}

#[test]
fn folders_in_use_or_inside_the_workspace_are_refused() {
    let name = Name::new("foo").unwrap();
    let root = sh::root();
    for inside in [
        root.join("crates/foo"),
        root.join("foo"),
        root.clone(),
        root.join("docs/../crates/foo"),
    ] {
        let err = write(&name, &inside).unwrap_err();
        assert!(err.contains("inside the workspace"), "{err}");
    }
    let full = Folder::new("full");
    fs::create_dir_all(&full.0).unwrap();
    write(&name, &full.0).unwrap();
    let err = write(&name, &full.0).unwrap_err();
    assert!(err.contains("is not empty"), "{err}");
    let err = write(&name, &full.0.join("Cargo.toml")).unwrap_err();
    assert!(err.contains("Cargo.toml"), "{err}");
}

#[test]
fn no_placeholder_is_left() {
    let folder = Folder::new("filled");
    write(&Name::new("glia-backend-foo").unwrap(), &folder.0).unwrap();
    for (path, _) in super::TEMPLATE {
        let text = fs::read_to_string(folder.0.join(path)).unwrap();
        assert!(!text.contains("__"), "{path}: {text}");
    }
}

/// Builds a new crate as its author would and runs its tests, offline: CI has what the workspace needs, and no more.
#[test]
fn a_new_crate_passes_the_conformance_suite_with_two_ops() {
    let folder = Folder::new("built");
    // A name that shows whether every spelling of it is filled in.
    write(&Name::new("glia-backend-two_ops").unwrap(), &folder.0).unwrap();
    // Beside the workspace's own builds, so that a second run compiles three small crates only.
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let target = sh::root().join(target).join("new-backend");
    let cargo = |args: &[&str]| {
        let mut command = sh::cargo(args);
        command.current_dir(&folder.0);
        command.env("CARGO_TARGET_DIR", &target);
        let output = command.output().unwrap();
        let (out, err) = (
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        );
        assert!(output.status.success(), "{out}\n{err}");
        out
    };
    let tests = cargo(&["test", "--offline", "--", "matmul", "add"]);
    assert!(
        tests.contains("test matmul::") && tests.contains("test add::"),
        "{tests}"
    );
    // The support table: two ops, on F32 and on nothing else.
    let report = cargo(&["run", "--offline", "--quiet", "--example", "conformance"]);
    let supported: Vec<&str> = report
        .lines()
        .filter(|l| l.starts_with("| ") && (l.contains(" yes ") || l.contains(" of ")))
        .collect();
    let [add, matmul] = supported[..] else {
        panic!("{report}")
    };
    assert!(add.starts_with("| `add` | yes | no |"), "{add}");
    assert!(matmul.starts_with("| f32 | "), "{matmul}");
    assert!(report.contains(" 0 failed"), "{report}");
}
