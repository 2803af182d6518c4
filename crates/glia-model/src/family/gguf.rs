//! GGUF as the families see it: metadata becomes a Hugging Face configuration, tensor names and values become Hugging
//! Face's. Both mappings are data.

use serde_json::{Map, Value, json};

use super::spec::{DecoderSpec, GateUpLayout, QkvLayout, ResidualShape};
use super::{FamilyError, hf};

/// What the mapping needs of a GGUF file.
pub trait GgufView {
    /// A finite number of any type, or a list of equal ones; the error says what is there instead.
    fn number(&self, key: &str) -> Result<Option<f64>, String>;
    /// A text; the error says what is there instead.
    fn text(&self, key: &str) -> Result<Option<&str>, String>;
    /// The value as text, for messages.
    fn shown(&self, key: &str) -> String;
    /// Numbers or booleans of an array, at most `limit`.
    fn list(&self, key: &str, limit: usize) -> Option<Vec<f64>>;
    /// Shape of a tensor, outermost first.
    fn shape(&self, tensor: &str) -> Option<Vec<usize>>;
    /// Elements of a small f32 tensor (frequency factors).
    fn f32_values(&self, tensor: &str) -> Option<Vec<f32>>;
}

/// `general.architecture` and the `model_type` it stands for.
const ARCHITECTURES: &[(&str, &str)] = &[
    ("llama", "llama"),
    ("mistral", "mistral"),
    ("qwen2", "qwen2"),
    ("qwen3", "qwen3"),
    ("gemma", "gemma"),
    ("gemma2", "gemma2"),
    ("gemma3", "gemma3_text"),
    ("phi3", "phi3"),
];

/// Metadata key after the architecture's name, and the configuration field that it fills.
const SIZES: &[(&str, &str)] = &[
    ("block_count", "num_hidden_layers"),
    ("embedding_length", "hidden_size"),
    ("feed_forward_length", "intermediate_size"),
    ("attention.head_count", "num_attention_heads"),
    ("context_length", "max_position_embeddings"),
];

const NUMBERS: &[(&str, &str)] = &[
    ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
    ("attn_logit_softcapping", "attn_logit_softcapping"),
    ("final_logit_softcapping", "final_logit_softcapping"),
];

/// Metadata of one architecture, with errors that name the key.
struct Keys<'a> {
    gguf: &'a dyn GgufView,
    arch: &'a str,
}

impl Keys<'_> {
    fn error(&self, key: &str, reason: impl Into<String>) -> FamilyError {
        FamilyError::Config {
            field: key.to_owned(),
            reason: reason.into(),
        }
    }

    fn number(&self, key: &str) -> Result<Option<f64>, FamilyError> {
        let key = format!("{}.{key}", self.arch);
        self.gguf.number(&key).map_err(|reason| self.error(&key, reason))
    }

    fn text(&self, key: &str) -> Result<Option<&str>, FamilyError> {
        let key = format!("{}.{key}", self.arch);
        self.gguf.text(&key).map_err(|reason| self.error(&key, reason))
    }

    fn whole(&self, key: &str) -> Result<Option<u64>, FamilyError> {
        match self.number(key)? {
            None => Ok(None),
            Some(x) if x >= 0.0 && x.fract() == 0.0 && x < 9e15 => Ok(Some(x as u64)),
            Some(_) => {
                let key = format!("{}.{key}", self.arch);
                Err(self.error(
                    &key,
                    format!("must be a whole number below 2^53, not {}", self.gguf.shown(&key)),
                ))
            }
        }
    }

    fn need(&self, key: &str) -> Result<u64, FamilyError> {
        self.whole(key)?
            .ok_or_else(|| self.error(&format!("{}.{key}", self.arch), "is missing"))
    }
}

/// The specification of the decoder in this file.
///
/// # Errors
/// As [`config`] and [`hf::spec`], with the file's own keys.
pub fn spec(gguf: &dyn GgufView) -> Result<DecoderSpec, FamilyError> {
    let mut spec = hf::spec(&config(gguf)?).map_err(|error| in_keys(gguf, error))?;
    let has = |tensor: &str| gguf.shape(&format!("blk.0.{tensor}.weight")).is_some();
    // Parts of a fused matrix can be read on their own; separate ones are not joined.
    if spec.qkv == QkvLayout::Fused && has("attn_q") {
        spec.qkv = QkvLayout::Separate;
    }
    match (spec.gate_up, has("ffn_gate")) {
        (GateUpLayout::Fused, true) => spec.gate_up = GateUpLayout::Separate,
        (GateUpLayout::Separate, false) => {
            let rows = gguf.shape("blk.0.ffn_up.weight").and_then(|s| s.first().copied());
            if rows.is_some_and(|rows| Some(rows) == spec.intermediate.checked_mul(2)) {
                spec.gate_up = GateUpLayout::Fused;
            }
        }
        _ => {}
    }
    Ok(spec)
}

