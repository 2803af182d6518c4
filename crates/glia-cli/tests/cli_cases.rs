//! The program as scripts use it: it ends by itself, keeps stdout clean, says what is wrong, and returns the code that
//! the help documents.

mod support;

use std::process::Command;

use support::{fails, glia, out, run, text};

fn ids(args: &[&str]) -> Vec<u32> {
    let args = [&["-p", "To be", "-n", "5", "--ids"], args].concat();
    let line = out(run(&args, b""));
    line.split_whitespace().map(|id| id.parse().unwrap()).collect()
}

#[test]
fn run_ends_by_itself() {
    let answer = out(run(&["-p", "hi", "-n", "5"], b""));
    assert!(!answer.is_empty() && answer.len() < 200);
    // Nothing on the other end of stdin at all.
    let program = env!("CARGO_BIN_EXE_glia");
    let command = format!("'{program}' run --model demo --raw -p hi -n 5 <&-");
    if cfg!(unix) {
        let output = Command::new("sh").args(["-c", &command]).output().unwrap();
        assert_eq!(out(output), answer);
    }
}

#[test]
fn max_tokens_counts_tokens() {
    assert_eq!(ids(&[]).len(), 5);
    // Nothing generated is nothing printed.
    for more in [&["--ids"][..], &[]] {
        assert_eq!(out(run(&[&["-p", "To be", "-n", "0"], more].concat(), b"")), "");
    }
    // Until the context ends, or the model does.
    let all = out(run(&["-p", "To be", "-n", "-1", "--ids", "--ctx", "24"], b""));
    let n = all.split_whitespace().count();
    assert!((6..24).contains(&n), "{all}");
    fails(run(&["-p", "To be", "-n", "-2"], b""), 2, &["--max-tokens -2", "-1"]);
}

#[test]
fn prompts_from_stdin_are_exact() {
    let expected = ids(&[]);
    let given = |stdin: &[u8]| {
        let line = out(run(&["-p", "-", "-n", "5", "--ids"], stdin));
        line.split_whitespace()
            .map(|id| id.parse().unwrap())
            .collect::<Vec<u32>>()
    };
    assert_eq!(given(b"To be"), expected);
    assert_eq!(given(b"\xef\xbb\xbfTo be"), expected);
    let accents = "caf\u{e9} \u{65e5}\u{672c}";
    let line = out(run(&["-p", accents, "-n", "5", "--ids"], b""));
    assert_eq!(out(run(&["-p", "-", "-n", "5", "--ids"], accents.as_bytes())), line);
    // Line ends are kept: CRLF is another text than LF.
    out(run(&["-p", "-", "-n", "1"], b"a\r\nb"));
    fails(
        run(&["-p", "-", "-n", "1"], b"caf\xe9"),
        1,
        &["stdin", "byte 3", "UTF-8", "iconv"],
    );
}

#[test]
fn prompts_beyond_the_context_are_refused() {
    let long = "word ".repeat(200);
    fails(
        run(&["-p", &long, "--ctx", "64", "-n", "3"], b""),
        1,
        &["the context holds 64", "--ctx"],
    );
}

#[test]
fn every_pair_of_cache_types_works() {
    let types = ["f32", "f16", "q8_0"];
    for k in types {
        for v in types {
            assert_eq!(ids(&["--cache-type-k", k, "--cache-type-v", v]).len(), 5, "{k} {v}");
        }
    }
    fails(
        run(&["-p", "a", "--cache-type-v", "q4_0"], b""),
        2,
        &["--cache-type-v", "q8_0"],
    );
}

#[test]
fn any_number_of_threads_gives_the_same_tokens() {
    let expected = ids(&["--threads", "1"]);
    for threads in ["0", "2", "4"] {
        assert_eq!(ids(&["--threads", threads]), expected);
    }
    let output = run(&["-p", "To be", "-n", "1", "--threads", "10000"], b"");
    assert!(text(&output.stderr).contains("--threads 10000 is more than"));
    out(output);
    for bad in ["-1", "abc"] {
        fails(run(&["-p", "a", "--threads", bad], b""), 2, &["--threads", bad]);
    }
}

#[test]
fn contexts_beyond_memory_are_refused_before_they_are_taken() {
    if cfg!(target_os = "linux") {
        let program = env!("CARGO_BIN_EXE_glia");
        let command =
            format!("ulimit -v 1500000; exec '{program}' run --model demo --raw -p hi -n 1 --ctx 1000000 --threads 1");
        let output = Command::new("sh").args(["-c", &command]).output().unwrap();
        fails(
            output,
            1,
            &["1000000", "weights", "KV cache", "scratch", "at most --ctx"],
        );
    }
}

