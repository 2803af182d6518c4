//! The pieces that models are made of: attention, gated MLP, encoder, head, and a decoder of two layers.

use super::{Action, Built, SegmentBuilder, Slots, Wanted};
use crate::conformance::data::{Random, noise, plain};
use crate::{Binary, DType, Dim, Gate, Op, Rope, RopePairing, Sdpa, Tensor, Unary, ValueId};

/// Rows of every quantised dtype are whole blocks.
const WIDTH: usize = 256;
const VOCAB: usize = 48;

/// Sizes and kinds of one attention.
#[derive(Clone, Copy)]
pub(in crate::conformance) struct Layer {
    pub width: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub dim: usize,
    pub window: Option<usize>,
    pub softcap: Option<f32>,
    pub sinks: bool,
    pub pairing: RopePairing,
    pub long_from: Option<usize>,
}

pub(super) const LAYER: Layer = Layer {
    width: WIDTH,
    heads: 8,
    kv_heads: 2,
    dim: 32,
    window: None,
    softcap: None,
    sinks: false,
    pairing: RopePairing::NeoX,
    long_from: None,
};

/// A builder with random weights.
pub(super) struct Net {
    b: SegmentBuilder,
    /// Elements of a row, and of the rows inside an MLP.
    width: usize,
    inner: usize,
    random: Random,
    dtype: DType,
    positions: Option<ValueId>,
}

impl Net {
    fn new(name: &str, dtype: DType) -> Net {
        Net::of_width(name, dtype, WIDTH, WIDTH)
    }

    pub fn of_width(name: &str, dtype: DType, width: usize, inner: usize) -> Net {
        Net {
            b: SegmentBuilder::default(),
            width,
            inner,
            random: Random::of(name),
            dtype,
            positions: None,
        }
    }

    fn matrix(&mut self, name: &str, n: usize, k: usize) -> ValueId {
        // Sums of k products stay near one.
        let tensor = noise(self.dtype, &[n, k], 2.0 / (k as f32).sqrt(), &mut self.random);
        self.b.weight(name, tensor)
    }

    fn vector(&mut self, name: &str, n: usize, size: f32) -> ValueId {
        let tensor = noise(DType::F32, &[n], size, &mut self.random);
        self.b.weight(name, tensor)
    }

    fn linear(&mut self, name: &str, x: ValueId, n: usize, k: usize) -> ValueId {
        let w = self.matrix(&format!("{name}.weight"), n, k);
        self.b.one(name, Op::MatMul, &[x, w])
    }

    fn biased(&mut self, name: &str, x: ValueId, n: usize, k: usize) -> ValueId {
        let w = self.matrix(&format!("{name}.weight"), n, k);
        let bias = self.vector(&format!("{name}.bias"), n, 1.0);
        self.b.one(name, Op::MatMul, &[x, w, bias])
    }

    fn rms(&mut self, name: &str, x: ValueId, plus_one: bool) -> ValueId {
        let gain = self.vector(&format!("{name}.weight"), self.width, 1.0);
        let op = Op::RmsNorm { eps: 1e-5, plus_one };
        self.b.one(name, op, &[x, gain])
    }

    fn add(&mut self, name: &str, a: ValueId, b: ValueId) -> ValueId {
        self.b.one(name, Op::Binary(Binary::Add), &[a, b])
    }

    fn heads(&mut self, name: &str, x: ValueId, n: usize, dim: usize) -> ValueId {
        let dims = vec![-1, n as i64, dim as i64];
        self.b.one(name, Op::Reshape { dims }, &[x])
    }

    fn frequencies(&mut self, name: &str, half: usize, base: f64) -> ValueId {
        let list: Vec<f64> = (0..half).map(|i| base.powf(-(i as f64) / half as f64)).collect();
        self.b.weight(name, plain(DType::F32, &[half], &list))
    }

    /// Attention over a cache: norm to output projection.
    fn attention(&mut self, at: &str, x: ValueId, layer: Layer) -> ValueId {
        let Layer {
            width,
            heads,
            kv_heads,
            dim,
            ..
        } = layer;
        let positions = match self.positions {
            Some(id) => id,
            None => self.b.positions(),
        };
        self.positions = Some(positions);
        let mut qkv = Vec::new();
        for (name, n) in [("q", heads), ("k", kv_heads), ("v", kv_heads)] {
            let y = self.linear(&format!("{at}{name}"), x, n * dim, width);
            qkv.push(self.heads(&format!("{at}{name}_heads"), y, n, dim));
        }
        let mut tables = vec![self.frequencies(&format!("{at}freqs"), dim / 2, 1000.0)];
        if layer.long_from.is_some() {
            tables.push(self.frequencies(&format!("{at}long_freqs"), dim / 2, 3000.0));
        }
        for (name, x) in ["q_rope", "k_rope"].into_iter().zip(&mut qkv) {
            let rope = Op::Rope(Rope {
                pairing: layer.pairing,
                scale: 1.0,
                long_from: layer.long_from,
            });
            let inputs: Vec<ValueId> = [*x, positions].into_iter().chain(tables.iter().copied()).collect();
            *x = self.b.one(&format!("{at}{name}"), rope, &inputs);
        }
        let cache = self.b.node(&format!("{at}cache"), Op::KvCache, &qkv[1..]);
        let sdpa = Op::Sdpa(Sdpa {
            scale: 1.5 / (dim as f32).sqrt(),
            causal: true,
            window: layer.window,
            softcap: layer.softcap,
            mask: false,
            sinks: layer.sinks,
        });
        let mut inputs = vec![qkv[0], cache[0], cache[1]];
        if layer.sinks {
            inputs.push(self.vector(&format!("{at}sinks"), heads, 1.0));
        }
        let y = self.b.one(&format!("{at}sdpa"), sdpa, &inputs);
        let dims = vec![-1, (heads * dim) as i64];
        let y = self.b.one(&format!("{at}joined"), Op::Reshape { dims }, &[y]);
        self.linear(&format!("{at}o"), y, width, heads * dim)
    }

