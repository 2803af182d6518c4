//! `glia perplexity` and its base logits: figures, and files that are none.

mod support;

use std::path::PathBuf;

use support::{fails, folder, glia, out, text};

const VOCAB: u32 = 2048;
const WINDOW: u32 = 8;

/// Base logits of `n_windows` windows, all rows alike; `tail` bytes are cut off.
fn base(n_windows: u32, token: u32, scale: f32, tail: usize) -> PathBuf {
    let mut bytes = b"_logits_".to_vec();
    for n in [WINDOW, VOCAB, n_windows] {
        bytes.extend(n.to_le_bytes());
    }
    for i in 0..n_windows * WINDOW {
        bytes.extend((if i == 3 { token } else { 300 + i }).to_le_bytes());
    }
    let scored = WINDOW - WINDOW / 2 - 1;
    for _ in 0..n_windows * scored {
        bytes.extend(scale.to_le_bytes());
        bytes.extend((-8.0f32).to_le_bytes());
        bytes.extend((0..VOCAB).flat_map(|_| 1u16.to_le_bytes()));
    }
    bytes.truncate(bytes.len() - tail);
    let path = folder().join("base.kld");
    std::fs::write(&path, bytes).unwrap();
    path
}

fn score(args: &[&str]) -> std::process::Output {
    glia(&[&["perplexity", "demo"], args].concat(), b"")
}

#[test]
fn the_base_alone_is_enough() {
    let path = base(2, 5, 1e-3, 0);
    let path = path.to_str().unwrap();
    let alone = out(score(&["--kl-base", path]));
    for part in [
        "(2 windows)",
        "mean KL divergence",
        "top-1 agreement",
        "base perplexity",
    ] {
        assert!(alone.contains(part), "{alone}");
    }
    // A text beside it is compared, and said when it is another.
    let other = folder().join("t.txt");
    std::fs::write(&other, "To be, or not to be").unwrap();
    let output = score(&["--kl-base", path, "--file", other.to_str().unwrap()]);
    assert!(
        text(&output.stderr).contains("another text"),
        "{}",
        text(&output.stderr)
    );
    assert_eq!(out(output), alone);
    fails(score(&["--kl-base", path, "--ctx", "16"]), 2, &["--ctx 16", "8", path]);
    fails(score(&[]), 2, &["--file"]);
}

#[test]
fn damaged_bases_are_refused_before_anything_is_computed() {
    let damaged = [
        (base(0, 5, 1e-3, 0), &["no windows"][..]),
        (base(2, 5, 1e-3, 1), &["incomplete", "copy it again"]),
        (base(2, 5, 1e-3, 9000), &["incomplete"]),
        (base(2, VOCAB, 1e-3, 0), &["token 3 is 2048", "vocabulary of 2048"]),
        (base(2, 5, f32::NAN, 0), &["row 0", "NaN"]),
        (base(2, 5, f32::INFINITY, 0), &["row 0", "inf"]),
        (folder(), &["no regular file"]),
        (PathBuf::from("no-such.kld"), &["no-such.kld"]),
    ];
    for (path, parts) in &damaged {
        let path = path.to_str().unwrap();
        let error = fails(score(&["--kl-base", path]), 1, parts);
        assert!(error.contains(path) && !error.contains("[1]"), "{error}");
    }
}

#[test]
fn texts_that_cannot_be_scored_are_named() {
    let place = folder();
    let (latin, short) = (place.join("latin.txt"), place.join("short.txt"));
    std::fs::write(&latin, b"caf\xe9").unwrap();
    std::fs::write(&short, "To be").unwrap();
    let name = |p: &PathBuf| p.to_str().unwrap().to_owned();
    fails(
        score(&["--file", &name(&latin)]),
        1,
        &[&name(&latin), "byte 3", "iconv"],
    );
    fails(score(&["--file", &name(&short)]), 1, &[&name(&short), "1024"]);
    fails(score(&["--file", &name(&place)]), 1, &[&name(&place), "folder"]);
    fails(
        score(&["--file", &name(&short), "--ctx", "3"]),
        2,
        &["--ctx 3", "at least 4"],
    );
}
