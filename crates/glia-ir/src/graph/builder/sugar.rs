//! One method per op: the same as [`GraphBuilder::node`] with the op spelled out.

use glia_core::{Binary, DType, Gate, Op, Rope, Sdpa, Unary};

use super::GraphBuilder;
use crate::graph::{GraphError, Vid};

type One = Result<Vid, GraphError>;

macro_rules! sugar {
    ($($(#[$doc:meta])* $name:ident($($input:ident),+; $($attr:ident: $ty:ty),*) = $op:expr;)*) => {
        /// Errors of all: as [`GraphBuilder::node`].
        #[allow(missing_docs, clippy::missing_errors_doc)] // Each is documented at its op.
        impl GraphBuilder {
            $(
                $(#[$doc])*
                pub fn $name(&mut self, name: &str, $($input: Vid,)+ $($attr: $ty),*) -> One {
                    self.node1(name, $op, &[$($input),+])
                }
            )*
        }
    };
}

sugar! {
    add(a, b;) = Op::Binary(Binary::Add);
    sub(a, b;) = Op::Binary(Binary::Sub);
    mul(a, b;) = Op::Binary(Binary::Mul);
    div(a, b;) = Op::Binary(Binary::Div);
    scale(x; factor: f32) = Op::Scale { factor };
    clamp(x; min: f32, max: f32) = Op::Clamp { min, max };
    unary(x; f: Unary) = Op::Unary(f);
    gated(gate, up; act: Gate) = Op::Gated(act);
    softmax(x; axis: usize) = Op::Softmax { axis };
    token_embed(ids, table;) = Op::TokenEmbed;
    reshape(x; dims: impl Into<Vec<i64>>) = Op::Reshape { dims: dims.into() };
    transpose(x; a: usize, b: usize) = Op::Transpose { a, b };
    permute(x; perm: impl Into<Vec<usize>>) = Op::Permute { perm: perm.into() };
    slice(x; axis: usize, start: usize, end: Option<usize>) = Op::Slice { axis, start, end };
    gather(x, indices; axis: usize) = Op::Gather { axis };
    repeat(x; axis: usize, n: usize) = Op::Repeat { axis, n };
    cast(x; to: DType) = Op::Cast { to };
    argmax(x; axis: usize) = Op::Argmax { axis };
    sum(x; axis: usize, keep: bool) = Op::Sum { axis, keep };
    mean(x; axis: usize, keep: bool) = Op::Mean { axis, keep };
}

#[allow(clippy::missing_errors_doc)] // Errors of all: as `GraphBuilder::node`.
impl GraphBuilder {
    /// `y = x Wᵀ (+ bias)`.
    pub fn matmul(&mut self, name: &str, x: Vid, w: Vid, bias: Option<Vid>) -> One {
        let inputs: Vec<Vid> = [x, w].into_iter().chain(bias).collect();
        self.node1(name, Op::MatMul, &inputs)
    }

    /// RMSNorm with an optional gain, which is `1 + gain` with `plus_one`.
    pub fn rms_norm(&mut self, name: &str, x: Vid, gain: Option<Vid>, eps: f32, plus_one: bool) -> One {
        let inputs: Vec<Vid> = [x].into_iter().chain(gain).collect();
        self.node1(name, Op::RmsNorm { eps, plus_one }, &inputs)
    }

    /// LayerNorm with gain and bias, in that order: none, the gain, or both.
    pub fn layer_norm(&mut self, name: &str, x: Vid, gain_bias: &[Vid], eps: f32) -> One {
        let inputs: Vec<Vid> = [x].into_iter().chain(gain_bias.iter().copied()).collect();
        self.node1(name, Op::LayerNorm { eps }, &inputs)
    }

    /// Rotary embedding by the frequency table `freqs` (and `long_freqs`, when `rope.long_from` is set).
    pub fn rope(&mut self, name: &str, x: Vid, positions: Vid, freqs: Vid, long_freqs: Option<Vid>, rope: Rope) -> One {
        let inputs: Vec<Vid> = [x, positions, freqs].into_iter().chain(long_freqs).collect();
        self.node1(name, Op::Rope(rope), &inputs)
    }

    /// Attention; `extra` holds the mask, then the sinks, as far as `sdpa` says that there are any.
    pub fn sdpa(&mut self, name: &str, qkv: [Vid; 3], extra: &[Vid], sdpa: Sdpa) -> One {
        let inputs: Vec<Vid> = qkv.into_iter().chain(extra.iter().copied()).collect();
        self.node1(name, Op::Sdpa(sdpa), &inputs)
    }

    /// Appends the rows of the step; returns all keys and values so far, `[P+T, ..]`.
    pub fn kv_cache(&mut self, name: &str, k: Vid, v: Vid) -> Result<(Vid, Vid), GraphError> {
        let outputs = self.node(name, Op::KvCache, &[k, v])?;
        Ok((outputs[0], outputs[1]))
    }

    /// Joins along `axis`.
    pub fn concat(&mut self, name: &str, inputs: &[Vid], axis: usize) -> One {
        self.node1(name, Op::Concat { axis }, inputs)
    }

    /// Cuts `axis` into pieces of these sizes.
    pub fn split(&mut self, name: &str, x: Vid, axis: usize, sizes: &[usize]) -> Result<Vec<Vid>, GraphError> {
        let sizes = sizes.to_vec();
        self.node(name, Op::Split { axis, sizes }, &[x])
    }

    /// The `k` largest of the last dimension: values and their indices.
    pub fn top_k(&mut self, name: &str, x: Vid, k: usize) -> Result<(Vid, Vid), GraphError> {
        let outputs = self.node(name, Op::TopK { k }, &[x])?;
        Ok((outputs[0], outputs[1]))
    }
}
