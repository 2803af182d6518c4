//! Families by their Hugging Face configuration: each is a short description of how it differs from Llama.

use glia_core::Gate;
use serde_json::{Map, Value};

use super::FamilyError;
use super::fields::Fields;
use super::rope::{self, RopeScaling, RopeTable};
use super::spec::{DecoderSpec, GateUpLayout, LayerPattern, LayerSpec, NormSpec, QkvLayout, ResidualShape};

/// What a family changes of the common reading of a configuration.
struct Family {
    /// `model_type` values.
    model_types: &'static [&'static str],
    /// Fields that configurations of the family may leave out, as a JSON object.
    defaults: &'static str,
    adapt: fn(&mut DecoderSpec, &Fields<'_>) -> Result<(), FamilyError>,
}

/// Every family, in the order of the table in the README.
const FAMILIES: &[Family] = &[
    Family {
        model_types: &["llama"],
        defaults: r#"{"max_position_embeddings": 2048}"#,
        adapt: |_, _| Ok(()),
    },
    Family {
        model_types: &["mistral", "ministral"],
        defaults: r#"{"max_position_embeddings": 131072, "num_key_value_heads": 8, "sliding_window": 4096}"#,
        adapt: |_, _| Ok(()),
    },
    Family {
        model_types: &["qwen2"],
        defaults: r#"{"max_position_embeddings": 32768, "num_key_value_heads": 32, "sliding_window": 4096,
            "max_window_layers": 28}"#,
        adapt: |s, c| {
            s.qkv_bias = true;
            window_on_request(s, c)
        },
    },
    Family {
        model_types: &["qwen3"],
        defaults: r#"{"max_position_embeddings": 32768, "num_key_value_heads": 32, "head_dim": 128,
            "sliding_window": 4096, "max_window_layers": 28}"#,
        adapt: |s, c| {
            s.qk_norm = true;
            window_on_request(s, c)
        },
    },
    Family {
        model_types: &["gemma"],
        defaults: r#"{"max_position_embeddings": 8192, "num_attention_heads": 16, "num_key_value_heads": 16,
            "head_dim": 256, "hidden_act": "gelu_pytorch_tanh"}"#,
        adapt: |s, _| {
            gemma(s);
            s.layers = LayerPattern::Uniform(FULL);
            Ok(())
        },
    },
    Family {
        model_types: &["gemma2"],
        defaults: r#"{"max_position_embeddings": 8192, "num_attention_heads": 8, "num_key_value_heads": 4,
            "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 256,
            "sliding_window": 4096, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}"#,
        adapt: |s, c| {
            gemma(s);
            sandwich(s, c)?;
            s.attn_softcap = positive(c, "attn_logit_softcapping")?;
            s.final_softcap = positive(c, "final_logit_softcapping")?;
            if c.get("layer_types").is_none() {
                s.layers = alternate(c, 2, 0)?;
            }
            Ok(())
        },
    },
    Family {
        model_types: &["gemma3_text", "gemma3"],
        defaults: r#"{"max_position_embeddings": 131072, "num_attention_heads": 8, "num_key_value_heads": 4,
            "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 256,
            "sliding_window": 4096, "sliding_window_pattern": 6, "rope_theta": 1000000.0, "vocab_size": 262208}"#,
        adapt: |s, c| {
            gemma(s);
            sandwich(s, c)?;
            s.qk_norm = true;
            s.attn_softcap = positive(c, "attn_logit_softcapping")?;
            s.final_softcap = positive(c, "final_logit_softcapping")?;
            let local = local_rope(c, s.head_dim)?;
            s.ropes.push(local);
            s.layers = match std::mem::replace(&mut s.layers, LayerPattern::Listed(Vec::new())) {
                LayerPattern::Listed(mut list) => {
                    for layer in list.iter_mut().filter(|l| l.window.is_some()) {
                        layer.rope = Some(1);
                    }
                    LayerPattern::Listed(list)
                }
                _ => alternate(c, c.size("sliding_window_pattern")?, 1)?,
            };
            Ok(())
        },
    },
    Family {
        model_types: &["phi3"],
        defaults: r#"{"max_position_embeddings": 4096, "rms_norm_eps": 1e-5}"#,
        adapt: |s, _| {
            s.qkv = QkvLayout::Fused;
            s.gate_up = GateUpLayout::Fused;
            Ok(())
        },
    },
];

/// A layer that sees everything before it.
const FULL: LayerSpec = LayerSpec {
    window: None,
    rope: Some(0),
};

