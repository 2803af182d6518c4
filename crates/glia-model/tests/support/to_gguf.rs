//! A tiny model as a GGUF file, with the names, metadata and values that llama.cpp's converter gives it.

use glia_core::{DType, Tensor};
use glia_model::ModelFile;
use glia_model::family::gguf::{Transform, tensor_name};
use glia_model::family::spec::GateUpLayout;
use glia_model::gguf::write::{GgufWriter, WriteValue};
use glia_model::weights;
use serde_json::Value;

/// `model_type` and the architecture that the converter writes.
const ARCHITECTURES: &[(&str, &str)] = &[
    ("llama", "llama"),
    ("mistral", "llama"),
    ("ministral", "llama"),
    ("qwen2", "qwen2"),
    ("qwen3", "qwen3"),
    ("gemma", "gemma"),
    ("gemma2", "gemma2"),
    ("gemma3_text", "gemma3"),
    ("phi3", "phi3"),
];

/// The GGUF architecture of a configuration, unless the family has none here.
pub fn architecture(config: &Value) -> Option<&'static str> {
    let model_type = config["model_type"].as_str()?;
    ARCHITECTURES
        .iter()
        .find(|(m, _)| *m == model_type)
        .map(|(_, arch)| *arch)
}

/// Names of the converter, by what follows `model.layers.N.`.
const NAMES: &[(&str, &str)] = &[
    ("input_layernorm", "attn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.qkv_proj", "attn_qkv"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.gate_up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
];

fn converted_name(hf: &str, sandwich: bool) -> String {
    match hf {
        "model.embed_tokens.weight" => return "token_embd.weight".into(),
        "model.norm.weight" => return "output_norm.weight".into(),
        "lm_head.weight" => return "output.weight".into(),
        _ => {}
    }
    let (layer, rest) = hf.strip_prefix("model.layers.").unwrap().split_once('.').unwrap();
    let (part, suffix) = rest.rsplit_once('.').unwrap();
    let name = match part {
        "post_attention_layernorm" if sandwich => "post_attention_norm",
        "post_attention_layernorm" => "ffn_norm",
        _ => NAMES.iter().find(|(n, _)| *n == part).unwrap().1,
    };
    format!("blk.{layer}.{name}.{suffix}")
}

/// How the projections are stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Form {
    /// As the family's converter does.
    Usual,
    /// Joined where that keeps them apart, apart where it joins them.
    Other,
}

/// The bytes of the GGUF file.
pub fn convert(model: &ModelFile, config: &Value, arch: &str, form: Form) -> Vec<u8> {
    let mut w = GgufWriter::new();
    metadata(&mut w, config, arch);
    let graph = model.graph().unwrap();
    let source = model.weights();
    let gemma = arch.starts_with("gemma");
    let mut tensors = Vec::new();
    for (_, value) in graph.weights() {
        let name = value.name.as_str();
        if name.starts_with("rope.") {
            continue;
        }
        let tensor = source.get(name).unwrap();
        let (stored, transform) = tensor_name(model.spec(), arch, name).unwrap();
        assert_eq!(stored, converted_name(name, matches!(arch, "gemma2" | "gemma3")));
        let expected = match name {
            n if gemma && n.ends_with("norm.weight") => Transform::MinusOne,
            n if arch == "llama" && n.contains(".q_proj.") => heads(config, "num_attention_heads"),
            n if arch == "llama" && n.contains(".k_proj.") => heads(config, "num_key_value_heads"),
            _ => Transform::None,
        };
        assert_eq!(transform, expected, "{name}");
        let written: Tensor = weights::apply(tensor, transform).unwrap();
        tensors.push((stored, written));
    }
    if form == Form::Other {
        tensors = other_form(tensors, model);
    }
    for (name, tensor) in tensors {
        w.tensor(&name, tensor.dtype(), tensor.shape(), tensor.bytes().unwrap());
    }
    w.finish()
}

