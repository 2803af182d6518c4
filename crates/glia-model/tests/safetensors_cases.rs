//! Damaged and inconsistent safetensors files: refused in words that name the file, the sizes and the cure.

use std::path::{Path, PathBuf};

use glia_model::safetensors::SafetensorsFile;
use glia_model::{ModelFile, Options};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("glia-st-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A file of F32 tensors, all zero.
fn file(tensors: &[(&str, &[usize])]) -> Vec<u8> {
    let (mut at, mut entries) = (0, Vec::new());
    for (name, shape) in tensors {
        let end = at + 4 * shape.iter().product::<usize>();
        entries.push(format!(
            "\"{name}\":{{\"dtype\":\"F32\",\"shape\":{shape:?},\"data_offsets\":[{at},{end}]}}"
        ));
        at = end;
    }
    let header = format!("{{{}}}", entries.join(","));
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + at, 0);
    bytes
}

fn refused(path: &Path, parts: &[&str]) {
    let error = SafetensorsFile::open(path, true).err().expect("must be refused");
    says(&error.to_string(), path.to_str().unwrap(), parts);
}

fn says(error: &str, path: &str, parts: &[&str]) {
    for part in std::iter::once(&path).chain(parts) {
        assert!(error.contains(part), "`{error}` does not say `{part}`");
    }
}

#[test]
fn headers_beyond_the_file_are_refused_with_both_sizes() {
    let folder = Folder::new("header");
    let mut bytes = 10_000u64.to_le_bytes().to_vec();
    bytes.extend(b"{}");
    refused(
        &folder.write("a.safetensors", &bytes),
        &["10000", "10 in all", "fetch it again"],
    );
    bytes[..8].copy_from_slice(&(1u64 << 63).to_le_bytes());
    let says = ["9223372036854775808", "10 in all", "incomplete, or no safetensors"];
    refused(&folder.write("b.safetensors", &bytes), &says);
    let whole = file(&[("w", &[4])]);
    refused(
        &folder.write("c.safetensors", &whole[..30]),
        &["30 in all", "incomplete"],
    );
    // The header is whole, the data are not.
    refused(
        &folder.write("d.safetensors", &whole[..whole.len() - 4]),
        &["incomplete", "fetch it again"],
    );
    for cut in 0..whole.len() {
        assert!(SafetensorsFile::open(&folder.write("e.safetensors", &whole[..cut]), false).is_err());
    }
    assert!(SafetensorsFile::open(&folder.write("e.safetensors", &whole), false).is_ok());
}

#[test]
fn short_shards_are_named() {
    let folder = Folder::new("short");
    for bytes in [&b""[..], b"12345"] {
        let path = folder.write("model-00002-of-00003.safetensors", bytes);
        refused(&path, &["model-00002-of-00003", &format!("has {} bytes", bytes.len())]);
    }
    refused(
        &folder.write("l.safetensors", "version https://git-lfs.github.com/spec/v1\n"),
        &["Git LFS pointer"],
    );
    refused(
        &folder.write("h.safetensors", "<!DOCTYPE html><html></html>"),
        &["HTML"],
    );
}

#[test]
fn headers_beyond_the_cap_are_refused_with_the_cap() {
    let folder = Folder::new("cap");
    let path = folder.write("m.safetensors", 110_000_000u64.to_le_bytes());
    // Sparse: the header is there in length only.
    std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(110_000_100)
        .unwrap();
    refused(&path, &["110000000", "100000000"]);
}

