//! Lists of backends: names are checked, and what does not run on the first is told.

mod support;

use support::{fails, glia, out, run, text};

#[test]
fn names_of_backends_are_checked() {
    let long = "x".repeat(5000);
    for (list, parts) in [
        ("frob", &["--backend", "`frob`", "available: cpu, wgpu, reference"][..]),
        ("cpuu", &["`cpuu`", "did you mean cpu?"]),
        ("vulkan", &["`vulkan`", "did you mean wgpu, which runs on GPUs?"]),
        (&long, &["xxx…` is not in this build"]),
        (",", &["--backend", "empty", "available: cpu"]),
        ("cpu,cpu", &["`cpu` is given twice"]),
        ("cpu:frob", &["`cpu:frob`", "instruction set", "portable"]),
        ("cpu:portabel", &["`cpu:portabel`", "did you mean portable?"]),
        ("cpu:", &["`cpu:`", "nothing follows the colon", "it has ", "portable"]),
        ("cpu:exact", &["`cpu:exact`", "--precision exact", "portable"]),
        ("cpu:portable:portable", &["one instruction set"]),
        (
            "reference:fast",
            &["`reference:fast`", "no options", "--precision fast"],
        ),
        ("wgpu:", &["`wgpu:`", "nothing follows the colon", "index", "baseline"]),
        ("wgpu:-1", &["`wgpu:-1`", "a whole number from 0", "glia devices"]),
        ("wgpu:1.5", &["`wgpu:1.5`", "a whole number from 0"]),
        ("wgpu:+1", &["`wgpu:+1`", "no sign"]),
        ("wgpu:exact", &["`wgpu:exact`", "--precision exact"]),
        ("wgpu:0:1", &["one adapter at a time"]),
    ] {
        let said = fails(run(&["-p", "a", "--backend", list], b""), 2, parts);
        assert!(said.len() < 600, "{said}");
        for command in COMMANDS {
            fails(glia(&[command, &["--backend", list]].concat(), b""), 2, parts);
        }
    }
}

/// Commands that take a list of backends.
const COMMANDS: [&[&str]; 4] = [
    &["inspect", "demo", "--plan"],
    &["bench", "demo", "--prefill", "1", "--decode", "0"],
    &["profile", "demo", "--prefill", "1", "--decode", "0"],
    &[
        "perplexity",
        "demo",
        "--file",
        concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"),
    ],
];

/// A device that is not there is a wrong list, however it is named.
#[test]
fn adapters_that_are_not_there_are_a_wrong_command_line() {
    for list in [
        "wgpu:99",
        "wgpu:99999999999999999999999",
        "wgpu:no such gpu",
        "wgpu:baselin",
    ] {
        let parts: &[&str] = &["wgpu:", "no adapter"];
        let said = fails(run(&["-p", "a", "--backend", list], b""), 2, parts);
        assert!(
            list != "wgpu:baselin" || said.contains("did you mean baseline?"),
            "{said}"
        );
        for command in COMMANDS {
            fails(glia(&[command, &["--backend", list]].concat(), b""), 2, parts);
        }
        let pair = format!("cpu,{list}");
        fails(glia(&["compare", "demo", "--backends", &pair], b""), 2, parts);
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
        2,
        &["no adapter", "install a Vulkan driver", "`cpu` needs none"],
    );
}
