//! What a model's files say of its own generation: the tokens that end it and the sampling it was made for.

use std::path::{Path, PathBuf};

use glia_core::DType;
use glia_model::gguf::GgufFile;
use glia_model::gguf::write::{GgufWriter, WriteValue};
use glia_model::tokenizer::Tokenizer;
use glia_model::{Event, FinishReason, GenerateParams, Model, ModelFile, Options, SampleParams};

fn goldens() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens")
}

/// A folder with a tiny llama, a tokenizer and the given `generation_config.json`.
fn folder(name: &str, generation: Option<&str>) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("glia-generation-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let model = goldens().join("models/llama-gqa-hd");
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(model.join(file), dir.join(file)).unwrap();
    }
    let vocab: serde_json::Map<String, serde_json::Value> = (0..320).map(|i| (format!("t{i}"), i.into())).collect();
    let tokenizer = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "t0"},
    });
    std::fs::write(dir.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    if let Some(text) = generation {
        std::fs::write(dir.join("generation_config.json"), text).unwrap();
    }
    dir
}

fn open(name: &str, generation: Option<&str>) -> Result<ModelFile, String> {
    let dir = folder(name, generation);
    let file = ModelFile::open(&dir, &Options::default()).map_err(|e| e.to_string());
    std::fs::remove_dir_all(&dir).unwrap();
    file
}

