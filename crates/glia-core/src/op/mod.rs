//! The op vocabulary: what a graph node can compute. Arity, names and state live here, shape rules in [`infer`].

mod cost;
mod decompose;
mod infer;
mod text;

pub use cost::{Cost, CostValue, Traffic};
pub use decompose::{Decomposition, Operand, Part};
pub use text::OpParseError;

use crate::{DType, ValueType};

/// Two-input elementwise arithmetic with NumPy broadcasting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // The names say it all.
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
}

/// One-input elementwise functions, shape and dtype kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unary {
    /// `x * sigmoid(x)`; zero at -inf, its limit.
    Silu,
    /// `x/2 * (1 + erf(x/√2))`; zero at -inf.
    Gelu,
    /// `x/2 * (1 + tanh(√(2/π) (x + 0.044715 x³)))`; zero at -inf.
    GeluTanh,
    /// `max(x, 0)`.
    Relu,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// Hyperbolic tangent.
    Tanh,
    /// `e^x`.
    Exp,
}

/// Activation of a gated linear unit: `act(gate) * up`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gate {
    /// SwiGLU (Shazeer 2020): SiLU.
    Silu,
    /// GeGLU with the erf form of GELU.
    Gelu,
    /// GeGLU with the tanh form of GELU.
    GeluTanh,
}

/// Which elements of a head form the rotated pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RopePairing {
    /// `(x[i], x[i + rot/2])`: GPT-NeoX, Llama as HF stores it.
    NeoX,
    /// `(x[2i], x[2i + 1])`: GPT-J, Llama as its authors stored it.
    Interleaved,
}

/// Rotary position embedding (Su et al. 2021).
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Pairing of elements.
    pub pairing: RopePairing,
    /// Factor on both cosine and sine (YaRN's and LongRoPE's attention factor); 1 for plain rotation.
    pub scale: f32,
    /// With a fourth input (a second frequency table): use it when the sequence, this step included, is longer than
    /// this many tokens (LongRoPE). The answer then depends on the length by definition.
    pub long_from: Option<usize>,
}

/// Scaled dot-product attention.
#[derive(Clone, Debug, PartialEq)]
pub struct Sdpa {
    /// Factor on `q kᵀ`.
    pub scale: f32,
    /// Query at absolute position `i` sees keys `j <= i`.
    pub causal: bool,
    /// Query at `i` sees keys with `i - j < window` only.
    pub window: Option<usize>,
    /// `cap * tanh(score / cap)` before the mask.
    pub softcap: Option<f32>,
    /// The first optional input is an additive mask `[Tq, Tk]` or `[H, Tq, Tk]`.
    pub mask: bool,
    /// The last optional input is one sink logit per head `[H]`: it takes part in the softmax's sum, has no value.
    pub sinks: bool,
}

/// How a state-carrying op keeps what it remembers: one mechanism for append, truncate, fork and rollback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StateKind {
    /// A row per token: append, truncate anywhere, forks share the past.
    Rows,
    /// The last `w` rows: rewinds as far as its slack.
    Window {
        /// Rows that must stay readable.
        w: usize,
    },
    /// A state of fixed size: rewinds to checkpoints only.
    Fixed,
    /// Written once, then only read: shared by forks, untouched by truncate.
    Static,
}

/// The state of one op: its kind and the type of one row (or of the whole, when fixed) of each part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateSpec {
    /// How it is kept.
    pub kind: StateKind,
    /// One per part: KV caches have two, keys then values. Row dimensions without the token dimension.
    pub parts: Vec<ValueType>,
}