#[test]
fn inspect_shows_card_plan_and_graph() {
    let card = out(glia(&["inspect", "demo"], b""));
    for line in [
        "GGUF v3",
        "llama",
        "layers      4",
        "context     1024",
        "tokenizer   2048",
    ] {
        assert!(card.contains(line), "{card}");
    }
    let plan = out(glia(&["inspect", "demo", "--plan", "--max-step-tokens", "512"], b""));
    for part in [
        "who runs what",
        "cpu runs",
        "how to read",
        "peak of intermediate memory",
        "(3908736 bytes)",
        "(9175040 bytes)",
        // What is stored, not what the ops read.
        "per token f16[2, 64] and f16[2, 64]",
    ] {
        assert!(plan.contains(part), "{plan}");
    }
    let exact = out(glia(&["inspect", "demo", "--plan", "--precision", "exact"], b""));
    assert!(exact.contains("per token f32[2, 64]"), "{exact}");
    let graph = out(glia(&["inspect", "demo", "--graph"], b""));
    assert!(graph.starts_with("graph llama") && graph.contains("%input_ids i32[T]"));
    assert_eq!(out(glia(&["inspect", "--graph", "demo"], b"")), graph);
    for args in [
        ["inspect", "demo", "--graph=dot", "--"],
        ["inspect", "demo", "--graph", "dot"],
        ["inspect", "--graph", "dot", "demo"],
    ] {
        assert!(out(glia(&args, b"")).contains("digraph"));
    }
    fails(
        glia(&["inspect", "demo", "--graph", "png"], b""),
        2,
        &["png", "--graph=dot"],
    );
}

#[test]
fn bench_prints_json() {
    let args = [
        "bench",
        "demo",
        "--json",
        "--prefill",
        "8",
        "--decode",
        "2",
        "--batch",
        "1,3",
        "--batch-prompt",
        "4",
        "--reps",
        "1",
    ];
    let json = out(glia(&args, b""));
    assert!(json.trim().starts_with('[') && json.trim().ends_with(']'), "{json}");
    for key in [
        "\"pp8\"",
        "\"tg2\"",
        "\"tg2 x1\"",
        "\"tg2 x3\"",
        "\"backend\":\"cpu\"",
        "\"threads\":",
        "\"tok_per_s\":",
        "\"min\":",
        "\"max\":",
    ] {
        assert!(json.contains(key), "{json}");
    }
}

#[test]
fn timings_say_where_the_time_went() {
    let output = run(&["-p", "To be", "-n", "3", "--timings"], b"");
    let table = text(&output.stderr);
    let names: Vec<&str> = table
        .lines()
        .map(|line| line.get(..12).unwrap_or(line).trim())
        .collect();
    let expected = [
        "timings",
        "open",
        "vocabulary",
        "packing",
        "prompt",
        "first step",
        "first token",
        "decode",
    ];
    assert_eq!(names, expected, "{table}");
    assert!(table.contains("2 tokens,"), "{table}");
    assert!(!out(output).is_empty());
    // No token, no step, no rate.
    let table = text(&run(&["-p", "To be", "-n", "0", "--timings"], b"").stderr);
    assert!(table.contains("prompt") && !table.contains("tok/s"), "{table}");
}

#[test]
fn exit_codes_are_as_documented() {
    assert!(out(glia(&["--help"], b"")).contains("Exit codes: 0 done, 1"));
    fails(
        glia(&["inspect", "no-such.gguf"], b""),
        1,
        &["no-such.gguf", "no such file"],
    );
    fails(glia(&["frob"], b""), 2, &["frob"]);
    fails(run(&["-p", "a", "--temperature", "-1"], b""), 2, &["temperature"]);
}

#[test]
fn a_prompt_may_fill_the_context_where_nothing_is_to_follow() {
    for backend in ["cpu", "reference"] {
        let with = |n: &str, ctx: &str| run(&["-p", "To be", "-n", n, "--ctx", ctx, "--backend", backend], b"");
        assert_eq!(out(with("0", "3")), "");
        let parts = ["the prompt has 3 tokens", "the context holds 3", "room for one more"];
        fails(with("1", "3"), 1, &parts);
        fails(with("0", "2"), 1, &["the prompt has 3 tokens", "the context holds 2"]);
        assert!(!out(with("9", "4")).is_empty(), "one token fits");
    }
}
