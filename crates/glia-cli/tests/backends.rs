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
