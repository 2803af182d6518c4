//! A tiny decoder of two layers: grouped heads, a window with sinks, a soft-cap, gated MLP. Weights in any dtype.

#![allow(dead_code)] // Each test program uses a part.

use std::collections::HashMap;
use std::sync::Arc;

use glia_backend_cpu::isa::Isa;
use glia_backend_cpu::{CpuBackend, CpuOptions};
use glia_core::{DType, Dim, Gate, Op, Rope, RopePairing, Sdpa, Tensor, Unary, ValueType, quant};
use glia_ir::{ExecConfig, Graph, GraphBuilder, GraphError, GraphExecutor, Session, Vid};
use half::f16;

pub const VOCAB: usize = 48;
/// Rows of the quantised matrices are whole blocks of every format.
const WIDTH: usize = 256;

/// Attention of one layer.
#[derive(Clone, Debug)]
pub struct Attention {
    pub heads: usize,
    pub kv_heads: usize,
    pub window: Option<usize>,
    pub softcap: Option<f32>,
    pub sinks: bool,
}

impl Attention {
    /// A window with sinks, then a soft-cap over everything.
    pub fn both() -> Vec<Attention> {
        let of = |window, softcap, sinks| Attention {
            heads: 4,
            kv_heads: 2,
            window,
            softcap,
            sinks,
        };
        vec![of(Some(40), None, true), of(None, Some(5.0), false)]
    }

    /// Narrow heads, for tests of calls rather than of kernels.
    pub fn plain() -> Attention {
        Attention {
            heads: 2,
            kv_heads: 1,
            window: None,
            softcap: None,
            sinks: false,
        }
    }
}

/// Every dtype that a weight matrix may have.
pub fn weight_dtypes() -> Vec<DType> {
    let all = DType::ALL.iter().copied();
    all.filter(|d| d.is_float() || d.is_quantized()).collect()
}

/// The decoder; matrices of `dtype`, wide enough for every dtype.
pub fn graph(dtype: DType, layers: &[Attention]) -> Graph {
    graph_of(WIDTH, dtype, layers)
}

/// The decoder with rows of `width`.
pub fn graph_of(width: usize, dtype: DType, layers: &[Attention]) -> Graph {
    let build = || -> Result<Graph, GraphError> {
        let mut b = GraphBuilder::new("tiny");
        let ids = b.input("input_ids", ValueType::new(DType::I32, [Dim::T]))?;
        let table = b.weight("embed.weight", ValueType::fixed(dtype, &[VOCAB, width]))?;
        let mut x = b.token_embed("embed", ids, table)?;
        for (i, attention) in layers.iter().enumerate() {
            x = b.scope(format!("layers.{i}"), |b| layer(b, i, (width, dtype), attention, x))?;
        }
        let gain = b.weight("norm.weight", ValueType::fixed(DType::F32, &[width]))?;
        let x = b.rms_norm("norm", x, Some(gain), 1e-5, true)?;
        let logits = b.matmul("lm_head", x, table, None)?;
        b.output("logits", logits)?;
        b.finish()
    };
    build().unwrap()
}

fn layer(
    b: &mut GraphBuilder,
    i: usize,
    (width, dtype): (usize, DType),
    a: &Attention,
    x: Vid,
) -> Result<Vid, GraphError> {
    let dim = width / a.heads;
    let positions = b.positions();
    let freqs = b.weight(&format!("freqs.{dim}"), ValueType::fixed(DType::F32, &[dim / 2]))?;
    let matrix = |b: &mut GraphBuilder, name: &str, x: Vid, n: usize, k: usize, bias: bool| {
        let w = b.weight(&format!("layers.{i}.{name}.weight"), ValueType::fixed(dtype, &[n, k]))?;
        let bias = match bias {
            true => Some(b.weight(&format!("layers.{i}.{name}.bias"), ValueType::fixed(DType::F32, &[n]))?),
            false => None,
        };
        b.matmul(name, x, w, bias)
    };
    let norm = |b: &mut GraphBuilder, name: &str, x: Vid| {
        let gain = b.weight(
            &format!("layers.{i}.{name}.weight"),
            ValueType::fixed(DType::F32, &[width]),
        )?;
        b.rms_norm(name, x, Some(gain), 1e-5, true)
    };
    let h = norm(b, "norm1", x)?;
    let mut heads = Vec::new();
    for (name, n) in [("q", a.heads), ("k", a.kv_heads), ("v", a.kv_heads)] {
        let flat = matrix(b, name, h, n * dim, width, name == "q")?;
        heads.push(b.reshape(&format!("{name}_heads"), flat, [-1, n as i64, dim as i64])?);
    }
    let rope = || Rope {
        pairing: RopePairing::NeoX,
        scale: 1.0,
        long_from: None,
    };
    let q = b.rope("q_rope", heads[0], positions, freqs, None, rope())?;
    let k = b.rope("k_rope", heads[1], positions, freqs, None, rope())?;
    let (k, v) = b.kv_cache("cache", k, heads[2])?;
    let sdpa = Sdpa {
        scale: 2.0 / (dim as f32).sqrt(),
        causal: true,
        window: a.window,
        softcap: a.softcap,
        mask: false,
        sinks: a.sinks,
    };
    let sinks = match a.sinks {
        true => vec![b.weight(&format!("layers.{i}.sinks"), ValueType::fixed(DType::F32, &[a.heads]))?],
        false => vec![],
    };
    let o = b.sdpa("sdpa", [q, k, v], &sinks, sdpa)?;
    let o = b.reshape("merge", o, [-1, width as i64])?;
    let o = matrix(b, "o", o, width, width, false)?;
    let x = b.add("residual1", x, o)?;
    let h = norm(b, "norm2", x)?;
    let gate = matrix(b, "gate", h, width, width, false)?;
    let up = matrix(b, "up", h, width, width, false)?;
    let act = if i.is_multiple_of(2) {
        b.gated("act", gate, up, Gate::Silu)?
    } else {
        let gate = b.node1("act_gate", Op::Unary(Unary::GeluTanh), &[gate])?;
        b.mul("act", gate, up)?
    };
    let down = matrix(b, "down", act, width, width, false)?;
    b.add("residual2", x, down)
}

