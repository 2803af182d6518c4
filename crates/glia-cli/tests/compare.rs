//! `glia compare`: sides, limits, and what is printed.

mod support;

use support::{fails, folder, glia, out, text};

fn compare(args: &[&str]) -> std::process::Output {
    glia(
        &[&["compare", "demo", "--tokens", "10", "--decode", "2"], args].concat(),
        b"",
    )
}

#[test]
fn equal_sides_do_not_part() {
    let said = out(compare(&["--backends", "cpu,cpu", "--limit", "0"]));
    for part in [
        "demo: cpu is the reference, cpu is compared with it",
        "10 tokens, 8 at once and 2 one at a time",
        "\nembedding ",
        "\nlayer 0 ",
        "\nlayer 3 ",
        "\noutput head ",
        "no node parts: every error is within 0e0",
        "KL divergence 0 in the mean and 0 at most, the same top token in 100.0 % of 10 rows",
    ] {
        assert!(said.contains(part), "`{part}` in {said}");
    }
}

#[test]
fn exact_kernels_agree_with_the_reference_and_fast_ones_nearly() {
    let said = out(compare(&["--backends", "reference:exact,cpu:exact", "--limit", "1e-4"]));
    assert!(said.contains("no node parts"), "{said}");
    // Rounding activations to eight bits shows, and more than the limit is exit code 1 after the report.
    let output = compare(&["--backends", "cpu:exact,cpu:fast", "--limit", "1e-4"]);
    assert_eq!(output.status.code(), Some(1));
    let (report, error) = (text(&output.stdout), text(&output.stderr));
    assert!(
        report.contains("the first node to part, with an error beyond 1e-4:\n  `"),
        "{report}"
    );
    assert!(
        report.contains("= matmul ") && report.contains("ran on cpu and on cpu"),
        "{report}"
    );
    assert!(error.contains("more than the --limit of 1e-4"), "{error}");
    // Without a limit the same is told and no failure.
    out(compare(&["--backends", "cpu:exact,cpu:fast"]));
}

#[test]
fn json_holds_layers_nodes_and_logits() {
    let file = folder().join("text.txt");
    std::fs::write(&file, "To be, or not to be, that is the question").unwrap();
    let args = [
        "--backends",
        "cpu:exact,cpu:portable:fast",
        "--json",
        "--file",
        file.to_str().unwrap(),
    ];
    let json: serde_json::Value = serde_json::from_str(&out(compare(&args))).unwrap();
    assert_eq!(json["sides"], serde_json::json!(["cpu:exact", "cpu:portable:fast"]));
    assert_eq!(
        (json["tokens"].as_u64(), json["steps"].as_array().unwrap().len()),
        (Some(10), 3)
    );
    assert_eq!(json["layers"].as_array().unwrap().len(), 6);
    let nodes = json["nodes"].as_array().unwrap();
    assert!(nodes.len() > 40 && nodes.iter().all(|n| n["error"].is_f64() || n["error"] == 0));
    assert!(json["logits"]["mean_kl"].as_f64().unwrap() > 0.0);
    assert_eq!(json["logits"]["n_rows"], 10);
}

#[test]
fn piece_by_piece_begins_anew_and_the_logits_are_of_the_whole() {
    let said = out(compare(&["--backends", "cpu:exact,cpu:fast", "--piece-by-piece"]));
    assert!(
        said.contains("begins with equal values") && said.contains("logits of the whole model: KL"),
        "{said}"
    );
}

#[test]
fn sides_are_checked() {
    for (args, parts) in [
        (
            &["--backends", "cpu"][..],
            &["--backends", "two sides", "`cpu` are 1"][..],
        ),
        (&["--backends", "cpu,cpu,cpu"], &["are 3"]),
        (&["--backends", "cpu,frob"], &["`frob`", "available: cpu"]),
        (
            &["--backends", "cpu,reference:exact+cpu:fast"],
            &["both exact and fast"],
        ),
        (&["--backends", "cpu,cpu", "--limit", "-1"], &["--limit", "0 or more"]),
        (
            &["--backends", "cpu,cpu", "--prompt", "a", "--file", "b"],
            &["--prompt", "--file"],
        ),
        (&[], &["--backends"]),
    ] {
        fails(compare(args), 2, parts);
    }
    fails(
        glia(&["compare", "demo", "--backends", "cpu,cpu", "--tokens", "0"], b""),
        2,
        &["--tokens"],
    );
}

#[test]
fn more_tokens_than_the_text_has_or_the_model_takes_are_said() {
    let with = |args: &[&str]| {
        glia(
            &[&["compare", "demo", "--backends", "cpu,cpu", "--decode", "1"], args].concat(),
            b"",
        )
    };
    let said = with(&["--prompt", "To be, or not", "--tokens", "2000"]);
    let note = "fewer than the 2000 asked for";
    assert!(text(&said.stderr).contains(note), "{}", text(&said.stderr));
    assert!(text(&said.stdout).contains("one at a time; errors are normalised"));
    let usual = with(&["--prompt", "To be, or not"]);
    assert_eq!((usual.status.code(), text(&usual.stderr)), (Some(0), String::new()));
    let long = concat!(env!("CARGO_MANIFEST_DIR"), "/../../CHANGELOG.md");
    for tokens in ["1025", "18446744073709551615"] {
        fails(
            with(&["--file", long, "--tokens", tokens]),
            2,
            &["more than the 1024 of the model's context"],
        );
    }
    out(with(&["--file", long, "--tokens", "1024"]));
}
