//! A tiny llama as a GGUF file, for tests that spoil it.

use glia_core::DType;
use glia_model::gguf::write::{GgufWriter, WriteValue};

/// A llama of two blocks, 32 wide.
pub fn tiny_llama(claimed_blocks: u32, with_output: bool, pre: &str) -> GgufWriter {
    let mut w = GgufWriter::new();
    let text = |s: &str| WriteValue::Str(s.to_owned());
    w.key("general.architecture", text("llama"))
        .key("llama.block_count", WriteValue::U32(claimed_blocks))
        .key("llama.context_length", WriteValue::U32(64))
        .key("llama.embedding_length", WriteValue::U32(32))
        .key("llama.feed_forward_length", WriteValue::U32(64))
        .key("llama.attention.head_count", WriteValue::U32(2))
        .key("llama.attention.head_count_kv", WriteValue::U32(2))
        .key("llama.attention.layer_norm_rms_epsilon", WriteValue::F32(1e-5))
        .key("llama.rope.dimension_count", WriteValue::U32(16))
        .key("llama.vocab_size", WriteValue::U32(4))
        .key("tokenizer.ggml.model", text("gpt2"))
        .key("tokenizer.ggml.pre", text(pre))
        .key(
            "tokenizer.ggml.tokens",
            WriteValue::Strs(["a", "b", "ab", "c"].map(str::to_owned).into()),
        )
        .key("tokenizer.ggml.token_type", WriteValue::I32s(vec![1; 4]))
        .key("tokenizer.ggml.merges", WriteValue::Strs(vec!["a b".to_owned()]));
    let mut add = |name: &str, shape: &[usize]| {
        let bytes = vec![0; 4 * shape.iter().product::<usize>()];
        w.tensor(name, DType::F32, shape, &bytes);
    };
    add("token_embd.weight", &[4, 32]);
    add("output_norm.weight", &[32]);
    if with_output {
        add("output.weight", &[4, 32]);
    }
    for block in 0..2 {
        let mut add = |name: &str, shape: &[usize]| add(&format!("blk.{block}.{name}.weight"), shape);
        add("attn_norm", &[32]);
        add("ffn_norm", &[32]);
        ["attn_q", "attn_k", "attn_v", "attn_output"]
            .iter()
            .for_each(|n| add(n, &[32, 32]));
        add("ffn_gate", &[64, 32]);
        add("ffn_up", &[64, 32]);
        add("ffn_down", &[32, 64]);
    }
    w
}