#[test]
fn the_tensor_at_fault_is_named() {
    let folder = Folder::new("fault");
    let whole = file(&[("a", &[2]), ("w", &[4])]);
    let header_len = u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    let text = String::from_utf8(whole[8..8 + header_len].to_vec()).unwrap();
    let write = |from: &str, to: &str| {
        assert!(text.contains(from));
        let header = text.replace(from, to);
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.extend(&whole[8 + header_len..]);
        folder.write("m.safetensors", bytes)
    };
    for (from, to, says) in [
        ("[4]", "[5]", "needs 20 bytes, the header gives it 16"),
        ("[4]", "[-1]", "entry in the header is damaged"),
        ("[4]", "[4294967296,4294967296,16]", "overflow"),
        ("[8,24]", "[8,99]", "from byte 8 to 99, the file holds 24"),
        ("[8,24]", "[24,8]", "from byte 24 to 8"),
        ("[8,24]", "[8]", "entry in the header is damaged"),
    ] {
        refused(&write(from, to), &["tensor `w`", says]);
    }
    let twice = r#","w":{"dtype":"F32","shape":[4],"data_offsets":[8,24]}}"#;
    refused(&write("}}", &format!("}}{twice}")), &["tensor `w`", "twice"]);
    // A header of 60 bytes begins like a page.
    let mut bytes = 60u64.to_le_bytes().to_vec();
    bytes.extend([b' '; 60]);
    let error = SafetensorsFile::open(&folder.write("p.safetensors", bytes), true)
        .err()
        .unwrap();
    assert!(!error.to_string().contains("HTML"), "{error}");
}

#[test]
fn indexes_that_do_not_match_the_shards_are_refused() {
    let folder = Folder::new("index");
    folder.write("1.safetensors", file(&[("a", &[2])]));
    folder.write("2.safetensors", file(&[("b", &[3])]));
    let index = |a: &str, b: &str| {
        let json = format!("{{\"weight_map\":{{\"a\":\"{a}\",\"b\":\"{b}\"}}}}");
        let path = folder.write("model.safetensors.index.json", json);
        SafetensorsFile::open_sharded(&path, true)
    };
    assert_eq!(index("1.safetensors", "2.safetensors").unwrap().names(), ["a", "b"]);
    let error = index("2.safetensors", "1.safetensors")
        .err()
        .expect("must be refused")
        .to_string();
    says(
        &error,
        "index.json",
        &["`a`", "not in 2.safetensors", "found in", "1.safetensors"],
    );
    let error = index("1.safetensors", "../2.safetensors").err().unwrap().to_string();
    says(&error, "index.json", &["leaves the folder"]);
    let error = index("1.safetensors", "1.safetensors").err().unwrap().to_string();
    says(&error, "index.json", &["`b`", "in none of the shards"]);
}

#[test]
fn a_missing_head_is_an_error_unless_it_is_tied() {
    let folder = Folder::new("tied");
    let layer = |name: &str| format!("model.layers.0.{name}.weight");
    let square: &[usize] = &[32, 32];
    let names = ["q", "k", "v", "o"].map(|n| layer(&format!("self_attn.{n}_proj")));
    let mlp = ["gate", "up", "down"].map(|n| layer(&format!("mlp.{n}_proj")));
    let norms = [layer("input_layernorm"), layer("post_attention_layernorm")];
    let mut tensors: Vec<(&str, &[usize])> =
        vec![("model.embed_tokens.weight", &[4, 32]), ("model.norm.weight", &[32])];
    tensors.extend(names.iter().chain(&mlp).map(|n| (n.as_str(), square)));
    tensors.extend(norms.iter().map(|n| (n.as_str(), &[32usize][..])));
    folder.write("model.safetensors", file(&tensors));
    for tied in [true, false] {
        let config = format!(
            "{{\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":32,\
             \"intermediate_size\":32,\"num_hidden_layers\":1,\"num_attention_heads\":2,\"num_key_value_heads\":2,\
             \"vocab_size\":4,\"max_position_embeddings\":64,\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0,\
             \"hidden_act\":\"silu\",\"tie_word_embeddings\":{tied}}}"
        );
        folder.write("config.json", config);
        let graph = ModelFile::open(&folder.0, &Options::default()).and_then(|f| f.graph());
        match (tied, graph) {
            (true, graph) => assert!(graph.is_ok(), "{}", graph.err().unwrap()),
            (false, graph) => says(
                &graph.expect_err("must be refused").to_string(),
                folder.0.to_str().unwrap(),
                &["lm_head.weight"],
            ),
        }
    }
}
