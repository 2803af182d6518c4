//! GGUF files that are well formed and make no model: refused in words that name the file, the key or the tensor.

#[path = "support/tiny.rs"]
mod tiny;

use std::sync::Arc;
use std::time::{Duration, Instant};

use glia_model::ModelFile;
use glia_model::gguf::write::{GgufWriter, WriteValue};
use glia_model::gguf::{GgufError, GgufFile};
use glia_model::tokenizer::Tokenizer;
use tiny::tiny_llama;

fn open(bytes: Vec<u8>) -> Result<GgufFile, GgufError> {
    GgufFile::from_source("t.gguf", Arc::new(bytes))
}

#[test]
fn metadata_of_another_type_is_refused_by_key() {
    let refused = |key: &str, value: WriteValue, says: &str| {
        let mut w = GgufWriter::new();
        w.key(key, value);
        let base = tiny_llama(2, true, "gpt-2");
        let bytes = base.without(key).with_keys_of(&w).finish();
        let error = ModelFile::from_gguf(open(bytes).unwrap()).and_then(|f| f.graph()).err();
        let error = error.unwrap_or_else(|| panic!("{key}: accepted")).to_string();
        for part in ["t.gguf", key, says] {
            assert!(error.contains(part), "{key}: `{error}` does not say `{part}`");
        }
    };
    let text = || WriteValue::Str("many".into());
    refused("general.architecture", WriteValue::U32(7), "must be a text");
    for key in [
        "llama.block_count",
        "llama.embedding_length",
        "llama.attention.head_count",
        "llama.attention.head_count_kv",
        "llama.attention.layer_norm_rms_epsilon",
        "llama.rope.freq_base",
        "llama.rope.dimension_count",
        "llama.rope.scaling.factor",
        "llama.attention.sliding_window",
    ] {
        refused(key, text(), "must be a number, not \"many\"");
        refused(key, WriteValue::Bool(true), "must be a number, not true");
        refused(
            key,
            WriteValue::Strs(vec!["1".into(), "2".into()]),
            "must be a number, not [\"1\", \"2\"]",
        );
        refused(key, WriteValue::F32(f32::NAN), "must be a number, not NaN");
        refused(key, WriteValue::I32s(vec![1, 2]), "differs by layer");
        refused(key, WriteValue::I32s(Vec::new()), "must be a number");
    }
    for bad in [0, 3, 18] {
        refused(
            "llama.rope.dimension_count",
            WriteValue::U32(bad),
            "even number from 2 to the 16",
        );
    }
    refused(
        "llama.attention.value_length",
        WriteValue::U32(8),
        "differs from the 16",
    );
    refused("llama.attention.value_length", text(), "must be a number");
    refused(
        "llama.rope.scaling.factor",
        WriteValue::F32(-1.0),
        "must not be negative",
    );
    refused(
        "llama.rope.scaling.type",
        WriteValue::Str("longrope".into()),
        "lacks its tables",
    );
    refused(
        "llama.block_count",
        WriteValue::U64(u64::MAX),
        "not 18446744073709551615",
    );
    refused("llama.block_count", WriteValue::F32(2.5), "whole number");
    refused("llama.block_count", WriteValue::I32(-2), "whole number");
    refused("llama.rope.scaling.type", WriteValue::U32(1), "must be a text");
    refused("llama.rope.scaling.type", text(), "`many` is not supported");
    for key in [
        "llama.block_count",
        "llama.embedding_length",
        "llama.attention.head_count",
    ] {
        let bytes = tiny_llama(2, true, "gpt-2").without(key).finish();
        let error = ModelFile::from_gguf(open(bytes).unwrap()).err().unwrap().to_string();
        assert!(error.contains(&format!("{key} is missing")), "{error}");
        assert_eq!(error.matches("t.gguf").count(), 1, "{error}");
    }
}