/// Numbers in -1..1 that look random.
pub fn noise(n: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 8_388_608.0 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

/// Weights for every weight of a graph.
pub fn weights(graph: &Graph) -> HashMap<String, Tensor> {
    let mut all = HashMap::new();
    for (i, (_, value)) in graph.weights().enumerate() {
        let shape = value.ty.as_fixed().unwrap();
        let tensor = if let Some(dim) = value.name.strip_prefix("freqs.") {
            let dim: usize = dim.parse().unwrap();
            let freqs: Vec<f32> = (0..dim / 2)
                .map(|i| 10_000f32.powf(-2.0 * i as f32 / dim as f32))
                .collect();
            Tensor::from_f32(shape, &freqs).unwrap()
        } else {
            let bytes = encoded(value.ty.dtype, shape.n_elems(), i as u32 + 7);
            Tensor::from_bytes(value.ty.dtype, shape, &bytes).unwrap()
        };
        all.insert(value.name.clone(), tensor);
    }
    all
}

/// `n` elements of a dtype, of size about 0.15: encoded, or random blocks where there is no encoder.
pub fn encoded(dtype: DType, n: usize, seed: u32) -> Vec<u8> {
    let mut bytes = vec![0u8; dtype.size_bytes(n).unwrap()];
    let values: Vec<f32> = noise(n, seed).iter().map(|v| v * 0.15).collect();
    if quant::can_quantize(dtype) {
        quant::quantize(dtype, &values, &mut bytes).unwrap();
        return bytes;
    }
    if dtype == DType::F64 {
        return values.iter().flat_map(|v| f64::from(*v).to_le_bytes()).collect();
    }
    for (block, v) in bytes
        .iter_mut()
        .zip(noise(n.max(4096).min(dtype.size_bytes(n).unwrap()), seed))
    {
        *block = (v * 1e4) as i32 as u8;
    }
    for block in bytes.chunks_exact_mut(dtype.block_bytes()) {
        let mut decoded = vec![0f32; dtype.block_elems()];
        set_scale(dtype, block, 1.0);
        quant::dequantize(dtype, block, &mut decoded).unwrap();
        let most = decoded.iter().fold(1e-3f32, |m, v| m.max(v.abs()));
        set_scale(dtype, block, 0.3 / most);
        quant::dequantize(dtype, block, &mut decoded).unwrap();
        assert!(decoded.iter().all(|v| v.abs() < 1.0), "{dtype}: {decoded:?}");
    }
    bytes
}

/// Sets the scales of a block that are floats.
fn set_scale(dtype: DType, block: &mut [u8], scale: f32) {
    let half = f16::from_f32(scale).to_le_bytes();
    let at: &[usize] = match dtype {
        DType::Q8_1 | DType::Q4_K | DType::Q5_K => &[0, 2],
        DType::Q2_K => &[80, 82],
        DType::Q3_K => &[108],
        DType::Q6_K => &[208],
        DType::Q8_K => {
            block[..4].copy_from_slice(&scale.to_le_bytes());
            &[]
        }
        // The f16 scale lies in the high bits of four 16-bit words.
        DType::IQ1_M => {
            let bits = u16::from_le_bytes(half);
            for i in 0..4 {
                block[49 + 2 * i] = block[49 + 2 * i] & 15 | ((bits >> (4 * i) & 15) as u8) << 4;
            }
            &[]
        }
        // Unsigned E4M3: 2^-5 for all four.
        DType::NVFP4 => {
            block[..4].fill(2 << 3);
            &[]
        }
        _ => &[0],
    };
    for &at in at {
        block[at..at + 2].copy_from_slice(&half);
    }
}

pub fn backend(threads: usize, isa: Option<Isa>) -> Arc<CpuBackend> {
    Arc::new(
        CpuBackend::with_options(CpuOptions {
            threads,
            isa,
            ..CpuOptions::default()
        })
        .unwrap(),
    )
}

/// The decoder on the CPU backend, compiled.
pub fn executor(
    graph: &Graph,
    weights: &HashMap<String, Tensor>,
    cpu: &Arc<CpuBackend>,
    config: ExecConfig,
) -> GraphExecutor {
    let ex = GraphExecutor::prepare(graph.clone(), weights.clone(), vec![cpu.clone()], config).unwrap();
    let how = ex.describe();
    assert!(how.len() == 1 && how[0].starts_with("compiled"), "{how:?}");
    ex
}

pub fn ids(values: &[i32]) -> Tensor {
    Tensor::from_i32([values.len()], values).unwrap()
}

pub fn tokens(n: usize, seed: usize) -> Vec<i32> {
    (0..n).map(|i| ((i * 31 + seed * 17 + i * i) % VOCAB) as i32).collect()
}

/// The bits of an F32 tensor.
pub fn bits(tensor: &Tensor) -> Vec<u32> {
    tensor.as_f32().unwrap().iter().map(|v| v.to_bits()).collect()
}

/// Feeds tokens in chunks; the bits of all logits.
pub fn feed(session: &mut Session, tokens: &[i32], chunk: usize) -> Vec<u32> {
    let mut all = Vec::new();
    for piece in tokens.chunks(chunk) {
        let outputs = session.run(&[("input_ids", ids(piece))]).unwrap();
        all.extend(bits(outputs.get("logits").unwrap()));
    }
    all
}
