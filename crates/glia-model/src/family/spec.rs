//! What distinguishes one decoder family from another, as data: the builder reads nothing else.

use glia_core::Gate;

use super::rope::RopeTable;

/// Normalisation of a decoder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NormSpec {
    /// Added inside the root.
    pub eps: f32,
    /// Whether the file's gain has one to be added (Gemma).
    pub plus_one: bool,
}

/// Where a block's normalisations sit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResidualShape {
    /// `x + f(norm(x))`: Llama and most others.
    PreNorm,
    /// `x + norm(f(norm(x)))`: Gemma 2 and 3.
    Sandwich,
}

/// How the projections to query, key and value are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QkvLayout {
    /// `q_proj`, `k_proj`, `v_proj`.
    Separate,
    /// One `qkv_proj`: rows of q, then k, then v (Phi-3).
    Fused,
}

/// How the projections of the gated MLP are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateUpLayout {
    /// `gate_proj`, `up_proj`.
    Separate,
    /// One `gate_up_proj`: rows of the gate, then of up (Phi-3).
    Fused,
}

/// What one layer does differently from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerSpec {
    /// Sliding window of the attention, in tokens.
    pub window: Option<usize>,
    /// Index into [`DecoderSpec::ropes`]; `None` is a layer without positions.
    pub rope: Option<usize>,
}

/// Which layers attend in a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LayerPattern {
    /// All layers alike.
    Uniform(LayerSpec),
    /// Layer `i` is `full` where `(i + 1) % period == 0`, else `local`.
    Every {
        /// Distance between full layers.
        period: usize,
        /// The layers between.
        local: LayerSpec,
        /// Every `period`-th layer.
        full: LayerSpec,
    },
    /// Layers below `first` are `before`, the others `after`.
    From {
        /// First layer of the second kind.
        first: usize,
        /// The layers below.
        before: LayerSpec,
        /// The layers from there on.
        after: LayerSpec,
    },
    /// One entry per layer, as the configuration lists them.
    Listed(Vec<LayerSpec>),
}

impl LayerPattern {
    /// The layer at an index.
    pub fn layer(&self, index: usize) -> Option<LayerSpec> {
        match self {
            LayerPattern::Uniform(spec) => Some(*spec),
            LayerPattern::Every { period, local, full } => Some(if (index + 1).is_multiple_of((*period).max(1)) {
                *full
            } else {
                *local
            }),
            LayerPattern::From { first, before, after } => Some(if index < *first { *before } else { *after }),
            LayerPattern::Listed(list) => list.get(index).copied(),
        }
    }
}

/// A decoder-only transformer. Sizes are elements; names of weights are Hugging Face's.
#[derive(Clone, Debug, PartialEq)]
pub struct DecoderSpec {
    /// Name of the family: `llama`, `gemma3`.
    pub family: &'static str,
    /// Number of layers.
    pub n_layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Query heads.
    pub n_heads: usize,
    /// Key/value heads.
    pub n_kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Width of the MLP.
    pub intermediate: usize,
    /// Rows of the embedding table.
    pub vocab: usize,
    /// Tokens that the model was trained on.
    pub max_positions: usize,
    /// Normalisation.
    pub norm: NormSpec,
    /// Places of the normalisations.
    pub residual: ResidualShape,
    /// Whether q, k and v have biases.
    pub qkv_bias: bool,
    /// Whether the output projection has a bias.
    pub o_bias: bool,
    /// Whether the MLP has biases.
    pub mlp_bias: bool,
    /// RMSNorm over each head of q and k, before the rotation.
    pub qk_norm: bool,
    /// Storage of q, k, v.
    pub qkv: QkvLayout,
    /// Storage of gate and up.
    pub gate_up: GateUpLayout,
    /// Activation of the gate.
    pub gate: Gate,
    /// Factor on the embeddings.
    pub embed_scale: Option<f32>,
    /// Factor on attention scores.
    pub attn_scale: f32,
    /// Soft-cap of attention scores.
    pub attn_softcap: Option<f32>,
    /// Soft-cap of the logits.
    pub final_softcap: Option<f32>,
    /// Whether the head is the embedding table.
    pub tied: bool,
    /// Rotations that layers refer to.
    pub ropes: Vec<RopeTable>,
    /// Windows and rotations by layer.
    pub layers: LayerPattern,
}