/// `attn_qkv` in place of `attn_q`, `attn_k`, `attn_v`, and the other way round; `ffn_up` and `ffn_gate` likewise.
fn other_form(tensors: Vec<(String, Tensor)>, model: &ModelFile) -> Vec<(String, Tensor)> {
    let (s, mut out) = (model.spec(), Vec::new());
    let (q, kv) = (s.n_heads * s.head_dim, s.n_kv_heads * s.head_dim);
    let find = |name: &str| tensors.iter().find(|(n, _)| n == name).map(|(_, t)| t.clone());
    for (name, tensor) in &tensors {
        let named = |from: &str, to: &str| name.replace(from, to);
        let rows = |range| tensor.slice_rows(range).unwrap();
        if name.contains(".attn_qkv.") {
            out.push((named("attn_qkv", "attn_q"), rows(0..q)));
            out.push((named("attn_qkv", "attn_k"), rows(q..q + kv)));
            out.push((named("attn_qkv", "attn_v"), rows(q + kv..q + 2 * kv)));
        } else if name.contains(".attn_q.") {
            let parts = ["attn_q", "attn_k", "attn_v"].map(|part| find(&named("attn_q", part)).unwrap());
            out.push((named("attn_q", "attn_qkv"), join(&parts)));
        } else if name.contains(".ffn_up.") && s.gate_up == GateUpLayout::Fused {
            out.push((named("ffn_up", "ffn_gate"), rows(0..s.intermediate)));
            out.push((name.clone(), rows(s.intermediate..2 * s.intermediate)));
        } else if name.contains(".ffn_up.") {
            out.push((
                name.clone(),
                join(&[find(&named("ffn_up", "ffn_gate")).unwrap(), tensor.clone()]),
            ));
        } else if ![".attn_k.", ".attn_v.", ".ffn_gate."].iter().any(|n| name.contains(n)) {
            out.push((name.clone(), tensor.clone()));
        }
    }
    out
}

/// Rows one after the other.
fn join(parts: &[Tensor]) -> Tensor {
    let bytes: Vec<u8> = parts.iter().flat_map(|t| t.bytes().unwrap().to_vec()).collect();
    let mut shape = parts[0].shape().to_vec();
    shape[0] = parts.iter().map(|t| t.shape()[0]).sum();
    Tensor::from_bytes(parts[0].dtype(), glia_core::Shape::try_new(&shape).unwrap(), &bytes).unwrap()
}

fn heads(config: &Value, key: &str) -> Transform {
    Transform::UnpermuteRows {
        n_heads: config[key].as_u64().unwrap() as usize,
    }
}

fn metadata(w: &mut GgufWriter, config: &Value, arch: &str) {
    w.key("general.architecture", WriteValue::Str(arch.into()));
    let size = |key: &str| config[key].as_u64().map(|n| n as u32);
    for (key, field) in [
        ("block_count", "num_hidden_layers"),
        ("context_length", "max_position_embeddings"),
        ("embedding_length", "hidden_size"),
        ("feed_forward_length", "intermediate_size"),
        ("attention.head_count", "num_attention_heads"),
        ("attention.head_count_kv", "num_key_value_heads"),
        ("attention.key_length", "head_dim"),
        ("attention.value_length", "head_dim"),
        ("attention.sliding_window", "sliding_window"),
    ] {
        if let Some(n) = size(field) {
            w.key(&format!("{arch}.{key}"), WriteValue::U32(n));
        }
    }
    let mut number = |key: &str, value: &Value| {
        if let Some(x) = value.as_f64() {
            w.key(&format!("{arch}.{key}"), WriteValue::F32(x as f32));
        }
    };
    number("attention.layer_norm_rms_epsilon", &config["rms_norm_eps"]);
    number("attn_logit_softcapping", &config["attn_logit_softcapping"]);
    number("final_logit_softcapping", &config["final_logit_softcapping"]);
    let (head_dim, ropes) = (head_dim(config), &config["rope_parameters"]);
    let rope = if ropes["full_attention"].is_object() {
        &ropes["full_attention"]
    } else {
        ropes
    };
    number("rope.freq_base", &rope["rope_theta"]);
    number("rope.freq_base_swa", &ropes["sliding_attention"]["rope_theta"]);
    match config["query_pre_attn_scalar"].as_f64() {
        // The format has a place for the scale, which the converter of these families leaves empty.
        Some(x) if x != f64::from(head_dim) => number("attention.scale", &Value::from(x.powf(-0.5))),
        _ => {}
    }
    let rope_dim = (f64::from(head_dim) * rope["partial_rotary_factor"].as_f64().unwrap_or(1.0)) as u32;
    w.key(&format!("{arch}.rope.dimension_count"), WriteValue::U32(rope_dim));
    if let Some(kinds) = config["layer_types"]
        .as_array()
        .filter(|_| size("sliding_window").is_some())
    {
        let local: Vec<i32> = kinds.iter().map(|k| i32::from(k == "sliding_attention")).collect();
        w.key(
            &format!("{arch}.attention.sliding_window_pattern"),
            WriteValue::I32s(local),
        );
    }
    scaling(w, config, rope, arch, rope_dim);
}