/// The configuration fields that have another name in the file than [`SIZES`] and [`NUMBERS`] say.
const FIELDS: &[(&str, &str)] = &[
    ("attention.key_length", "head_dim"),
    ("attention.head_count_kv", "num_key_value_heads"),
    ("rope.freq_base", "rope_theta"),
    ("rope.freq_base_swa", "rope_local_base_freq"),
    ("rope.dimension_count", "partial_rotary_factor"),
    ("attention.scale", "query_pre_attn_scalar"),
    ("attention.sliding_window", "sliding_window"),
    ("attention.sliding_window_pattern", "sliding_window_pattern"),
    ("attention.sliding_window_pattern", "layer_types"),
    ("rope.scaling.type", "rope_scaling.rope_type"),
    ("rope.scaling.factor", "rope_scaling.factor"),
    (
        "rope.scaling.original_context_length",
        "rope_scaling.original_max_position_embeddings",
    ),
];

/// The same error with the key of the file in place of the configuration's field.
fn in_keys(gguf: &dyn GgufView, error: FamilyError) -> FamilyError {
    let FamilyError::Config { field, reason } = error else {
        return error;
    };
    let arch = gguf.text("general.architecture").ok().flatten().unwrap_or("general");
    let mut known = SIZES.iter().chain(NUMBERS).chain(FIELDS);
    let field = match known.find(|(_, f)| *f == field) {
        Some((key, _)) => format!("{arch}.{key}"),
        None => field,
    };
    FamilyError::Config { field, reason }
}

