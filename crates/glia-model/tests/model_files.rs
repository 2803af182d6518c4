//! Folders and files beside the weights: what is missing, endless or contradictory is refused, or warned of, in words that
//! name the file and the cure.

#[path = "support/tiny.rs"]
mod tiny;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use glia_model::gguf::GgufFile;
use glia_model::gguf::write::{GgufWriter, WriteValue};
use glia_model::{Contents, Model, ModelError, ModelFile, Options};
use serde_json::{Value, json};
use tiny::tiny_llama;

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Folder {
    /// A tiny llama of the goldens with a tokenizer of `n_tokens` words.
    fn new(name: &str, n_tokens: usize) -> Folder {
        let dir = std::env::temp_dir().join(format!("glia-files-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens/models/llama-gqa-hd");
        for file in ["config.json", "model.safetensors"] {
            std::fs::copy(model.join(file), dir.join(file)).unwrap();
        }
        let vocab: serde_json::Map<String, Value> = (0..n_tokens).map(|i| (format!("t{i}"), i.into())).collect();
        let folder = Folder(dir);
        folder.write(
            "tokenizer.json",
            json!({
                "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
                "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": null,
                "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "t0"},
            })
            .to_string(),
        );
        folder
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.0.join(name), bytes).unwrap();
    }

    fn open(&self) -> Result<Model, ModelError> {
        Model::open(&self.0)
    }

    /// The message of the refusal, which comes quickly and names the folder once.
    fn refused(&self, parts: &[&str]) {
        let start = Instant::now();
        let error = self.open().err().expect("must be refused").to_string();
        assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
        for part in parts {
            assert!(error.contains(part), "`{error}` does not say `{part}`");
        }
        let folder = self.0.display().to_string();
        assert_eq!(error.matches(&folder).count(), 1, "{error}");
    }
}

#[test]
fn missing_files_are_named_with_their_cure() {
    let folder = Folder::new("missing", 320);
    folder.open().unwrap();
    for (file, parts) in [
        (
            "tokenizer.json",
            ["neither tokenizer.json nor tokenizer.model", "save_pretrained"],
        ),
        (
            "model.safetensors",
            ["neither model.safetensors nor", "must be converted"],
        ),
        ("config.json", ["folder without config.json", "GGUF file"]),
    ] {
        let aside = folder.0.join("aside");
        std::fs::rename(folder.0.join(file), &aside).unwrap();
        folder.refused(&parts);
        std::fs::rename(aside, folder.0.join(file)).unwrap();
    }
}

#[test]
fn damaged_files_are_named_with_their_place() {
    let folder = Folder::new("damaged", 320);
    for (file, bytes, parts) in [
        (
            "tokenizer_config.json",
            &b"{"[..],
            &["tokenizer_config.json: ", "line 1"][..],
        ),
        (
            "tokenizer_config.json",
            b"[]",
            &["tokenizer_config.json: is JSON, but no object"],
        ),
        (
            "tokenizer_config.json",
            br#"{"chat_template": 5}"#,
            &["tokenizer_config.json: chat_template is neither"],
        ),
        (
            "tokenizer_config.json",
            br#"{"chat_template": [{}]}"#,
            &["tokenizer_config.json: chat_template has an entry"],
        ),
        (
            "generation_config.json",
            b"{",
            &["generation_config.json: is no valid JSON"],
        ),
        (
            "chat_template.jinja",
            b"a\xff",
            &["chat_template.jinja: byte 1 is not UTF-8"],
        ),
    ] {
        folder.write(file, bytes);
        folder.refused(parts);
        std::fs::remove_file(folder.0.join(file)).unwrap();
    }
    let good = std::fs::read(folder.0.join("tokenizer.json")).unwrap();
    for bytes in [&b""[..], b"{}", b"[]", b"\xff\xfe"] {
        folder.write("tokenizer.json", bytes);
        folder.refused(&["tokenizer.json: "]);
    }
    folder.write("tokenizer.json", good);
    for (key, value, parts) in [
        ("hidden_size", json!(-1), ["config.json: hidden_size", "not -1"]),
        (
            "rope_scaling",
            json!({"rope_type": "linear"}),
            ["config.json: rope_scaling.factor", "is missing"],
        ),
    ] {
        let config = std::fs::read(folder.0.join("config.json")).unwrap();
        let mut changed: Value = serde_json::from_slice(&config).unwrap();
        changed[key] = value;
        changed.as_object_mut().unwrap().remove("rope_parameters");
        folder.write("config.json", changed.to_string());
        folder.refused(&parts);
        folder.write("config.json", config);
    }
}

