//! Lists of backends: names are checked, and what does not run on the first is told.

mod support;

use support::{fails, glia, out, run, text};

#[test]
fn names_of_backends_are_checked() {
    for (list, parts) in [
        ("frob", &["--backend", "`frob`", "available: cpu, wgpu, reference"][..]),
        (",", &["--backend", "empty", "available: cpu"]),
        ("cpu,cpu", &["`cpu` is given twice"]),
        ("cpu:frob", &["`cpu:frob`", "instruction set", "portable"]),
        ("cpu:portable:portable", &["one instruction set"]),
        ("reference:fast", &["`reference:fast`", "no options"]),
    ] {
        fails(run(&["-p", "a", "--backend", list], b""), 2, parts);
        fails(glia(&["inspect", "demo", "--plan", "--backend", list], b""), 2, parts);
    }
}

#[test]
fn what_does_not_run_on_the_first_backend_is_told() {
    let run_on = |list| {
        run(
            &["-p", "To be", "-n", "4", "--precision", "exact", "--backend", list],
            b"",
        )
    };
    let pair = run_on("reference,cpu");
    let said = text(&pair.stderr);
    assert!(
        said.contains("4 of ") && said.contains("nodes do not run on reference itself"),
        "{said}"
    );
    assert!(
        said.contains("4 kv_cache by the interpreter, since reference does not have the op: "),
        "{said}"
    );
    let alone = run_on("cpu:portable");
    assert_eq!(text(&alone.stderr), "");
    assert_eq!(out(pair), out(alone));
    let plan = out(glia(&["inspect", "demo", "--plan", "--backend", "reference,cpu"], b""));
    assert!(
        plan.contains("1. reference runs ") && plan.contains("nodes do not run on reference itself"),
        "{plan}"
    );
    let plan = out(glia(&["inspect", "demo", "--plan", "--backend", "cpu,reference"], b""));
    assert!(plan.contains("nodes run on cpu\n"), "{plan}");
}

/// Whatever is wrong with the drivers of a GPU, a run that does not ask for it does not see them.
#[test]
#[cfg(target_os = "linux")]
fn a_run_on_the_cpu_needs_no_driver_of_a_gpu() {
    let run_on = |backend: &str| {
        std::process::Command::new(env!("CARGO_BIN_EXE_glia"))
            .args([
                "run",
                "--model",
                "demo",
                "--raw",
                "-p",
                "To be",
                "-n",
                "3",
                "--backend",
                backend,
            ])
            .env("HF_HUB_OFFLINE", "1")
            .env("VK_DRIVER_FILES", "/nowhere/driver.json")
            .env("VK_ICD_FILENAMES", "/nowhere/driver.json")
            .output()
            .unwrap()
    };
    out(run_on("cpu"));
    fails(
        run_on("wgpu"),
        1,
        &["no adapter", "install a Vulkan driver", "`cpu` needs none"],
    );
}