/// The configuration that Transformers would have for this file.
///
/// # Errors
/// [`FamilyError::Config`] naming the key; [`FamilyError::UnknownFamily`].
pub fn config(gguf: &dyn GgufView) -> Result<Map<String, Value>, FamilyError> {
    let keys = Keys { gguf, arch: "general" };
    let arch = keys
        .text("architecture")?
        .ok_or_else(|| keys.error("general.architecture", "is missing"))?;
    let Some((_, model_type)) = ARCHITECTURES.iter().find(|(a, _)| *a == arch) else {
        let supported = ARCHITECTURES.iter().map(|(a, _)| *a).collect::<Vec<_>>().join(", ");
        return Err(FamilyError::UnknownFamily {
            family: arch.to_owned(),
            supported,
        });
    };
    let keys = Keys { gguf, arch };
    let mut config = Map::new();
    config.insert("model_type".to_owned(), json!(model_type));
    for (key, field) in SIZES {
        if let Some(n) = keys.whole(key)? {
            config.insert((*field).to_owned(), json!(n));
        }
    }
    for (key, field) in NUMBERS {
        if let Some(x) = keys.number(key)? {
            config.insert((*field).to_owned(), json!(x));
        }
    }
    let (hidden, n_heads) = (
        keys.need("embedding_length")?,
        keys.need("attention.head_count")?.max(1),
    );
    let head_dim = keys.whole("attention.key_length")?.unwrap_or(hidden / n_heads).max(1);
    config.insert("head_dim".to_owned(), json!(head_dim));
    if let Some(width) = keys.whole("attention.value_length")?
        && width != head_dim
    {
        let reason = format!("is {width}, which differs from the {head_dim} elements of a key: not supported");
        return Err(keys.error(&format!("{arch}.attention.value_length"), reason));
    }
    let n_kv_heads = keys.whole("attention.head_count_kv")?.unwrap_or(n_heads);
    config.insert("num_key_value_heads".to_owned(), json!(n_kv_heads));
    let theta = keys.number("rope.freq_base")?.unwrap_or(10_000.0);
    config.insert("rope_theta".to_owned(), json!(theta));
    if let Some(rot) = keys.whole("rope.dimension_count")?
        && rot != head_dim
    {
        if rot == 0 || rot % 2 == 1 || rot > head_dim {
            let reason = format!("must be an even number from 2 to the {head_dim} elements of a head, not {rot}");
            return Err(keys.error(&format!("{arch}.rope.dimension_count"), reason));
        }
        config.insert("partial_rotary_factor".to_owned(), json!(rot as f64 / head_dim as f64));
    }
    let Some(vocab) = gguf.shape("token_embd.weight").and_then(|s| s.first().copied()) else {
        return Err(FamilyError::MissingWeight {
            name: "token_embd.weight".to_owned(),
        });
    };
    config.insert("vocab_size".to_owned(), json!(vocab));
    config.insert(
        "tie_word_embeddings".to_owned(),
        json!(gguf.shape("output.weight").is_none()),
    );
    let has = |tensor: &str| gguf.shape(tensor).is_some();
    let has_bias = |tensor: &str| json!(has(tensor));
    let qkv_bias = has("blk.0.attn_q.bias") || has("blk.0.attn_qkv.bias");
    config.insert("attention_bias".to_owned(), json!(qkv_bias));
    config.insert("attention_out_bias".to_owned(), has_bias("blk.0.attn_output.bias"));
    config.insert("mlp_bias".to_owned(), has_bias("blk.0.ffn_up.bias"));
    let n_layers = keys.whole("block_count")?.unwrap_or(0);
    if arch.starts_with("gemma") {
        config.insert("hidden_activation".to_owned(), json!("gelu_pytorch_tanh"));
    }
    // Scores are multiplied with `scale`; Transformers keeps the number whose root divides them.
    if let Some(scale) = keys.number("attention.scale")?.filter(|s| *s > 0.0) {
        config.insert("query_pre_attn_scalar".to_owned(), json!(scale.powi(-2)));
    } else if matches!(arch, "gemma2" | "gemma3") {
        // The 27B models scale by the width per head, all others by the head size; the files do not say so.
        let wide = (arch == "gemma2" && n_layers == 46) || (arch == "gemma3" && n_layers == 62);
        let scalar = if wide { hidden / n_heads } else { head_dim };
        config.insert("query_pre_attn_scalar".to_owned(), json!(scalar));
    }
    windows(&keys, &mut config)?;
    if let Some(theta) = keys.number("rope.freq_base_swa")? {
        config.insert("rope_local_base_freq".to_owned(), json!(theta));
    }
    if let Some(scaling) = scaling(&keys)? {
        config.insert("rope_scaling".to_owned(), scaling);
    }
    Ok(config)
}

fn scaling(keys: &Keys<'_>) -> Result<Option<Value>, FamilyError> {
    let (gguf, arch) = (keys.gguf, keys.arch);
    let number = |key: &str| keys.number(&format!("rope.scaling.{key}"));
    let original = number("original_context_length")?.or(keys.number("context_length")?);
    if let Some(divisors) = gguf.f32_values("rope_freqs.weight") {
        return Ok(Some(json!({ "rope_type": "divisors", "divisors": divisors })));
    }
    let tables = ("rope_factors_short.weight", "rope_factors_long.weight");
    if let (Some(short), Some(long)) = (gguf.f32_values(tables.0), gguf.f32_values(tables.1)) {
        return Ok(Some(json!({
            "rope_type": "longrope", "short_factor": short, "long_factor": long,
            "original_max_position_embeddings": original, "attention_factor": number("attn_factor")?,
        })));
    }
    // A factor without a kind is linear, as in the files of before there were kinds.
    let kind = keys.text("rope.scaling.type")?.unwrap_or("linear");
    let factor = number("factor")?.or(keys.number("rope.scale_linear")?);
    if let Some(factor) = factor.filter(|f| *f < 0.0) {
        return Err(keys.error(
            &format!("{arch}.rope.scaling.factor"),
            format!("must not be negative, not {factor}"),
        ));
    }
    // Zero is how some files say that there is none.
    match (kind, factor.filter(|f| *f > 0.0)) {
        ("linear", Some(factor)) => Ok(Some(json!({ "rope_type": "linear", "factor": factor }))),
        ("yarn", Some(factor)) => {
            let mut scaling = json!({
                "rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original,
                // One key holds the factor itself, an older one what it is to be multiplied with.
                "attention_factor": number("yarn_attn_factor")?
                    .or(number("attn_factor")?.map(|a| a * (0.1 * factor.ln() + 1.0))),
                "beta_fast": number("yarn_beta_fast")?, "beta_slow": number("yarn_beta_slow")?,
            });
            if let Some(all) = number("yarn_log_multiplier")?.filter(|m| *m != 0.0) {
                scaling["mscale"] = json!(1.0);
                scaling["mscale_all_dim"] = json!(all);
            }
            Ok(Some(scaling))
        }
        ("none" | "linear" | "yarn", _) => Ok(None),
        (other, _) => Err(FamilyError::Config {
            field: format!("{arch}.rope.scaling.type"),
            reason: match other {
                "longrope" => format!(
                    "is `longrope`, but the file lacks its tables, {} and {}",
                    tables.0, tables.1
                ),
                _ => format!("`{other}` is not supported (none, linear, yarn, longrope)"),
            },
        }),
    }
}