#[test]
#[cfg(unix)]
fn endless_files_are_not_read() {
    let folder = Folder::new("endless", 320);
    for file in [
        "tokenizer_config.json",
        "generation_config.json",
        "chat_template.jinja",
        "tokenizer.json",
        "config.json",
    ] {
        let (path, aside) = (folder.0.join(file), folder.0.join("aside"));
        let there = std::fs::rename(&path, &aside).is_ok();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        folder.refused(&[&format!("{file}: is no regular file")]);
        std::fs::remove_file(&path).unwrap();
        // Long, though it is a file.
        std::fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
        folder.refused(&[&format!("{file}: has 1099511627776 bytes")]);
        std::fs::remove_file(&path).unwrap();
        if there {
            std::fs::rename(&aside, &path).unwrap();
        }
    }
}

#[test]
fn tokens_without_an_embedding_are_refused_with_both_counts() {
    let folder = Folder::new("beyond", 321);
    folder.refused(&["321 tokens", "320 rows", "`t320`"]);
    // As of an image: its text alone makes it, which no prompt holds by chance.
    let mut tokenizer: Value =
        serde_json::from_slice(&std::fs::read(folder.0.join("tokenizer.json")).unwrap()).unwrap();
    let added = json!({"id": 320, "content": "<image>", "single_word": false, "lstrip": false, "rstrip": false,
                       "normalized": false, "special": true});
    tokenizer["added_tokens"] = json!([added]);
    tokenizer["model"]["vocab"].as_object_mut().unwrap().remove("t320");
    folder.write("tokenizer.json", tokenizer.to_string());
    folder.open().unwrap();

    let mut more = GgufWriter::new();
    let tokens = ["a", "b", "ab", "c", "d"].map(str::to_owned);
    more.key("tokenizer.ggml.tokens", WriteValue::Strs(tokens.into()));
    let error = gguf(
        tiny_llama(2, true, "gpt-2")
            .without("tokenizer.ggml.tokens")
            .with_keys_of(&more),
    );
    let error = error.err().unwrap().to_string();
    for part in [
        "t.gguf",
        "tokenizer.ggml.tokens",
        "5 entries",
        "4 rows",
        "token_embd.weight",
    ] {
        assert!(error.contains(part), "`{error}` does not say `{part}`");
    }
}