#[test]
fn claimed_sizes_are_refused_without_work_in_proportion() {
    for (key, n) in [
        ("llama.attention.key_length", 1u64 << 31),
        ("llama.attention.key_length", 1 << 40),
        ("llama.attention.key_length", u64::MAX),
        ("llama.rope.dimension_count", 1 << 31),
        ("llama.attention.head_count", 1 << 31),
        ("llama.attention.head_count_kv", 1 << 31),
        ("llama.embedding_length", 1 << 31),
        ("llama.feed_forward_length", 1 << 31),
        ("llama.block_count", 1 << 31),
        ("llama.context_length", 1 << 31),
        ("llama.context_length", 0),
        ("llama.attention.head_count", 0),
        ("llama.embedding_length", 0),
        ("llama.attention.sliding_window", 1 << 31),
    ] {
        let mut w = GgufWriter::new();
        w.key(key, WriteValue::U64(n));
        let bytes = tiny_llama(2, true, "gpt-2").without(key).with_keys_of(&w).finish();
        let start = Instant::now();
        let loaded = ModelFile::from_gguf(open(bytes).unwrap()).and_then(|f| {
            let options = glia_model::Options {
                max_context: Some(1 << 20),
                ..Default::default()
            };
            f.max_context(&options)?;
            glia_model::Model::load(f, glia_model::Options::default())
        });
        if let Err(e) = &loaded {
            assert!(!e.to_string().is_empty());
        } else {
            assert!(
                key.ends_with("context_length") || key.ends_with("sliding_window"),
                "{key} = {n} was accepted"
            );
        }
        assert!(
            start.elapsed() < Duration::from_secs(1),
            "{key} = {n}: {:?}",
            start.elapsed()
        );
    }
}

#[test]
fn a_template_that_does_not_parse_stops_chat_and_nothing_else() {
    let mut w = tiny_llama(2, true, "gpt-2");
    w.key("tokenizer.chat_template", WriteValue::Str("{% for %}".into()));
    let file = ModelFile::from_gguf(open(w.finish()).unwrap()).unwrap();
    let model = glia_model::Model::load(file, glia_model::Options::default()).unwrap();
    assert!(model.has_chat_template());
    let error = model
        .chat_ids(&[serde_json::json!({"role": "user", "content": "a"})])
        .unwrap_err();
    assert!(error.to_string().contains("does not parse"), "{error}");
}

#[test]
fn a_model_with_an_unsupported_type_is_listed_and_its_tensor_named() {
    for (id, says) in [
        (31u32, "type 31 (Q4_0_4_4"),
        (41, "type 41 (Q1_0)"),
        (200, "type 200 is unknown"),
    ] {
        let mut bytes = tiny_llama(2, true, "gpt-2").finish();
        let name = b"blk.1.attn_q.weight";
        let at = bytes.windows(name.len()).position(|w| w == name).unwrap() + name.len() + 4 + 2 * 8;
        bytes[at..at + 4].copy_from_slice(&id.to_le_bytes());
        let file = ModelFile::from_gguf(open(bytes).unwrap()).unwrap();
        assert!(file.tensors().iter().any(|line| line.contains("blk.1.attn_q.weight")));
        assert!(file.card().to_string().contains("llama"));
        let error = glia_model::Model::load(file, glia_model::Options::default())
            .err()
            .unwrap();
        let mut text = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(e) = source {
            text += &format!(": {e}");
            source = e.source();
        }
        for part in ["t.gguf", "`blk.1.attn_q.weight`", says, "supported: F32", "MXFP4"] {
            assert!(text.contains(part), "`{text}` does not say `{part}`");
        }
    }
}

#[test]
fn block_counts_beyond_the_tensors_name_the_first_that_is_missing() {
    let file = ModelFile::from_gguf(open(tiny_llama(2, true, "gpt-2").finish()).unwrap()).unwrap();
    assert!(!file.spec().tied);
    file.graph().unwrap();
    for claimed in [513, 100_000, u32::MAX] {
        let start = Instant::now();
        let file = open(tiny_llama(claimed, true, "gpt-2").finish()).unwrap();
        let error = ModelFile::from_gguf(file).and_then(|f| f.graph()).err().unwrap();
        let text = error.to_string();
        let named = text.contains("`blk.2.attn_norm.weight`") || text.contains("llama.block_count");
        assert!(text.contains("t.gguf") && named, "{text}");
        assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    }
}

#[test]
fn the_head_may_be_tied_to_the_embeddings() {
    let file = ModelFile::from_gguf(open(tiny_llama(2, false, "gpt-2").finish()).unwrap()).unwrap();
    assert!(file.spec().tied);
    file.graph().unwrap();
}

#[test]
fn unknown_pre_tokenizers_are_refused_and_can_be_overridden() {
    let file = open(tiny_llama(2, true, "future-bpe").finish()).unwrap();
    let error = Tokenizer::from_gguf_file(&file, None).err().unwrap().to_string();
    for part in ["future-bpe", "llama-bpe", "qwen2"] {
        assert!(error.contains(part), "`{error}` does not say `{part}`");
    }
    let tokenizer = Tokenizer::from_gguf_file(&file, Some("gpt-2")).unwrap();
    assert_eq!(tokenizer.encode("ab", false, false).unwrap(), [2]);
}