#[test]
fn ends_are_one_id_or_a_list() {
    for (name, text, eos) in [
        ("one", r#"{"eos_token_id": 7}"#, vec![7]),
        ("list", r#"{"eos_token_id": [7, 9]}"#, vec![7, 9]),
        ("none", r#"{"eos_token_id": null}"#, vec![2]),
        ("negative", r#"{"eos_token_id": [-1, 9]}"#, vec![9]),
        ("beyond", r#"{"eos_token_id": [4000000000]}"#, vec![4_000_000_000]),
    ] {
        let file = open(name, Some(text)).unwrap();
        assert_eq!(file.generation_config().eos, eos, "{text}");
        assert_eq!(file.generation_config().bos, Some(1), "{text}");
    }
    assert_eq!(open("absent", None).unwrap().generation_config().eos, [2]);
}

#[test]
fn sampling_defaults_are_taken_when_the_file_asks_for_sampling() {
    let text = r#"{"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.01}"#;
    let file = open("sampled", Some(text)).unwrap();
    let expected = SampleParams {
        temperature: 0.6,
        top_k: 20,
        top_p: 0.95,
        min_p: 0.01,
        ..SampleParams::default()
    };
    assert_eq!(file.generation_config().sample, expected);
    let file = open("greedy", Some(&text.replace("true", "false"))).unwrap();
    assert_eq!(file.generation_config().sample, SampleParams::default());
    // Transformers keeps 50 at temperature 1 where the file does not say.
    let file = open("bare", Some(r#"{"do_sample": true}"#)).unwrap();
    let sample = &file.generation_config().sample;
    assert_eq!((sample.temperature, sample.top_k, sample.top_p), (1.0, 50, 1.0));
}

#[test]
fn hostile_values_are_refused_by_name() {
    for (index, (text, words)) in [
        (r#"{"eos_token_id": "2"}"#, "eos_token_id"),
        (r#"{"eos_token_id": 1.5}"#, "eos_token_id"),
        (r#"{"eos_token_id": [[1], 2]}"#, "eos_token_id"),
        (r#"{"eos_token_id": [true]}"#, "eos_token_id"),
        (r#"{"eos_token_id": 99999999999999999999}"#, "eos_token_id"),
        (r#"{"bos_token_id": {}}"#, "bos_token_id"),
        (r#"{"do_sample": 1}"#, "do_sample"),
        (r#"{"do_sample": true, "temperature": -1}"#, "temperature"),
        (r#"{"temperature": "hot"}"#, "temperature"),
        (r#"{"do_sample": true, "temperature": 1e300}"#, "temperature"),
        (r#"{"top_k": -7}"#, "top_k"),
        (r#"{"top_k": 2.5}"#, "top_k"),
        (r#"{"do_sample": true, "top_p": 1.5}"#, "top-p"),
        (r#"{"do_sample": true, "min_p": -0.5}"#, "min-p"),
        (r#"{"repetition_penalty": 0}"#, "repeat penalty"),
        ("[]", "no object"),
        ("{", "no valid JSON"),
    ]
    .into_iter()
    .enumerate()
    {
        let error = open(&format!("hostile{index}"), Some(text)).err().expect(text);
        assert!(error.contains("generation_config.json"), "{text}: {error}");
        assert!(error.contains(words), "{text}: {error}");
    }
}

#[test]
fn a_generation_stops_at_every_end() {
    let run = |name: &str, generation: &str| {
        let dir = folder(name, Some(generation));
        let model = Model::open(&dir).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        let params = GenerateParams {
            max_tokens: Some(8),
            ..GenerateParams::default()
        };
        let (mut ids, mut end) = (Vec::new(), None);
        for event in model.generate_ids(&[5, 6, 7], params).unwrap() {
            match event.unwrap() {
                Event::Token { id, .. } => ids.push(id),
                Event::End { reason, .. } => end = Some(reason),
                _ => {}
            }
        }
        (ids, end.unwrap())
    };
    let (ids, reason) = run("free", r#"{"eos_token_id": []}"#);
    assert_eq!((ids.len(), reason), (8, FinishReason::Length));
    let first = ids[3];
    let before = ids.iter().position(|&id| id == first).unwrap();
    let (stopped, reason) = run("ends", &format!(r#"{{"eos_token_id": [319, {first}]}}"#));
    assert_eq!((stopped.as_slice(), reason), (&ids[..before], FinishReason::Stop));
}

fn gguf(keys: &[(&str, WriteValue)]) -> GgufFile {
    let mut w = GgufWriter::new();
    w.key("general.architecture", WriteValue::Str("llama".into()));
    let tokens = ["<unk>", "<s>", "</s>", "a", "b", "\u{2581}"]
        .map(str::to_owned)
        .to_vec();
    w.key("tokenizer.ggml.model", WriteValue::Str("llama".into()));
    w.key("tokenizer.ggml.scores", WriteValue::F32s(vec![0.0; tokens.len()]));
    w.key("tokenizer.ggml.tokens", WriteValue::Strs(tokens));
    for (key, value) in keys {
        w.key(key, value.clone());
    }
    w.tensor("t", DType::F32, &[1], &[0; 4]);
    let bytes: &'static [u8] = Box::leak(w.finish().into_boxed_slice());
    GgufFile::from_source("test", std::sync::Arc::new(bytes)).unwrap()
}

#[test]
fn gguf_names_its_ends_in_several_keys() {
    let ends = |keys: &[(&str, WriteValue)]| {
        let tokenizer = Tokenizer::from_gguf_file(&gguf(keys), None);
        tokenizer.map(|t| t.eog_ids().to_vec()).map_err(|e| e.to_string())
    };
    assert_eq!(ends(&[]).unwrap(), [2]);
    let key = "tokenizer.ggml.eos_token_ids";
    assert_eq!(ends(&[(key, WriteValue::I32s(vec![2, 3]))]).unwrap(), [2, 3]);
    assert_eq!(ends(&[(key, WriteValue::U32(4))]).unwrap(), [2, 4]);
    assert_eq!(
        ends(&[
            ("tokenizer.ggml.eot_token_id", WriteValue::U32(3)),
            ("tokenizer.ggml.eom_token_id", WriteValue::U32(4)),
        ])
        .unwrap(),
        [2, 3, 4]
    );
    for bad in [
        WriteValue::I32s(vec![-5]),
        WriteValue::I32s(vec![99]),
        WriteValue::F32s(vec![1.5]),
        WriteValue::Strs(vec!["a".into()]),
        WriteValue::Str("3".into()),
    ] {
        let error = ends(&[(key, bad.clone())]).unwrap_err();
        assert!(error.contains(key), "{bad:?}: {error}");
    }
}

#[test]
fn gguf_sampling_keys_are_read_and_checked() {
    use glia_model::config::GenerationConfig;
    let read = |keys: &[(&str, WriteValue)]| GenerationConfig::from_gguf(&gguf(keys)).map_err(|e| e.to_string());
    assert_eq!(read(&[]).unwrap().sample, SampleParams::default());
    let sample = read(&[
        ("general.sampling.temp", WriteValue::F32(0.75)),
        ("general.sampling.top_k", WriteValue::I32(20)),
        ("general.sampling.top_p", WriteValue::F32(0.5)),
        ("general.sampling.min_p", WriteValue::F32(0.25)),
    ])
    .unwrap()
    .sample;
    assert_eq!((sample.temperature, sample.top_k), (0.75, 20));
    assert_eq!((sample.top_p, sample.min_p), (0.5, 0.25));
    assert_eq!(
        read(&[("general.sampling.top_k", WriteValue::I32(-1))])
            .unwrap()
            .sample
            .top_k,
        0
    );
    for (key, value) in [
        ("general.sampling.temp", WriteValue::F32(f32::NAN)),
        ("general.sampling.temp", WriteValue::Str("warm".into())),
        ("general.sampling.temp", WriteValue::Bool(true)),
        ("general.sampling.top_p", WriteValue::F32(7.0)),
        ("general.sampling.top_k", WriteValue::F32s(vec![1.0])),
    ] {
        let error = read(&[(key, value.clone())]).unwrap_err();
        assert!(error.contains("general.sampling"), "{value:?}: {error}");
    }
}

#[test]
fn a_byte_order_mark_is_no_fault() {
    let plain = open("bom-not", Some(r#"{"eos_token_id": 3}"#)).unwrap();
    let marked = open("bom", Some("\u{feff}{\"eos_token_id\": 3}")).unwrap();
    assert_eq!(marked.generation_config().eos, plain.generation_config().eos);
}
