//! A model of random weights, made where it is measured: large enough that decoding waits for memory, and nothing to carry.

use std::path::Path;

use glia_core::DType;
use glia_model::gguf::write::{GgufWriter, WriteValue};

use crate::Outcome;

/// Sizes of a llama whose heads are grouped by four.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    layers: u32,
    hidden: usize,
    ffn: usize,
    heads: usize,
    vocab: usize,
}

impl Sizes {
    /// So many layers; 16 have some 10^9 weights.
    pub fn of_layers(layers: u32) -> Sizes {
        Sizes {
            layers,
            hidden: 2048,
            ffn: 8192,
            heads: 32,
            vocab: 32_768,
        }
    }
}

const CONTEXT: u32 = 4096;
/// Bytes come first in the vocabulary.
const N_BYTES: usize = 256;

/// Writes a GGUF file of Q8_0 weights.
pub fn write(path: &Path, sizes: Sizes) -> Outcome {
    let mut file = GgufWriter::new();
    metadata(&mut file, sizes);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut weight = |file: &mut GgufWriter, name: &str, n: usize, k: usize| {
        file.tensor(name, DType::Q8_0, &[n, k], &random.q8_0(n * k, 1.0 / (k as f32).sqrt()));
    };
    let Sizes { hidden, ffn, .. } = sizes;
    let ones = 1f32.to_le_bytes().repeat(hidden);
    let kv = hidden / 4;
    weight(&mut file, "token_embd.weight", sizes.vocab, hidden);
    for i in 0..sizes.layers {
        for name in ["attn_norm", "ffn_norm"] {
            file.tensor(&format!("blk.{i}.{name}.weight"), DType::F32, &[hidden], &ones);
        }
        for (name, n, k) in [
            ("attn_q", hidden, hidden),
            ("attn_k", kv, hidden),
            ("attn_v", kv, hidden),
            ("attn_output", hidden, hidden),
            ("ffn_gate", ffn, hidden),
            ("ffn_up", ffn, hidden),
            ("ffn_down", hidden, ffn),
        ] {
            weight(&mut file, &format!("blk.{i}.{name}.weight"), n, k);
        }
    }
    file.tensor("output_norm.weight", DType::F32, &[hidden], &ones);
    std::fs::write(path, file.finish()).map_err(|e| format!("{}: {e}", path.display()))
}

fn metadata(file: &mut GgufWriter, sizes: Sizes) {
    file.key("general.architecture", WriteValue::Str("llama".into()));
    for (key, value) in [
        ("block_count", sizes.layers),
        ("context_length", CONTEXT),
        ("embedding_length", sizes.hidden as u32),
        ("feed_forward_length", sizes.ffn as u32),
        ("attention.head_count", sizes.heads as u32),
        ("attention.head_count_kv", sizes.heads as u32 / 4),
        ("rope.dimension_count", (sizes.hidden / sizes.heads) as u32),
        ("vocab_size", sizes.vocab as u32),
    ] {
        file.key(&format!("llama.{key}"), WriteValue::U32(value));
    }
    file.key("llama.attention.layer_norm_rms_epsilon", WriteValue::F32(1e-5));
    file.key("llama.rope.freq_base", WriteValue::F32(10_000.0));
    // Behind the bytes, tokens that no text becomes.
    let mut tokens: Vec<String> = bytes_as_text();
    tokens.extend((N_BYTES..sizes.vocab).map(|i| format!("<|{i}|>")));
    let kinds: Vec<i32> = (0..sizes.vocab).map(|i| if i < N_BYTES { 1 } else { 3 }).collect();
    file.key("tokenizer.ggml.model", WriteValue::Str("gpt2".into()));
    file.key("tokenizer.ggml.pre", WriteValue::Str("gpt-2".into()));
    file.key("tokenizer.ggml.tokens", WriteValue::Strs(tokens));
    file.key("tokenizer.ggml.token_type", WriteValue::I32s(kinds));
    file.key("tokenizer.ggml.merges", WriteValue::Strs(Vec::new()));
    file.key("tokenizer.ggml.eos_token_id", WriteValue::U32(sizes.vocab as u32 - 1));
}

/// Characters that byte-level vocabularies write for the 256 bytes: printable ones for themselves, the others in order
/// from U+0100.
fn bytes_as_text() -> Vec<String> {
    let mut next = 0x100u32;
    let one = |byte: u8| {
        let is_printable = matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
        let code = if is_printable { u32::from(byte) } else { next };
        next += u32::from(!is_printable);
        char::from_u32(code).map(String::from).unwrap_or_default()
    };
    (0..=255).map(one).collect()
}

/// Xorshift: fast, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Blocks of 32 codes with one scale, of numbers of about this size.
    fn q8_0(&mut self, n_elems: usize, size: f32) -> Vec<u8> {
        // Codes are uniform in -128..128, whose root mean square is 74.
        let scale = half::f16::from_f32(size / 74.0).to_le_bytes();
        let mut bytes = Vec::with_capacity(n_elems / 32 * 34);
        for _ in 0..n_elems / 32 {
            bytes.extend_from_slice(&scale);
            for _ in 0..4 {
                bytes.extend_from_slice(&self.next().to_le_bytes());
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device_check::tests::Folder;

    #[test]
    fn codes_have_the_size_that_is_asked_for() {
        let mut random = Random(1);
        let bytes = random.q8_0(32_000, 0.02);
        assert_eq!(bytes.len(), 34_000);
        let tensor = glia_core::Tensor::from_bytes(DType::Q8_0, [1000, 32], &bytes).unwrap();
        let values = tensor.to_f32_vec().unwrap();
        let square = values.iter().map(|x| x * x).sum::<f32>() / values.len() as f32;
        assert!((square.sqrt() - 0.02).abs() < 1e-3, "{}", square.sqrt());
    }

    #[test]
    fn bytes_are_all_different_and_printable() {
        let mut all = bytes_as_text();
        assert_eq!(
            (all[b'A' as usize].as_str(), all[b' ' as usize].as_str()),
            ("A", "\u{120}")
        );
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 256);
        assert!(all.iter().all(|c| c.chars().count() == 1 && !c.trim().is_empty()));
    }

    #[test]
    fn the_file_is_a_model_that_runs() {
        let folder = Folder::new("synthetic");
        let path = folder.join("model.gguf");
        let sizes = Sizes {
            layers: 2,
            hidden: 128,
            ffn: 256,
            heads: 4,
            vocab: 320,
        };
        write(&path, sizes).unwrap();
        let model = glia_model::Model::open(&path).unwrap();
        let ids = model.tokenizer().encode("A b", false, false).unwrap();
        assert_eq!(ids, [u32::from(b'A'), u32::from(b' '), u32::from(b'b')]);
        let logits = model
            .session()
            .unwrap()
            .feed(&ids, &glia_model::WantedRows::Last)
            .unwrap();
        let logits = logits.as_f32().unwrap();
        assert!(logits.len() == 320 && logits.iter().all(|x| x.is_finite() && x.abs() < 100.0));
        assert_eq!(
            model
                .executor()
                .graph()
                .iter_nodes()
                .filter(|(_, n)| n.op.kind() == "sdpa")
                .count(),
            2
        );
    }
}