    fn gated(&mut self, at: &str, x: ValueId, gate: Gate) -> ValueId {
        let (width, inner) = (self.width, self.inner);
        let g = self.linear(&format!("{at}gate"), x, inner, width);
        let u = self.linear(&format!("{at}up"), x, inner, width);
        let y = self.b.one(&format!("{at}act"), Op::Gated(gate), &[g, u]);
        self.linear(&format!("{at}down"), y, width, inner)
    }

    fn x(&mut self) -> ValueId {
        self.b.input("x", DType::F32, [Dim::T, self.width.into()])
    }

    fn finish(self, outputs: &[ValueId]) -> Built {
        self.b.finish(outputs, Slots::Shared)
    }
}

fn one_attention(name: &str, dtype: DType, layer: Layer) -> Built {
    attention_of(Net::new(name, dtype), layer)
}

/// Norm, attention over a cache, residual.
pub(super) fn attention_of(mut net: Net, layer: Layer) -> Built {
    let x = net.x();
    let h = net.rms("norm", x, false);
    let y = net.attention("", h, layer);
    let y = net.add("residual", x, y);
    net.finish(&[y])
}

pub(super) fn attention(dtype: DType) -> Built {
    one_attention("attention", dtype, LAYER)
}

pub(super) fn attention_window(dtype: DType) -> Built {
    let layer = Layer {
        window: Some(5),
        sinks: true,
        kv_heads: 4,
        ..LAYER
    };
    one_attention("window", dtype, layer)
}

pub(super) fn attention_softcap(dtype: DType) -> Built {
    let layer = Layer {
        softcap: Some(1.5),
        pairing: RopePairing::Interleaved,
        kv_heads: 1,
        ..LAYER
    };
    one_attention("softcap", dtype, layer)
}

/// The second frequency table counts from 21 tokens on.
pub(super) fn attention_long_rope(dtype: DType) -> Built {
    let layer = Layer {
        long_from: Some(20),
        ..LAYER
    };
    one_attention("long", dtype, layer)
}

/// Norm, gated MLP, residual.
pub(super) fn mlp_of(mut net: Net) -> Built {
    let x = net.x();
    let h = net.rms("norm", x, false);
    let y = net.gated("", h, Gate::Silu);
    let y = net.add("residual", x, y);
    net.finish(&[y])
}

pub(super) fn gated_mlp(dtype: DType) -> Built {
    let mut net = Net::new("mlp", dtype);
    let x = net.x();
    let mut h = x;
    for (at, gate) in [("0.", Gate::Silu), ("1.", Gate::GeluTanh), ("2.", Gate::Gelu)] {
        let n = net.rms(&format!("{at}norm"), h, at == "1.");
        let y = net.gated(at, n, gate);
        h = net.add(&format!("{at}residual"), h, y);
    }
    net.finish(&[h])
}

/// Attention both ways without a cache, layer norms, biases, GELU, and a mean over the columns.
pub(super) fn encoder(dtype: DType) -> Built {
    encoder_of(Net::new("encoder", dtype))
}