/// Qwen: layers from `max_window_layers` on have the window, and only with `use_sliding_window`.
fn window_on_request(s: &mut DecoderSpec, c: &Fields<'_>) -> Result<(), FamilyError> {
    if c.get("layer_types").is_some() {
        return Ok(());
    }
    let window = c.opt_usize("sliding_window")?.filter(|&w| w > 0);
    let first = c.opt_usize("max_window_layers")?.unwrap_or(0);
    s.layers = match window {
        Some(_) if c.bool_or("use_sliding_window", false)? => LayerPattern::From {
            first,
            before: FULL,
            after: LayerSpec { window, ..FULL },
        },
        _ => LayerPattern::Uniform(FULL),
    };
    Ok(())
}

/// The `model_type` values that are built.
pub fn supported() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().flat_map(|f| f.model_types.iter().copied())
}

fn gemma(s: &mut DecoderSpec) {
    s.norm.plus_one = true;
    // Transformers rounds the factor to the dtype of the embeddings; in f32 that is the plain root.
    s.embed_scale = Some((s.hidden as f32).sqrt());
}

fn sandwich(s: &mut DecoderSpec, c: &Fields<'_>) -> Result<(), FamilyError> {
    s.residual = ResidualShape::Sandwich;
    if let Some(x) = positive(c, "query_pre_attn_scalar")? {
        s.attn_scale = (f64::from(x).powf(-0.5)) as f32;
    }
    Ok(())
}

fn positive(c: &Fields<'_>, key: &str) -> Result<Option<f32>, FamilyError> {
    match c.opt_f64(key)? {
        None => Ok(None),
        Some(x) if x.is_finite() && x > 0.0 => Ok(Some(x as f32)),
        Some(x) => Err(c.error(key, format!("must be above 0, not {x}"))),
    }
}

fn alternate(c: &Fields<'_>, period: usize, local_rope: usize) -> Result<LayerPattern, FamilyError> {
    if period == 1 {
        return Ok(LayerPattern::Uniform(FULL));
    }
    Ok(LayerPattern::Every {
        period,
        local: LayerSpec {
            window: Some(c.size("sliding_window")?),
            rope: Some(local_rope),
        },
        full: FULL,
    })
}

/// The specification of the decoder that a configuration describes.
///
/// # Errors
/// [`FamilyError::UnknownFamily`] naming the family and what is supported; [`FamilyError::Config`] naming the field.
pub fn spec(config: &Map<String, Value>) -> Result<DecoderSpec, FamilyError> {
    let c = Fields::new(config);
    let model_type = c
        .opt_str("model_type")?
        .ok_or_else(|| c.error("model_type", "is missing"))?;
    let Some((family, name)) = FAMILIES
        .iter()
        .find_map(|f| f.model_types.iter().find(|t| **t == model_type).map(|t| (f, *t)))
    else {
        let supported = supported().collect::<Vec<_>>().join(", ");
        return Err(FamilyError::UnknownFamily {
            family: model_type.to_owned(),
            supported,
        });
    };
    // A multimodal Gemma 3 keeps its decoder's sizes one level down.
    let c = match c.opt_object("text_config")? {
        Some(text) if c.get("hidden_size").is_none() => text,
        _ => c,
    };
    let map = with_defaults(c.map, family.defaults);
    let c = Fields { map: &map, ..c };
    let mut spec = common(name, &c)?;
    (family.adapt)(&mut spec, &c)?;
    Ok(spec)
}

/// Fills in fields that are absent; null is a value of its own.
fn with_defaults(map: &Map<String, Value>, defaults: &str) -> Map<String, Value> {
    let mut filled = map.clone();
    // The defaults are constants of this file, which a test parses.
    if let Ok(Value::Object(defaults)) = serde_json::from_str(defaults) {
        for (key, value) in defaults {
            filled.entry(key).or_insert(value);
        }
    }
    filled
}

fn gate(c: &Fields<'_>) -> Result<Gate, FamilyError> {
    let key = if c.get("hidden_activation").is_some() {
        "hidden_activation"
    } else {
        "hidden_act"
    };
    match c.opt_str(key)? {
        None | Some("silu" | "swish") => Ok(Gate::Silu),
        Some("gelu_pytorch_tanh" | "gelu_new" | "gelu_fast") => Ok(Gate::GeluTanh),
        // Early Gemma configurations say `gelu` and mean the tanh form.
        Some("gelu") if c.opt_str("model_type")? == Some("gemma") => Ok(Gate::GeluTanh),
        Some("gelu") => Ok(Gate::Gelu),
        Some(other) => Err(c.error(
            key,
            format!("`{other}` is not supported (silu, gelu, gelu_pytorch_tanh)"),
        )),
    }
}