#[test]
fn ends_that_end_nothing_are_warned_of() {
    let folder = Folder::new("ends", 320);
    let warnings = |ends: &str| {
        folder.write("generation_config.json", format!(r#"{{"eos_token_id": {ends}}}"#));
        folder.open().unwrap().warnings().join("\n")
    };
    assert_eq!(warnings("7"), "");
    let all = warnings("99999999");
    for part in ["eos_token_id 99999999", "has 320", "no token is known to end"] {
        assert!(all.contains(part), "`{all}` does not say `{part}`");
    }
    assert!(warnings("[7, 320]").contains("eos_token_id 320"));
}

fn gguf(w: GgufWriter) -> Result<ModelFile, ModelError> {
    ModelFile::from_gguf(GgufFile::from_source("t.gguf", Arc::new(w.finish())).unwrap())
}

#[test]
fn vocabularies_without_merges_or_splitter_are_refused_or_warned_of() {
    let load = |without: &str| {
        let file = gguf(tiny_llama(2, true, "gpt-2").without(without)).unwrap();
        Model::load(file, Options::default())
    };
    let error = load("tokenizer.ggml.merges").err().unwrap().to_string();
    for part in ["t.gguf: tokenizer.ggml.merges: ", "missing or empty", "`ab`", "convert"] {
        assert!(error.contains(part), "`{error}` does not say `{part}`");
    }
    let warnings = load("tokenizer.ggml.pre").unwrap().warnings().join("\n");
    assert!(warnings.contains("no tokenizer.ggml.pre"), "{warnings}");
}

#[test]
fn errors_of_a_gguf_tokenizer_name_file_and_key_once() {
    for (key, value, says) in [
        ("bos_token_id", WriteValue::Str("x".into()), "must be a whole number"),
        ("bos_token_id", WriteValue::U32(99), "out of range 0..4"),
        ("token_type", WriteValue::I32s(vec![1; 3]), "3 entries for 4 tokens"),
        ("model", WriteValue::Str("rwkv".into()), "supported are llama"),
        ("pre", WriteValue::Str("future-bpe".into()), "--pre-tokenizer"),
    ] {
        let key = format!("tokenizer.ggml.{key}");
        let mut other = GgufWriter::new();
        other.key(&key, value);
        let file = gguf(tiny_llama(2, true, "gpt-2").without(&key).with_keys_of(&other)).unwrap();
        let error = Model::load(file, Options::default()).err().unwrap().to_string();
        assert!(error.starts_with("t.gguf: ") && error.contains(says), "{error}");
        assert_eq!(
            (error.matches(&key).count(), error.matches("t.gguf").count()),
            (1, 1),
            "{error}"
        );
    }
}

#[test]
fn named_templates_are_read_by_name() {
    let mut keys = GgufWriter::new();
    let text = |s: &str| WriteValue::Str(s.to_owned());
    keys.key("tokenizer.chat_template.tool_use", text("T{{ messages|length }}"))
        .key("tokenizer.chat_template.rag", text("{% for %}"));
    let names = |w: &GgufWriter| {
        let file = gguf(tiny_llama(2, true, "gpt-2").with_keys_of(w)).unwrap();
        (file.chat_template_names().unwrap(), file)
    };
    let messages = json!([{"role": "user", "content": "a"}]);
    let input = glia_model::template::ChatInput {
        messages: messages.clone(),
        ..Default::default()
    };
    // Without a default, chat is refused with the names there are.
    let (found, file) = names(&keys);
    assert_eq!(found, ["tool_use", "rag"]);
    let model = Model::load(file, Options::default()).unwrap();
    let error = model.chat_ids(messages.as_array().unwrap()).unwrap_err().to_string();
    assert!(error.contains("t.gguf") && error.contains("tool_use, rag"), "{error}");

    keys.key("tokenizer.chat_template", text("ab"));
    let (found, file) = names(&keys);
    assert_eq!(found, ["default", "tool_use", "rag"]);
    let tokenizer = file.tokenizer(&Options::default()).unwrap();
    let named = |name: &str| file.chat_template_named(&tokenizer, name);
    assert_eq!(named("tool_use").unwrap().unwrap().render(&input).unwrap(), "T1");
    assert!(named("other").unwrap().is_none());
    let error = named("rag").unwrap_err().to_string();
    assert!(error.contains("t.gguf: tokenizer.chat_template.rag: "), "{error}");
    let model = Model::load(file, Options::default()).unwrap();
    assert_eq!(model.chat_ids(messages.as_array().unwrap()).unwrap(), [2]);
}

#[test]
fn files_that_cannot_run_are_listed() {
    let folder = Folder::new("listed", 320);
    let mut w = GgufWriter::new();
    w.key("general.architecture", WriteValue::Str("mamba9".into())).tensor(
        "strange",
        glia_core::DType::F32,
        &[2, 3],
        &[0; 24],
    );
    folder.write("m.gguf", w.finish());
    let path = folder.0.join("m.gguf");
    let error = ModelFile::open(&path, &Options::default()).err().unwrap().to_string();
    let contents = Contents::open(&path, true).unwrap();
    let card = contents.card(&error).to_string();
    for part in ["m.gguf", "mamba9", "not supported", "F32", "1 tensors"] {
        assert!(card.contains(part), "{card}");
    }
    assert!(contents.tensors()[0].contains("strange") && contents.tensors()[0].contains("[2, 3]"));
    assert_eq!(contents.metadata()[0].0, "general.architecture");

    // Control characters of a file stay in the file, and so do pages of text.
    let mut w = GgufWriter::new();
    let name = format!("\u{1b}[31m{}", "x".repeat(1 << 20));
    w.key("general.name", WriteValue::Str(name));
    folder.write("m.gguf", w.finish());
    let contents = Contents::open(&path, true).unwrap();
    let (card, metadata) = (contents.card("odd").to_string(), contents.metadata());
    assert!(
        card.len() < 1000 && !card.contains('\u{1b}') && card.contains("more bytes"),
        "{card}"
    );
    assert!(metadata[0].1.len() < 70_000 && !metadata[0].1.contains('\u{1b}'));

    // A model lacks its keys and holds what no program here knows: the type is named.
    let mut bytes = tiny_llama(2, true, "gpt-2").without("llama.embedding_length").finish();
    let name = b"blk.1.attn_q.weight";
    let at = bytes.windows(name.len()).position(|w| w == name).unwrap() + name.len() + 4 + 2 * 8;
    bytes[at..at + 4].copy_from_slice(&200u32.to_le_bytes());
    folder.write("m.gguf", bytes);
    let error = ModelFile::open(&path, &Options::default()).err().unwrap().to_string();
    for part in ["`blk.1.attn_q.weight`", "type 200 is unknown", "supported: F32"] {
        assert!(error.contains(part), "`{error}` does not say `{part}`");
    }

    // A dtype that no op takes, in a folder.
    let header = r#"{"odd":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]}}"#;
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend([0; 4]);
    folder.write("model.safetensors", bytes);
    folder.refused(&["`odd`", "F8_E4M3 is not supported"]);
    let contents = Contents::open(&folder.0, true).unwrap();
    assert!(contents.tensors()[0].contains("F8_E4M3") && contents.tensors()[0].contains("not supported"));
}
