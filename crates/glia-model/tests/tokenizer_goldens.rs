//! Tokenizers against the ids and texts of the reference implementations: the subset in the repository, and the whole
//! set when `GLIA_GOLDENS` names it (`GLIA_TOKENIZERS` then names real vocabularies, `GLIA_VOCABS` GGUF ones).

use glia_model::proof::{CaseResult, Outcome, tokenizers};
use std::path::{Path, PathBuf};

fn repo_goldens() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens")
}

fn check(what: &str, results: &[CaseResult], may_skip: bool) {
    let mut failed = Vec::new();
    let mut n_skipped = 0;
    for r in results {
        match &r.outcome {
            Outcome::Pass => {}
            Outcome::Fail(why) => failed.push(format!("{}: {why}", r.name)),
            Outcome::Unsupported(why) => {
                println!("skipped {}: {why}", r.name);
                n_skipped += 1;
            }
        }
    }
    println!("{what}: {} cases, {n_skipped} skipped", results.len());
    assert!(!results.is_empty(), "{what}: no cases found");
    assert!(failed.is_empty(), "{what}:\n{}", failed.join("\n"));
    assert!(may_skip || n_skipped == 0, "{what}: {n_skipped} skipped");
}

#[test]
fn repository_subset() {
    check(
        "repository",
        &tokenizers::run(&repo_goldens().join("tokenizers"), None),
        false,
    );
}

#[test]
fn whole_set() {
    let Some(goldens) = std::env::var_os("GLIA_GOLDENS").map(PathBuf::from) else {
        println!("skipped: GLIA_GOLDENS is not set");
        return;
    };
    let extra = std::env::var_os("GLIA_TOKENIZERS").map(PathBuf::from);
    check(
        "goldens",
        &tokenizers::run(&goldens.join("tokenizers"), extra.as_deref()),
        true,
    );
    if let Some(vocabs) = std::env::var_os("GLIA_VOCABS").map(PathBuf::from) {
        let suite = goldens.join("suites/tokenizer_cases.json");
        check("GGUF vocabularies", &tokenizers::run_gguf_suite(&suite, &vocabs), true);
        check(
            "GGUF vocabularies with texts beside them",
            &tokenizers::run_gguf_texts(&vocabs),
            true,
        );
    }
}