/// What a graph node computes. Shapes use `T` tokens of the step and `P` past tokens of the sequence.
///
/// Every op is pure but for state-carrying ones ([`Op::state`]). Adding an op: `docs/adding-an-op.md`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Op {
    /// `y = x Wᵀ (+ bias)`: x `[.., k]`, W `[n, k]` of any float or quantised dtype, bias `[n]` -> `[.., n]`.
    /// With W of rank above 2, batched: `[.., m, k]` and `[.., n, k]` -> `[.., m, n]`, batch dimensions equal.
    MatMul,
    /// Elementwise arithmetic, broadcasting.
    Binary(Binary),
    /// Elementwise function.
    Unary(Unary),
    /// `x * factor`.
    Scale {
        /// The factor.
        factor: f32,
    },
    /// `min(max(x, min), max)`.
    Clamp {
        /// Lower bound, may be -inf.
        min: f32,
        /// Upper bound, may be +inf.
        max: f32,
    },
    /// `act(gate) * up`: gate, up of one shape.
    Gated(Gate),
    /// `x / sqrt(mean(x²) + eps) * g` over the last dimension (Zhang & Sennrich 2019): x `[.., d]`, gain `[d]`
    /// (optional). `plus_one`: the gain is `1 + g`, as Gemma stores it.
    RmsNorm {
        /// Added inside the root.
        eps: f32,
        /// Whether the gain is `1 + g`.
        plus_one: bool,
    },
    /// `(x - mean) / sqrt(var + eps) * g + b` over the last dimension; gain `[d]` and bias `[d]` optional, in order.
    LayerNorm {
        /// Added inside the root.
        eps: f32,
    },
    /// Softmax along `axis`.
    Softmax {
        /// Dimension that sums to one.
        axis: usize,
    },
    /// Rows of a table: ids `[T]` integer, table `[V, E]` of any dtype -> `[T, E]` F32.
    TokenEmbed,
    /// x `[T, H, D]`, positions `[T]` integer, inverse frequencies `[rot/2]` (every scaling is in this table), and
    /// the long table when `long_from` is set. Elements from `rot` on pass through.
    Rope(Rope),
    /// q `[Tq, H, D]`, k `[Tk, Hkv, D]`, v `[Tk, Hkv, Dv]`, optional mask, optional sinks -> `[Tq, H, Dv]`. Query `i`
    /// is at absolute position `i + Tk - Tq`; head `h` reads K/V head `h / (H / Hkv)`.
    Sdpa(Sdpa),
    /// State of kind `Rows`: k_new `[T, ..]`, v_new `[T, ..]` -> all rows so far, `[P+T, ..]` each, old first.
    KvCache,
    /// Zero-copy view; one dimension may be -1 and is inferred.
    Reshape {
        /// New dimensions.
        dims: Vec<i64>,
    },
    /// Exchanges two dimensions.
    Transpose {
        /// First.
        a: usize,
        /// Second.
        b: usize,
    },
    /// Output dimension `i` is input dimension `perm[i]`.
    Permute {
        /// A permutation of the dimensions.
        perm: Vec<usize>,
    },
    /// Elements `start..end` of `axis`; `end` `None` is the end.
    Slice {
        /// Dimension to cut.
        axis: usize,
        /// First element kept.
        start: usize,
        /// First element not kept.
        end: Option<usize>,
    },
    /// Joins one or more inputs along `axis`.
    Concat {
        /// Dimension to join.
        axis: usize,
    },
    /// Cuts `axis` into pieces of these sizes, one output each.
    Split {
        /// Dimension to cut.
        axis: usize,
        /// Sizes; their sum is the dimension.
        sizes: Vec<usize>,
    },
    /// x `[..a, n, ..b]`, indices integer `[m]` -> `[..a, m, ..b]` along `axis`.
    Gather {
        /// Dimension to pick from.
        axis: usize,
    },
    /// Every element along `axis` `n` times: `[a, b] -> [a, a, b, b]`, as K/V heads are repeated for GQA.
    Repeat {
        /// Dimension to repeat.
        axis: usize,
        /// How often.
        n: usize,
    },
    /// Conversion to another plain dtype (or from a quantised one), rounding to nearest even, saturating to integers.
    Cast {
        /// Dtype of the output.
        to: DType,
    },
    /// Index of the largest element along `axis` (lowest index on ties) as I32, `axis` dropped.
    Argmax {
        /// Dimension to search.
        axis: usize,
    },
    /// The `k` largest of the last dimension, falling, lowest index first on ties -> values, indices I32.
    TopK {
        /// How many.
        k: usize,
    },
    /// Sum along `axis`, which is dropped unless `keep`.
    Sum {
        /// Dimension to add up.
        axis: usize,
        /// Keep it with size 1.
        keep: bool,
    },
    /// Mean along `axis`, which is dropped unless `keep`.
    Mean {
        /// Dimension to average.
        axis: usize,
        /// Keep it with size 1.
        keep: bool,
    },
}