/// An encoder block of heads of 64.
pub(super) fn encoder_of(mut net: Net) -> Built {
    let (width, inner) = (net.width, net.inner);
    let x = net.x();
    let norm = |net: &mut Net, name: &str, x| {
        let gain = net.vector(&format!("{name}.weight"), width, 1.0);
        let bias = net.vector(&format!("{name}.bias"), width, 1.0);
        net.b.one(name, Op::LayerNorm { eps: 1e-5 }, &[x, gain, bias])
    };
    let h = norm(&mut net, "norm1", x);
    let mut qkv = Vec::new();
    for name in ["q", "k", "v"] {
        let y = net.biased(name, h, width, width);
        qkv.push(net.heads(&format!("{name}_heads"), y, width / 64, 64));
    }
    let sdpa = Op::Sdpa(Sdpa {
        scale: 0.125,
        causal: false,
        window: None,
        softcap: None,
        mask: false,
        sinks: false,
    });
    let y = net.b.one("sdpa", sdpa, &qkv);
    let y = net.b.one(
        "joined",
        Op::Reshape {
            dims: vec![-1, width as i64],
        },
        &[y],
    );
    let y = net.biased("o", y, width, width);
    let x = net.add("residual1", x, y);
    let h = norm(&mut net, "norm2", x);
    let y = net.biased("fc1", h, inner, width);
    let y = net.b.one("gelu", Op::Unary(Unary::Gelu), &[y]);
    let y = net.biased("fc2", y, width, inner);
    let y = net.add("residual2", x, y);
    // Of positive numbers: a mean that cancels has no digits left to compare.
    let positive = net.b.one("positive", Op::Unary(Unary::Relu), &[y]);
    let pooled = net.b.one("pooled", Op::Mean { axis: 1, keep: true }, &[positive]);
    net.finish(&[y, pooled])
}

/// Lookup, norm and head share a table; only wanted rows reach the head.
pub(super) fn tied_head(dtype: DType) -> Built {
    let mut net = Net::new("head", dtype);
    let ids = net.b.input("ids", DType::I32, [Dim::T]);
    let wanted = net.b.wanted_rows();
    let table = net.matrix("embed.weight", VOCAB, WIDTH);
    let x = net.b.one("embed", Op::TokenEmbed, &[ids, table]);
    let x = net.b.one("scaled", Op::Scale { factor: 16.0 }, &[x]);
    let rows = net.b.one("rows", Op::Gather { axis: 0 }, &[x, wanted]);
    let h = net.rms("norm", rows, true);
    let logits = net.b.one("logits", Op::MatMul, &[h, table]);
    net.finish(&[logits])
}

pub(super) fn decoder(dtype: DType) -> Built {
    let windowed = Layer {
        window: Some(7),
        ..LAYER
    };
    decoder_of(Net::new("decoder", dtype), [LAYER, windowed])
}

/// Lookup, two layers, and the head of the wanted rows, tied to the lookup.
pub(super) fn decoder_of(mut net: Net, layers: [Layer; 2]) -> Built {
    let ids = net.b.input("ids", DType::I32, [Dim::T]);
    let wanted = net.b.wanted_rows();
    let width = net.width;
    let table = net.matrix("embed.weight", VOCAB, width);
    let embedded = net.b.one("embed", Op::TokenEmbed, &[ids, table]);
    let mut x = net.b.one("scaled", Op::Scale { factor: 8.0 }, &[embedded]);
    for (at, layer) in ["0.", "1."].into_iter().zip(layers) {
        let h = net.rms(&format!("{at}norm1"), x, false);
        let y = net.attention(at, h, layer);
        x = net.add(&format!("{at}residual1"), x, y);
        let h = net.rms(&format!("{at}norm2"), x, false);
        let y = net.gated(at, h, Gate::Silu);
        x = net.add(&format!("{at}residual2"), x, y);
    }
    let rows = net.b.one("rows", Op::Gather { axis: 0 }, &[x, wanted]);
    let h = net.rms("norm", rows, false);
    let logits = net.b.one("logits", Op::MatMul, &[h, table]);
    net.finish(&[logits])
}

/// A narrow attention with a cache: what tests of states run on.
pub(in crate::conformance) fn attention_layer(window: Option<usize>) -> Built {
    let mut net = Net::new("narrow", DType::F32);
    let layer = Layer {
        width: 16,
        heads: 4,
        kv_heads: 2,
        dim: 8,
        window,
        ..LAYER
    };
    let x = net.b.input("x", DType::F32, [Dim::T, 16.into()]);
    let y = net.attention("", x, layer);
    net.finish(&[y])
}

/// Prefill, a chunk, single tokens, then several sequences of different lengths in one step.
pub(in crate::conformance) fn walk(family: &str) -> Vec<Action> {
    let step = |seqs: &[(u64, std::ops::Range<i32>)], wanted| Action::Step(seqs.to_vec(), wanted);
    let some = if matches!(family, "tied_head" | "decoder") {
        Wanted::These(vec![0, 3, 4])
    } else {
        Wanted::All
    };
    vec![
        Action::Create(1),
        step(&[(1, 0..13)], Wanted::All),
        step(&[(1, 13..18)], some),
        step(&[(1, 18..19)], Wanted::All),
        step(&[(1, 19..20)], Wanted::Last),
        step(&[(1, 20..21)], Wanted::None),
        Action::Create(2),
        Action::Create(3),
        step(&[(2, 30..37), (1, 21..22), (3, 40..43)], Wanted::All),
        step(&[(1, 22..24), (3, 43..44), (2, 37..38)], Wanted::These(vec![1, 3])),
        step(&[(3, 44..46)], Wanted::All),
    ]
}

/// A tensor of a weight, for views.
pub(super) fn weight(name: &str, dtype: DType, shape: &[usize]) -> Tensor {
    noise(dtype, shape, 0.2, &mut Random::of(name))
}
