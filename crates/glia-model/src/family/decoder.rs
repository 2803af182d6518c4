//! The one builder of decoder graphs: a [`DecoderSpec`] and the types of the weights in, a graph out.

use glia_core::{Binary, DType, Dim, Gate, Op, Rope, RopePairing, Sdpa, Unary, ValueType};
use glia_ir::{Graph, GraphBuilder, Vid};

use super::FamilyError;
use super::spec::{DecoderSpec, GateUpLayout, LayerSpec, QkvLayout, ResidualShape};

/// Knows the dtypes and shapes of weights by Hugging Face name.
pub trait WeightTypes {
    /// Dtype and shape as the graph will see them, or `None` when there is no such weight.
    fn weight_type(&self, name: &str) -> Option<ValueType>;
}

/// Name of the weight that holds the inverse frequencies of rotation `index` (generated, in no file).
pub fn rope_weight_name(index: usize, long: bool) -> String {
    format!("rope.{index}.{}", if long { "inv_freq_long" } else { "inv_freq" })
}

/// Most likeliest tokens that a graph with [`Taps::Choices`] returns.
pub const MAX_CHOICES: usize = 64;

/// Which outputs a graph declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taps {
    /// `logits` alone.
    Logits,
    /// Also `hidden.embed`, `hidden.layer_{i}` and `hidden.final`, to find where two runs part.
    Hidden,
    /// Also the likeliest tokens of each row, for devices from which logits are slow to bring: for `k` 1 and
    /// [`MAX_CHOICES`], `choices.{k}.logits` F32 and `choices.{k}.ids` I32 `[T, k]`, falling; and `choices.total` F32
    /// `[T, 1]`, the sum of all exponentials over that of the likeliest.
    Choices,
    /// The hidden states and no head, which models that embed texts do without.
    Headless,
}

/// Builds the graph: `input_ids` I32 `[T]` -> `logits` F32 `[T, vocab]`.
///
/// # Errors
/// [`FamilyError`] naming the first weight that is missing or has another shape.
pub fn build(spec: &DecoderSpec, weights: &dyn WeightTypes, taps: Taps) -> Result<Graph, FamilyError> {
    let mut b = Builder {
        g: GraphBuilder::new(spec.family),
        spec,
        weights,
        ropes: Vec::new(),
    };
    let ids = b.g.input("input_ids", ValueType::new(DType::I32, [Dim::T]))?;
    let positions = b.g.positions();
    for (index, rope) in spec.ropes.iter().enumerate() {
        let ty = ValueType::fixed(DType::F32, &[rope.inv_freq.len()]);
        let mut tables = vec![b.g.weight(&rope_weight_name(index, false), ty.clone())?];
        if rope.long.is_some() {
            tables.push(b.g.weight(&rope_weight_name(index, true), ty)?);
        }
        b.ropes.push(tables);
    }
    let table = b.weight("model.embed_tokens.weight", &[spec.vocab, spec.hidden])?;
    let mut h = b.node("embed", Op::TokenEmbed, &[ids, table])?;
    if let Some(factor) = spec.embed_scale {
        h = b.node("embed_scale", Op::Scale { factor }, &[h])?;
    }
    b.tap(taps, "hidden.embed", h)?;
    for index in 0..spec.n_layers {
        let layer = spec.layers.layer(index).ok_or_else(|| FamilyError::Config {
            field: "layer_types".to_owned(),
            reason: format!("has no entry for layer {index} of {}", spec.n_layers),
        })?;
        h = b.layer(index, layer, h, positions)?;
        b.tap(taps, &format!("hidden.layer_{index}"), h)?;
    }
    let h = b.norm("norm", "model.norm.weight", spec.hidden, h)?;
    b.tap(taps, "hidden.final", h)?;
    if taps == Taps::Headless {
        return Ok(b.g.finish()?);
    }
    let head = if spec.tied {
        table
    } else {
        b.weight("lm_head.weight", &[spec.vocab, spec.hidden])?
    };
    let mut logits = b.node("lm_head", Op::MatMul, &[h, head])?;
    if let Some(cap) = spec.final_softcap {
        logits = b.node("softcap.in", Op::Scale { factor: 1.0 / cap }, &[logits])?;
        logits = b.node("softcap.tanh", Op::Unary(Unary::Tanh), &[logits])?;
        logits = b.node("softcap.out", Op::Scale { factor: cap }, &[logits])?;
    }
    b.g.output("logits", logits)?;
    if taps == Taps::Choices {
        b.choices(logits)?;
    }
    Ok(b.g.finish()?)
}

