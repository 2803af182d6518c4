//! What is refused, in which words: the file, the field and a cure that this program has.

mod support;

use std::process::{Command, Stdio};

use support::{demo_file, demo_with, fails, folder, glia, out, run, text};

#[test]
fn missing_weights_are_told_of_before_memory() {
    for (key, value, said) in [
        ("llama.block_count", 100_000, "blk.4.attn_norm.weight"),
        ("llama.block_count", i32::MAX as u32, "blk.4.attn_norm.weight"),
        ("llama.feed_forward_length", i32::MAX as u32, "ffn_gate.weight"),
    ] {
        let path = demo_with(key, value);
        let path = path.to_str().unwrap();
        for args in [
            &["run", "-m", path, "--raw", "-n", "1", "-p", "hi"][..],
            &["inspect", path, "--plan"],
        ] {
            let error = fails(glia(args, b""), 1, &[path, said]);
            assert!(!error.contains("--ctx"), "{error}");
        }
    }
}

#[test]
fn contexts_beyond_any_model_are_not_cut_silently() {
    fails(
        run(&["-p", "a", "--ctx", "99999999999"], b""),
        1,
        &["99999999999", "at most 16777216"],
    );
    // More than the model was trained on is possible, and said.
    let output = run(&["-p", "a", "-n", "1", "--ctx", "2000"], b"");
    assert!(text(&output.stderr).contains("trained on"), "{}", text(&output.stderr));
    out(output);
}

#[cfg(target_os = "linux")]
#[test]
fn models_that_do_not_fit_are_refused_with_real_cures() {
    let program = env!("CARGO_BIN_EXE_glia");
    let path = folder().join("large.gguf");
    std::fs::copy(demo_file(), &path).unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    // Sparse: mapped, or not, without being stored.
    for (bytes, parts) in [
        (4u64 << 30, &["4294967296 bytes", "are free"][..]),
        (900 << 20, &["943718400 weights", "are free", "not even one token fits"]),
    ] {
        file.set_len(bytes).unwrap();
        let name = path.display().to_string();
        let command =
            format!("ulimit -v 1500000; exec '{program}' run -m '{name}' --raw -p hi -n 1 --ctx 100 --threads 1");
        let output = Command::new("sh").args(["-c", &command]).output().unwrap();
        let error = fails(output, 1, &[&[name.as_str(), "ulimit", "smaller"], parts].concat());
        assert!(!error.contains("--ctx") && error.matches(&name).count() == 1, "{error}");
    }
    std::fs::remove_file(&path).unwrap();
    // `bench` has no --ctx: it says what its context is made of.
    let args = ["bench", "demo", "--prefill", "0", "--depth", "99999999"];
    fails(glia(&args, b""), 1, &["--depth with --decode"]);
}

#[test]
fn numbers_that_make_no_sense_name_the_cure() {
    for (args, parts) in [
        (&["--seed", "-1"][..], &["--seed", "-1", "leave --seed out"][..]),
        (&["--ctx", "-1"], &["--ctx", "must be 0 or more"]),
        (&["--ctx", "many"], &["--ctx", "whole number"]),
        (&["--mmap", "--no-mmap"], &["'--mmap' cannot be used with '--no-mmap'"]),
    ] {
        let error = fails(run(&[&["-p", "a"], args].concat(), b""), 2, parts);
        assert!(!error.contains("'-- "), "no useless tip: {error}");
    }
}

#[test]
fn an_empty_prompt_is_refused_unless_raw() {
    for (args, stdin) in [(["-p", ""], &b""[..]), (["-p", "-"], b"")] {
        let args = [&["run", "-m", "demo", "-n", "1"][..], &args].concat();
        fails(glia(&args, stdin), 2, &["empty", "--raw"]);
    }
    out(run(&["-p", "", "-n", "1"], b""));
}

#[test]
fn a_base_model_says_that_it_goes_on_with_the_text() {
    let output = glia(&["run", "-m", "demo", "-p", "To be", "-n", "1"], b"");
    assert!(text(&output.stderr).contains("no chat template"));
    assert_eq!(out(output), out(run(&["-p", "To be", "-n", "1"], b"")));
    assert!(text(&run(&["-p", "To be", "-n", "1"], b"").stderr).is_empty());
}

#[test]
fn bench_needs_something_to_measure() {
    let args = ["bench", "demo", "--prefill", "0", "--decode", "0"];
    fails(glia(&args, b""), 2, &["--prefill", "--decode"]);
    fails(glia(&["bench", "demo", "--ctx", "4"], b""), 2, &["--ctx"]);
    for (args, parts) in [
        (&["--batch", "0"][..], &["--batch", "at least 1"][..]),
        (&["--batch", "1,x"], &["--batch", "whole number"]),
        (&["--batch", "100000"], &["--batch", "at most"]),
        (&["--reps", "4294967296"], &["--reps", "at most"]),
        (&["--batch", "2", "--decode", "0"], &["--batch", "--decode"]),
        (&["--batch-prompt", "-1"], &["--batch-prompt", "0 or more"]),
    ] {
        fails(glia(&[&["bench", "demo"], args].concat(), b""), 2, parts);
    }
    let args = [
        "bench",
        "demo",
        "--prefill",
        "0",
        "--batch",
        "2",
        "--batch-prompt",
        "99999999",
    ];
    fails(glia(&args, b""), 1, &["--batch-prompt with --decode"]);
    // Each sequence may fit, all of them do not.
    let args = ["bench", "demo", "--batch", "1024", "--batch-prompt", "900000"];
    fails(glia(&args, b""), 1, &["KV cache", "all sequences of --batch"]);
}