fn common(family: &'static str, c: &Fields<'_>) -> Result<DecoderSpec, FamilyError> {
    let (hidden, n_heads) = (c.size("hidden_size")?, c.size("num_attention_heads")?);
    let n_kv_heads = c.opt_usize("num_key_value_heads")?.unwrap_or(n_heads);
    if n_kv_heads == 0 || !n_heads.is_multiple_of(n_kv_heads) {
        return Err(c.error(
            "num_key_value_heads",
            format!("{n_kv_heads} must divide the {n_heads} attention heads"),
        ));
    }
    let head_dim = match c.opt_usize("head_dim")? {
        Some(0) => return Err(c.error("head_dim", "must be at least 1")),
        Some(d) => d,
        None if hidden.is_multiple_of(n_heads) => hidden / n_heads,
        None => return Err(c.error("hidden_size", format!("{hidden} is no multiple of {n_heads} heads"))),
    };
    let eps = c.opt_f64("rms_norm_eps")?.unwrap_or(1e-6);
    if !(eps.is_finite() && eps >= 0.0) {
        return Err(c.error("rms_norm_eps", format!("must not be negative, not {eps}")));
    }
    let max_positions = c.opt_usize("max_position_embeddings")?.unwrap_or(4096).max(1);
    let attention_bias = c.bool_or("attention_bias", false)?;
    let full = rope_fields(c, "full_attention")?;
    let rope = rope_table(c, &full, head_dim, max_positions)?;
    let window = c.opt_usize("sliding_window")?.filter(|&w| w > 0);
    let layers = match c.opt_list("layer_types")? {
        None => LayerPattern::Uniform(LayerSpec { window, rope: Some(0) }),
        Some(list) => LayerPattern::Listed(list.iter().map(|v| layer(c, v, window)).collect::<Result<_, _>>()?),
    };
    let tied_default = family.starts_with("gemma");
    Ok(DecoderSpec {
        family,
        n_layers: c.size("num_hidden_layers")?,
        hidden,
        n_heads,
        n_kv_heads,
        head_dim,
        intermediate: c.size("intermediate_size")?,
        vocab: c.size("vocab_size")?,
        max_positions,
        norm: NormSpec {
            eps: eps as f32,
            plus_one: false,
        },
        residual: ResidualShape::PreNorm,
        qkv_bias: attention_bias,
        o_bias: c.bool_or("attention_out_bias", attention_bias)?,
        mlp_bias: c.bool_or("mlp_bias", false)?,
        qk_norm: false,
        qkv: QkvLayout::Separate,
        gate_up: GateUpLayout::Separate,
        gate: gate(c)?,
        embed_scale: None,
        attn_scale: (head_dim as f32).powf(-0.5),
        attn_softcap: None,
        final_softcap: None,
        tied: c.bool_or("tie_word_embeddings", tied_default)?,
        ropes: vec![rope],
        layers,
    })
}

fn layer(c: &Fields<'_>, kind: &Value, window: Option<usize>) -> Result<LayerSpec, FamilyError> {
    match kind.as_str() {
        Some("full_attention") => Ok(FULL),
        Some("sliding_attention") if window.is_some() => Ok(LayerSpec { window, rope: Some(0) }),
        Some("sliding_attention") => Err(c.error("sliding_window", "is missing, but layer_types has sliding layers")),
        _ => Err(c.error(
            "layer_types",
            format!("{kind} is not supported (full_attention, sliding_attention)"),
        )),
    }
}

/// The rotation's parameters: `rope_parameters` (Transformers 5, also one object per layer type) or `rope_scaling`.
fn rope_fields<'a>(c: &Fields<'a>, layer_type: &'a str) -> Result<Option<Fields<'a>>, FamilyError> {
    if let Some(parameters) = c.opt_object("rope_parameters")? {
        return match parameters.opt_object(layer_type)? {
            Some(inner) => Ok(Some(inner)),
            None => Ok(Some(parameters)),
        };
    }
    c.opt_object("rope_scaling")
}

fn local_rope(c: &Fields<'_>, head_dim: usize) -> Result<RopeTable, FamilyError> {
    let nested = match c.opt_object("rope_parameters")? {
        Some(parameters) => parameters.opt_object("sliding_attention")?,
        None => None,
    };
    let theta = match nested {
        Some(inner) => inner.opt_f64("rope_theta")?,
        None => c.opt_f64("rope_local_base_freq")?,
    };
    Ok(rope::table(theta.unwrap_or(10_000.0), head_dim, &RopeScaling::Default)?)
}