impl Op {
    /// Name of the kind, in snake case: `matmul`, `rms_norm`, `silu`.
    pub fn kind(&self) -> &'static str {
        match self {
            Op::MatMul => "matmul",
            Op::Binary(Binary::Add) => "add",
            Op::Binary(Binary::Sub) => "sub",
            Op::Binary(Binary::Mul) => "mul",
            Op::Binary(Binary::Div) => "div",
            Op::Unary(Unary::Silu) => "silu",
            Op::Unary(Unary::Gelu) => "gelu",
            Op::Unary(Unary::GeluTanh) => "gelu_tanh",
            Op::Unary(Unary::Relu) => "relu",
            Op::Unary(Unary::Sigmoid) => "sigmoid",
            Op::Unary(Unary::Tanh) => "tanh",
            Op::Unary(Unary::Exp) => "exp",
            Op::Scale { .. } => "scale",
            Op::Clamp { .. } => "clamp",
            Op::Gated(Gate::Silu) => "swiglu",
            Op::Gated(Gate::Gelu) => "geglu",
            Op::Gated(Gate::GeluTanh) => "geglu_tanh",
            Op::RmsNorm { .. } => "rms_norm",
            Op::LayerNorm { .. } => "layer_norm",
            Op::Softmax { .. } => "softmax",
            Op::TokenEmbed => "token_embed",
            Op::Rope(_) => "rope",
            Op::Sdpa(_) => "sdpa",
            Op::KvCache => "kv_cache",
            Op::Reshape { .. } => "reshape",
            Op::Transpose { .. } => "transpose",
            Op::Permute { .. } => "permute",
            Op::Slice { .. } => "slice",
            Op::Concat { .. } => "concat",
            Op::Split { .. } => "split",
            Op::Gather { .. } => "gather",
            Op::Repeat { .. } => "repeat",
            Op::Cast { .. } => "cast",
            Op::Argmax { .. } => "argmax",
            Op::TopK { .. } => "topk",
            Op::Sum { .. } => "sum",
            Op::Mean { .. } => "mean",
        }
    }

    /// Fewest and most inputs.
    pub fn arity(&self) -> (usize, usize) {
        match self {
            Op::MatMul => (2, 3),
            Op::Binary(_) | Op::Gated(_) | Op::TokenEmbed | Op::Gather { .. } | Op::KvCache => (2, 2),
            Op::RmsNorm { .. } => (1, 2),
            Op::LayerNorm { .. } => (1, 3),
            Op::Rope(rope) => {
                if rope.long_from.is_some() {
                    (4, 4)
                } else {
                    (3, 3)
                }
            }
            Op::Sdpa(sdpa) => {
                let n = 3 + usize::from(sdpa.mask) + usize::from(sdpa.sinks);
                (n, n)
            }
            Op::Concat { .. } => (1, usize::MAX),
            _ => (1, 1),
        }
    }

    /// Number of outputs.
    pub fn n_outputs(&self) -> usize {
        match self {
            Op::KvCache | Op::TopK { .. } => 2,
            Op::Split { sizes, .. } => sizes.len(),
            _ => 1,
        }
    }

    /// Whether the output is the input's bytes under another shape.
    pub fn is_view(&self) -> bool {
        matches!(self, Op::Reshape { .. })
    }

    /// What the op remembers between steps, given the types of its inputs; `None` for a pure op.
    pub fn state(&self, inputs: &[ValueType]) -> Option<StateSpec> {
        let Op::KvCache = self else { return None };
        let row = |ty: &ValueType| ValueType::new(ty.dtype, ty.dims.get(1..).unwrap_or_default());
        Some(StateSpec {
            kind: StateKind::Rows,
            parts: inputs.iter().map(row).collect(),
        })
    }

    /// Whether the op carries state.
    pub fn is_stateful(&self) -> bool {
        matches!(self, Op::KvCache)
    }

    /// Sequence-wise ops treat the rows of each sequence of a step on their own; all others are row-wise or free of
    /// tokens. Only sequence-wise ops may read a value whose size depends on the past.
    pub fn is_sequence_wise(&self) -> bool {
        matches!(self, Op::KvCache | Op::Sdpa(_))
    }
}