/// The numbers of likeliest tokens that a vocabulary of this size has choices of.
pub fn choice_counts(vocab: usize) -> [usize; 2] {
    [1, MAX_CHOICES.min(vocab)]
}

struct Builder<'a> {
    g: GraphBuilder,
    spec: &'a DecoderSpec,
    weights: &'a dyn WeightTypes,
    ropes: Vec<Vec<Vid>>,
}

impl Builder<'_> {
    fn node(&mut self, name: &str, op: Op, inputs: &[Vid]) -> Result<Vid, FamilyError> {
        Ok(self.g.node(name, op, inputs)?[0])
    }

    /// The outputs of [`Taps::Choices`].
    fn choices(&mut self, logits: Vid) -> Result<(), FamilyError> {
        let [one, many] = choice_counts(self.spec.vocab);
        let best = self.g.node("choices.1", Op::TopK { k: one }, &[logits])?;
        self.g.output("choices.1.logits", best[0])?;
        self.g.output("choices.1.ids", best[1])?;
        if many > 1 {
            let top = self.g.node("choices.many", Op::TopK { k: many }, &[logits])?;
            self.g.output(&format!("choices.{many}.logits"), top[0])?;
            self.g.output(&format!("choices.{many}.ids"), top[1])?;
        }
        let below = self.node("choices.below", Op::Binary(Binary::Sub), &[logits, best[0]])?;
        let share = self.node("choices.share", Op::Unary(Unary::Exp), &[below])?;
        let total = self.node("choices.total", Op::Sum { axis: 1, keep: true }, &[share])?;
        Ok(self.g.output("choices.total", total)?)
    }

    fn tap(&mut self, taps: Taps, name: &str, value: Vid) -> Result<(), FamilyError> {
        match taps {
            Taps::Logits | Taps::Choices => Ok(()),
            Taps::Hidden | Taps::Headless => Ok(self.g.output(name, value)?),
        }
    }

    fn weight(&mut self, name: &str, shape: &[usize]) -> Result<Vid, FamilyError> {
        let ty = self
            .weights
            .weight_type(name)
            .ok_or_else(|| FamilyError::MissingWeight { name: name.to_owned() })?;
        let expected = ValueType::fixed(ty.dtype, shape);
        if ty != expected {
            return Err(FamilyError::WeightShape {
                name: name.to_owned(),
                expected: expected.to_string(),
                got: ty.to_string(),
            });
        }
        Ok(self.g.weight(name, ty)?)
    }

    fn linear(&mut self, at: &str, x: Vid, shape: [usize; 2], bias: bool) -> Result<Vid, FamilyError> {
        let mut inputs = vec![x, self.weight(&format!("model.{at}.weight"), &shape)?];
        if bias {
            inputs.push(self.weight(&format!("model.{at}.bias"), &shape[..1])?);
        }
        self.node(at, Op::MatMul, &inputs)
    }

    fn norm(&mut self, name: &str, weight: &str, width: usize, x: Vid) -> Result<Vid, FamilyError> {
        let gain = self.weight(weight, &[width])?;
        let op = Op::RmsNorm {
            eps: self.spec.norm.eps,
            plus_one: self.spec.norm.plus_one,
        };
        self.node(name, op, &[x, gain])
    }

    fn layer_norm(&mut self, at: &str, which: &str, x: Vid) -> Result<Vid, FamilyError> {
        self.norm(
            &format!("{at}.{which}"),
            &format!("model.{at}.{which}.weight"),
            self.spec.hidden,
            x,
        )
    }

    fn layer(&mut self, index: usize, layer: LayerSpec, h: Vid, positions: Vid) -> Result<Vid, FamilyError> {
        let at = format!("layers.{index}");
        let sandwich = self.spec.residual == ResidualShape::Sandwich;
        let x = self.layer_norm(&at, "input_layernorm", h)?;
        let mut x = self.attention(&at, layer, x, positions)?;
        if sandwich {
            x = self.layer_norm(&at, "post_attention_layernorm", x)?;
        }
        let h = self.node(&format!("{at}.attn_residual"), Op::Binary(Binary::Add), &[h, x])?;
        let before_mlp = if sandwich {
            "pre_feedforward_layernorm"
        } else {
            "post_attention_layernorm"
        };
        let x = self.layer_norm(&at, before_mlp, h)?;
        let mut x = self.mlp(&at, x)?;
        if sandwich {
            x = self.layer_norm(&at, "post_feedforward_layernorm", x)?;
        }
        self.node(&format!("{at}.mlp_residual"), Op::Binary(Binary::Add), &[h, x])
    }

    fn heads(&mut self, name: &str, x: Vid, n_heads: usize) -> Result<Vid, FamilyError> {
        let dims = vec![-1, n_heads as i64, self.spec.head_dim as i64];
        self.node(name, Op::Reshape { dims }, &[x])
    }

    fn rotate(&mut self, name: &str, x: Vid, rope: Option<usize>, positions: Vid) -> Result<Vid, FamilyError> {
        let Some(index) = rope else { return Ok(x) };
        let table = &self.spec.ropes[index];
        let long_from = table.long.as_ref().map(|(_, n)| *n);
        let op = Op::Rope(Rope {
            pairing: RopePairing::NeoX,
            scale: table.scale,
            long_from,
        });
        let mut inputs = vec![x, positions];
        inputs.extend(&self.ropes[index]);
        self.node(name, op, &inputs)
    }

    fn attention(&mut self, at: &str, layer: LayerSpec, x: Vid, positions: Vid) -> Result<Vid, FamilyError> {
        let spec = self.spec;
        let at = format!("{at}.self_attn");
        let (nq, nkv) = (spec.n_heads * spec.head_dim, spec.n_kv_heads * spec.head_dim);
        let [q, k, v] = match spec.qkv {
            QkvLayout::Separate => [
                self.linear(&format!("{at}.q_proj"), x, [nq, spec.hidden], spec.qkv_bias)?,
                self.linear(&format!("{at}.k_proj"), x, [nkv, spec.hidden], spec.qkv_bias)?,
                self.linear(&format!("{at}.v_proj"), x, [nkv, spec.hidden], spec.qkv_bias)?,
            ],
            QkvLayout::Fused => {
                let qkv = self.linear(&format!("{at}.qkv_proj"), x, [nq + 2 * nkv, spec.hidden], spec.qkv_bias)?;
                let split = Op::Split {
                    axis: 1,
                    sizes: vec![nq, nkv, nkv],
                };
                let parts = self.g.node(&format!("{at}.qkv_split"), split, &[qkv])?;
                [parts[0], parts[1], parts[2]]
            }
        };
        let mut q = self.heads(&format!("{at}.q"), q, spec.n_heads)?;
        let mut k = self.heads(&format!("{at}.k"), k, spec.n_kv_heads)?;
        let v = self.heads(&format!("{at}.v"), v, spec.n_kv_heads)?;
        if spec.qk_norm {
            q = self.norm(
                &format!("{at}.q_norm"),
                &format!("model.{at}.q_norm.weight"),
                spec.head_dim,
                q,
            )?;
            k = self.norm(
                &format!("{at}.k_norm"),
                &format!("model.{at}.k_norm.weight"),
                spec.head_dim,
                k,
            )?;
        }
        let q = self.rotate(&format!("{at}.q_rope"), q, layer.rope, positions)?;
        let k = self.rotate(&format!("{at}.k_rope"), k, layer.rope, positions)?;
        let cached = self.g.node(&format!("{at}.cache"), Op::KvCache, &[k, v])?;
        let sdpa = Op::Sdpa(Sdpa {
            scale: spec.attn_scale,
            causal: true,
            window: layer.window,
            softcap: spec.attn_softcap,
            mask: false,
            sinks: false,
        });
        let o = self.node(&format!("{at}.sdpa"), sdpa, &[q, cached[0], cached[1]])?;
        let o = self.node(
            &format!("{at}.o"),
            Op::Reshape {
                dims: vec![-1, nq as i64],
            },
            &[o],
        )?;
        self.linear(&format!("{at}.o_proj"), o, [spec.hidden, nq], spec.o_bias)
    }

    fn mlp(&mut self, at: &str, x: Vid) -> Result<Vid, FamilyError> {
        let spec = self.spec;
        let at = format!("{at}.mlp");
        let (hidden, inner) = (spec.hidden, spec.intermediate);
        let [gate, up] = match spec.gate_up {
            GateUpLayout::Separate => [
                self.linear(&format!("{at}.gate_proj"), x, [inner, hidden], spec.mlp_bias)?,
                self.linear(&format!("{at}.up_proj"), x, [inner, hidden], spec.mlp_bias)?,
            ],
            GateUpLayout::Fused => {
                let both = self.linear(&format!("{at}.gate_up_proj"), x, [2 * inner, hidden], spec.mlp_bias)?;
                let split = Op::Split {
                    axis: 1,
                    sizes: vec![inner, inner],
                };
                let parts = self.g.node(&format!("{at}.gate_up_split"), split, &[both])?;
                [parts[0], parts[1]]
            }
        };
        let act: Gate = spec.gate;
        let x = self.node(&format!("{at}.act"), Op::Gated(act), &[gate, up])?;
        self.linear(&format!("{at}.down_proj"), x, [hidden, inner], spec.mlp_bias)
    }
}