fn rope_table(
    c: &Fields<'_>,
    fields: &Option<Fields<'_>>,
    head_dim: usize,
    max_positions: usize,
) -> Result<RopeTable, FamilyError> {
    let own = |key: &str| fields.as_ref().map_or(Ok(None), |f| f.opt_f64(key));
    let theta = own("rope_theta")?.or(c.opt_f64("rope_theta")?).unwrap_or(10_000.0);
    let partial = own("partial_rotary_factor")?
        .or(c.opt_f64("partial_rotary_factor")?)
        .unwrap_or(1.0);
    if !(partial > 0.0 && partial <= 1.0) {
        return Err(c.error(
            "partial_rotary_factor",
            format!("must be above 0 and at most 1, not {partial}"),
        ));
    }
    // A quotient that was written down in decimals must not lose its last element.
    let rot = (head_dim as f64 * partial + 1e-6) as usize;
    let Some(f) = fields else {
        return Ok(rope::table(theta, rot, &RopeScaling::Default)?);
    };
    let original = f
        .opt_f64("original_max_position_embeddings")?
        .or(c.opt_f64("original_max_position_embeddings")?);
    let kind = f.opt_str("rope_type")?.or(f.opt_str("type")?).unwrap_or("default");
    let scaling = match kind {
        "default" | "mrope" => RopeScaling::Default,
        "linear" => RopeScaling::Linear {
            factor: f.f64("factor")?,
        },
        "dynamic" => RopeScaling::Dynamic {
            factor: f.f64("factor")?,
            original_max: original.map_or(max_positions, |n| n as usize),
        },
        "llama3" => RopeScaling::Llama3 {
            factor: f.f64("factor")?,
            low_freq_factor: f.f64("low_freq_factor")?,
            high_freq_factor: f.f64("high_freq_factor")?,
            original_max: original.unwrap_or(max_positions as f64),
        },
        "yarn" => RopeScaling::Yarn {
            factor: f.f64("factor")?,
            attention_factor: f.opt_f64("attention_factor")?,
            beta_fast: f.opt_f64("beta_fast")?.unwrap_or(32.0),
            beta_slow: f.opt_f64("beta_slow")?.unwrap_or(1.0),
            mscale: f
                .opt_f64("mscale")?
                .zip(f.opt_f64("mscale_all_dim")?)
                .filter(|&(m, all)| m != 0.0 && all != 0.0),
            original_max: original.unwrap_or(max_positions as f64),
            truncate: f.bool_or("truncate", true)?,
        },
        "longrope" | "su" => {
            let original = original.unwrap_or(max_positions as f64);
            if !(original.is_finite() && original >= 1.0) {
                return Err(f.error(
                    "original_max_position_embeddings",
                    format!("must be at least 1, not {original}"),
                ));
            }
            RopeScaling::LongRope {
                short: f.numbers("short_factor")?,
                long: f.numbers("long_factor")?,
                factor: f.opt_f64("factor")?.unwrap_or(max_positions as f64 / original),
                attention_factor: f.opt_f64("attention_factor")?,
                original_max: original as usize,
            }
        }
        "divisors" => RopeScaling::Divisors(f.numbers("divisors")?),
        other => return Err(f.error("rope_type", format!("`{other}` is not supported"))),
    };
    Ok(rope::table(theta, rot, &scaling)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_objects_and_do_not_replace_null() {
        for family in FAMILIES {
            let defaults: Value = serde_json::from_str(family.defaults).unwrap();
            assert!(defaults.is_object(), "{:?}", family.model_types);
        }
        let map = serde_json::json!({"sliding_window": null});
        let filled = with_defaults(map.as_object().unwrap(), r#"{"sliding_window": 4, "head_dim": 8}"#);
        assert_eq!(
            Value::Object(filled),
            serde_json::json!({"sliding_window": null, "head_dim": 8})
        );
    }

    #[test]
    fn windows_of_qwen_begin_at_a_layer() {
        let config = serde_json::json!({
            "model_type": "qwen2", "hidden_size": 8, "num_attention_heads": 2, "num_key_value_heads": 1,
            "num_hidden_layers": 4, "intermediate_size": 8, "vocab_size": 8,
            "use_sliding_window": true, "sliding_window": 3, "max_window_layers": 2,
        });
        let spec = spec(config.as_object().unwrap()).unwrap();
        let windows: Vec<_> = (0..4).map(|i| spec.layers.layer(i).unwrap().window).collect();
        assert_eq!(windows, [None, None, Some(3), Some(3)]);
    }
}