fn head_dim(config: &Value) -> u32 {
    let size = |key: &str| config[key].as_u64().unwrap() as u32;
    match config["head_dim"].as_u64() {
        Some(d) => d as u32,
        None => size("hidden_size") / size("num_attention_heads"),
    }
}

fn scaling(w: &mut GgufWriter, config: &Value, rope: &Value, arch: &str, rope_dim: u32) {
    let key = |k: &str| format!("{arch}.rope.scaling.{k}");
    let float = |k: &str| rope[k].as_f64().map(|x| x as f32);
    let floats = |values: Vec<f32>| Tensor::from_f32([values.len()], &values).unwrap();
    let list = |k: &str| {
        rope[k]
            .as_array()
            .unwrap()
            .iter()
            .map(|v| v.as_f64().unwrap() as f32)
            .collect::<Vec<_>>()
    };
    let tensor = |w: &mut GgufWriter, name: &str, values: Vec<f32>| {
        let t = floats(values);
        w.tensor(name, DType::F32, t.shape(), t.bytes().unwrap());
    };
    let original = rope["original_max_position_embeddings"].as_u64().map(|n| n as u32);
    match rope["rope_type"].as_str().unwrap() {
        "default" => {}
        "linear" => {
            w.key(&key("type"), WriteValue::Str("linear".into()));
            w.key(&key("factor"), WriteValue::F32(float("factor").unwrap()));
        }
        "yarn" => {
            w.key(&key("type"), WriteValue::Str("yarn".into()));
            w.key(&key("factor"), WriteValue::F32(float("factor").unwrap()));
            w.key(&key("original_context_length"), WriteValue::U32(original.unwrap()));
            for (k, field) in [
                ("yarn_attn_factor", "attention_factor"),
                ("yarn_beta_fast", "beta_fast"),
                ("yarn_beta_slow", "beta_slow"),
            ] {
                if let Some(x) = float(field) {
                    w.key(&key(k), WriteValue::F32(x));
                }
            }
        }
        "llama3" => {
            let number = |k: &str| rope[k].as_f64().unwrap();
            let (factor, low, high) = (number("factor"), number("low_freq_factor"), number("high_freq_factor"));
            let (theta, original) = (number("rope_theta"), f64::from(original.unwrap()));
            let factors = (0..rope_dim / 2).map(|i| {
                let frequency = theta.powf(2.0 * f64::from(i) / f64::from(rope_dim)).recip();
                let wavelength = 2.0 * std::f64::consts::PI / frequency;
                let factor = if wavelength < original / high {
                    1.0
                } else if wavelength > original / low {
                    factor
                } else {
                    let smooth = (original / wavelength - low) / (high - low);
                    1.0 / ((1.0 - smooth) / factor + smooth)
                };
                factor as f32
            });
            tensor(w, "rope_freqs.weight", factors.collect());
        }
        "longrope" => {
            w.key(&key("type"), WriteValue::Str("longrope".into()));
            let (max, original) = (config["max_position_embeddings"].as_f64().unwrap(), original.unwrap());
            let scale = max / f64::from(original);
            let factor = if scale > 1.0 {
                (1.0 + scale.ln() / f64::from(original).ln()).sqrt()
            } else {
                1.0
            };
            w.key(&key("original_context_length"), WriteValue::U32(original));
            w.key(&key("attn_factor"), WriteValue::F32(factor as f32));
            tensor(w, "rope_factors_long.weight", list("long_factor"));
            tensor(w, "rope_factors_short.weight", list("short_factor"));
        }
        other => panic!("rope scaling `{other}` has no form in GGUF files"),
    }
}