#[test]
fn intermediate_memory_below_the_peak_is_refused_with_both_numbers() {
    let plan = |limit: &str| {
        let limits = ["--max-intermediate-bytes", limit, "--max-step-tokens", "512"];
        glia(&[&["inspect", "demo", "--plan"][..], &limits].concat(), b"")
    };
    out(plan("9175040"));
    fails(
        plan("9175039"),
        1,
        &["9175040", "9175039", "--max-intermediate-bytes", "--max-step-tokens"],
    );
    let run = |steps: &str| {
        let limit = ["--max-intermediate-bytes", "1000000", "--max-step-tokens", steps];
        run(&[&["-p", "To be", "-n", "3"][..], &limit].concat(), b"")
    };
    fails(run("512"), 1, &["--max-step-tokens"]);
    out(run("16"));
}

#[test]
fn folders_that_are_no_models_say_what_is_missing() {
    let empty = folder();
    let name = empty.to_str().unwrap();
    fails(glia(&["inspect", name], b""), 1, &[name, "config.json", "GGUF"]);
    std::fs::copy(demo_file(), empty.join("some.gguf")).unwrap();
    fails(glia(&["inspect", name], b""), 1, &["config.json", "some.gguf"]);
    std::fs::write(empty.join("config.json"), "{}").unwrap();
    fails(glia(&["inspect", name], b""), 1, &["tokenizer.json"]);
}

#[test]
fn errors_name_their_file_once() {
    let path = demo_with("llama.attention.head_count", 0);
    let path = path.to_str().unwrap();
    let error = fails(glia(&["inspect", path, "--plan"], b""), 1, &[path]);
    assert_eq!(error.matches(path).count(), 1, "{error}");
    // What cannot be run is listed all the same, with the reason.
    let card = out(glia(&["inspect", path], b""));
    assert!(
        card.contains("llama.attention.head_count") && card.contains("Q8_0"),
        "{card}"
    );
    assert!(out(glia(&["inspect", path, "--tensors"], b"")).contains("blk.0.attn_q.weight"));
}

#[cfg(unix)]
#[test]
fn output_that_nobody_reads_ends_the_program_quietly() {
    for args in [
        &["inspect", "demo", "--plan"][..],
        &["inspect", "demo", "--graph"],
        &["inspect", "demo", "--tensors"],
        &["inspect", "demo"],
        &["devices"],
        &["bench", "demo", "--prefill", "2", "--decode", "0", "--reps", "1"],
        &["profile", "demo", "--prefill", "2", "--decode", "0", "--no-ceiling"],
        &["run", "-m", "demo", "--raw", "-p", "a", "-n", "2"],
    ] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_glia"))
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(text(&output.stderr), "", "{args:?}");
        assert_eq!(output.status.code(), Some(0), "{args:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_named() {
    let program = env!("CARGO_BIN_EXE_glia");
    let command = format!("'{program}' inspect demo --graph > /dev/full");
    let output = Command::new("sh").args(["-c", &command]).output().unwrap();
    fails(output, 1, &["stdout", "No space left"]);
}

#[cfg(target_os = "linux")]
#[test]
fn paths_need_not_be_utf8() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let path = folder().join(OsStr::from_bytes(b"b\xff.gguf"));
    std::fs::copy(demo_file(), &path).unwrap();
    let path = path.as_os_str();
    let word = OsStr::new;
    let prompt = [word("--raw"), word("-n"), word("3"), word("-p"), word("To be")];
    let expected = out(run(&["-p", "To be", "-n", "3"], b""));
    assert_eq!(
        out(glia(&[&[word("run"), word("-m"), path], &prompt[..]].concat(), b"")),
        expected
    );
    assert_eq!(out(glia(&[&[word("run"), path], &prompt[..]].concat(), b"")), expected);
    assert!(out(glia(&[word("inspect"), path], b"")).contains("llama"));
    let bad = OsStr::from_bytes(b"caf\xe9 au lait");
    fails(
        glia(&[word("run"), word("-m"), word("demo"), word("-p"), bad], b""),
        2,
        &["prompt", "UTF-8", "-p -"],
    );
}

/// Help is read by people: changes of it should be seen.
#[test]
fn help_texts() {
    for command in ["run", "inspect", "bench", "profile", "perplexity", "compare", "devices"] {
        insta::assert_snapshot!(format!("help_{command}"), out(glia(&[command, "-h"], b"")));
    }
    insta::assert_snapshot!("help", out(glia(&["--help"], b"")));
}