/// Windows of the layers: one number, and where they differ a period or a flag per layer.
fn windows(keys: &Keys<'_>, config: &mut Map<String, Value>) -> Result<(), FamilyError> {
    let (gguf, arch) = (keys.gguf, keys.arch);
    let window = keys.whole("attention.sliding_window")?;
    let window = window.filter(|&w| w > 0);
    if arch == "gemma2" && window.is_none() {
        // The family's default holds.
        return Ok(());
    }
    config.insert("sliding_window".to_owned(), json!(window));
    let key = format!("{arch}.attention.sliding_window_pattern");
    let n_layers = config.get("num_hidden_layers").and_then(Value::as_u64).unwrap_or(0);
    if window.is_none() {
        if arch == "gemma3" {
            config.insert("sliding_window_pattern".to_owned(), json!(1));
        }
        return Ok(());
    }
    let kind = |local: bool| if local { "sliding_attention" } else { "full_attention" };
    if let Some(flags) = gguf.list(&key, n_layers as usize) {
        let kinds: Vec<&str> = flags.iter().map(|&flag| kind(flag != 0.0)).collect();
        config.insert("layer_types".to_owned(), json!(kinds));
    } else if let Some(period) = keys.number("attention.sliding_window_pattern")? {
        if period.fract() != 0.0 || !(0.0..=1e6).contains(&period) {
            return Err(keys.error(&key, format!("must be a number of layers, not {period}")));
        }
        config.insert("sliding_window_pattern".to_owned(), json!(period as u64));
    }
    Ok(())
}

/// What was done to a tensor's values when the file was written, and is undone when it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transform {
    /// Nothing.
    None,
    /// Gains stored with one added (Gemma).
    MinusOne,
    /// Rows of each head reordered so that rotated pairs lie side by side (Llama's q and k).
    UnpermuteRows {
        /// Heads that the rows belong to.
        n_heads: usize,
    },
}

const LAYER_NAMES: &[(&str, &str)] = &[
    ("input_layernorm", "attn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.qkv_proj", "attn_qkv"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.gate_up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

/// The GGUF tensor behind a Hugging Face weight name, and what to undo.
pub fn tensor_name(spec: &DecoderSpec, arch: &str, hf: &str) -> Option<(String, Transform)> {
    let gemma = arch.starts_with("gemma");
    let norm = if gemma { Transform::MinusOne } else { Transform::None };
    match hf {
        "model.embed_tokens.weight" => return Some(("token_embd.weight".to_owned(), Transform::None)),
        "model.norm.weight" => return Some(("output_norm.weight".to_owned(), norm)),
        "lm_head.weight" => return Some(("output.weight".to_owned(), Transform::None)),
        _ => {}
    }
    let (index, rest) = hf.strip_prefix("model.layers.")?.split_once('.')?;
    let (part, suffix) = rest.rsplit_once('.')?;
    let sandwich = spec.residual == ResidualShape::Sandwich;
    let short = match part {
        "post_attention_layernorm" if sandwich => "post_attention_norm",
        "post_attention_layernorm" => "ffn_norm",
        _ => LAYER_NAMES.iter().find(|(name, _)| *name == part)?.1,
    };
    let transform = match part {
        "self_attn.q_proj" if matches!(arch, "llama" | "mistral") => Transform::UnpermuteRows { n_heads: spec.n_heads },
        "self_attn.k_proj" if matches!(arch, "llama" | "mistral") => Transform::UnpermuteRows {
            n_heads: spec.n_kv_heads,
        },
        _ if part.ends_with("norm") => norm,
        _ => Transform::None,
    };
    Some((format!("blk.{index}.{short}.{suffix}"), transform))
}
