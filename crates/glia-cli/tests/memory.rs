//! Peak memory of the program: what is resident at most stays within the file, the cache and 15 %.
#![cfg(target_os = "linux")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use wait4::Wait4;

/// Most bytes that were resident at a time in a run of the program, pages of files included.
fn peak(model: &str, prompt: &str, threads: &str) -> u64 {
    let mut command = Command::new(env!("CARGO_BIN_EXE_glia"));
    command
        .args(["run", "-m", model, "-p", prompt, "-n", "8", "--threads", threads])
        .env("HF_HUB_OFFLINE", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let used = command.spawn().and_then(Wait4::wait4).unwrap();
    assert!(used.status.success(), "{model}: {}", used.status);
    used.rusage.maxrss
}

/// Words that differ, so that many rows of the embedding are read.
fn words(n: usize) -> String {
    let word = |i: usize| {
        let letter = |shift: usize| char::from(b'a' + ((i * 7919) >> shift) as u8 % 26);
        [letter(0), 'a', letter(5), 'e', letter(9)].iter().collect::<String>()
    };
    (0..n).map(word).collect::<Vec<_>>().join(" ")
}

fn check(model: &str, n_words: usize, limit_bytes: u64) {
    for threads in ["1", "2"] {
        let peak = peak(model, &words(n_words), threads);
        println!(
            "{model}, {n_words} words, {threads} threads: {:.1} MiB of {:.1}",
            peak as f64 / 1048576.0,
            limit_bytes as f64 / 1048576.0
        );
        assert!(
            peak <= limit_bytes,
            "{model}, {n_words} words, {threads} threads: {peak} bytes of {limit_bytes}"
        );
    }
}

/// A real model, if `GLIA_MODELS` names a folder with it.
fn model(name: &str) -> Option<PathBuf> {
    let path = Path::new(&std::env::var_os("GLIA_MODELS")?).join(name);
    path.exists().then_some(path)
}

#[test]
fn a_small_file_outweighs_the_program() {
    let names = ["SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-q4_k_m.gguf"];
    // Bytes of the cache per token.
    for (name, token_bytes) in names.iter().zip([23_040, 18_432]) {
        let Some(path) = model(name) else {
            println!("SKIP: peak memory with {name}: GLIA_MODELS names no folder with it");
            continue;
        };
        let file_bytes = std::fs::metadata(&path).unwrap().len();
        for (n_words, n_tokens) in [(1, 64), (220, 640)] {
            let cache_bytes = n_tokens * token_bytes;
            check(
                path.to_str().unwrap(),
                n_words,
                file_bytes + file_bytes / 20 * 3 + cache_bytes,
            );
        }
    }
}

#[test]
fn beside_weights_there_is_little() {
    // The demo model has 4 MiB of weights and a cache of 1 KiB per token.
    for n_words in [1, 200] {
        check("demo", n_words, 24 << 20);
    }
}
