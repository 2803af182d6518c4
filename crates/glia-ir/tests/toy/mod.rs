//! A small naive backend, recorded so that it can misbehave on demand, and a tiny causal model to run on it.

#![allow(dead_code)] // Each test program uses a part.

use std::collections::HashMap;
use std::sync::Arc;

use glia_core::testing::{Call, Fault, RecordingBackend};
use glia_core::{Backend, BackendError, Binary, DType, Dim, MemorySpace, Op, Sdpa, Tensor, Unary, ValueType};
use glia_ir::{ExecConfig, Graph, GraphBuilder, GraphExecutor};

/// Runs a few ops on F32.
#[derive(Clone, Copy, Default)]
pub struct Toy {
    pub name: &'static str,
    /// Kinds that it runs; all that it knows when empty.
    pub only: &'static [&'static str],
    pub space: u64,
}

impl Toy {
    /// Records its calls and misbehaves when told.
    pub fn recorded(self) -> Arc<RecordingBackend> {
        Arc::new(RecordingBackend::new(Arc::new(self)))
    }
}

/// The toy that runs all it knows in main memory.
pub fn toy() -> Arc<RecordingBackend> {
    let name = "toy";
    Toy { name, ..Toy::default() }.recorded()
}

/// Ops that a recorded backend has run.
pub fn n_executed(backend: &RecordingBackend) -> usize {
    backend.journal().count(Call::Execute)
}

/// The `n`-th op from now on goes wrong.
pub fn arm(backend: &RecordingBackend, n: usize, fault: Fault) {
    backend.arm(Call::Execute, n, fault);
}

const KNOWN: [&str; 6] = ["matmul", "add", "silu", "sdpa", "mean", "scale"];

impl Backend for Toy {
    fn name(&self) -> &str {
        self.name
    }

    fn supports(&self, op: &Op) -> bool {
        KNOWN.contains(&op.kind()) && (self.only.is_empty() || self.only.contains(&op.kind()))
    }

    fn execute(&self, op: &Op, inputs: &[&Tensor]) -> Result<Vec<Tensor>, BackendError> {
        let output = match op {
            Op::MatMul => matmul(inputs[0], inputs[1]),
            Op::Binary(Binary::Add) => zip(inputs[0], inputs[1], |a, b| a + b),
            Op::Unary(Unary::Silu) => zip(inputs[0], inputs[0], |a, _| a / (1.0 + (-a).exp())),
            Op::Scale { factor } => zip(inputs[0], inputs[0], |a, _| a * factor),
            Op::Sdpa(sdpa) => attend(sdpa, inputs[0], inputs[1], inputs[2]),
            Op::Mean { axis: 0, keep } => mean(inputs[0], *keep),
            other => {
                return Err(BackendError::UnsupportedOp {
                    backend: "toy".into(),
                    op: other.to_string(),
                });
            }
        };
        Ok(vec![output])
    }

    fn space(&self) -> MemorySpace {
        MemorySpace(self.space)
    }

    fn upload(&self, host: &Tensor) -> Result<Tensor, BackendError> {
        if self.space == 0 {
            return Ok(host.clone());
        }
        host.bytes()?;
        Ok(Tensor::device(host.dtype(), *host.shape(), Arc::new(host.clone()))?)
    }

    fn download(&self, tensor: &Tensor) -> Result<Tensor, BackendError> {
        match tensor.device_handle() {
            None if self.space == 0 => Ok(tensor.clone()),
            Some(handle) if self.space != 0 => {
                let host = handle.downcast_ref::<Tensor>().unwrap();
                Ok(host.reshaped(*tensor.shape())?)
            }
            _ => Err(BackendError::DeviceLost {
                reason: "a tensor of another memory space".into(),
            }),
        }
    }
}

fn zip(a: &Tensor, b: &Tensor, f: impl Fn(f32, f32) -> f32) -> Tensor {
    let values: Vec<f32> = a
        .as_f32()
        .unwrap()
        .iter()
        .zip(b.as_f32().unwrap())
        .map(|(&a, &b)| f(a, b))
        .collect();
    Tensor::from_f32(*a.shape(), &values).unwrap()
}

fn matmul(x: &Tensor, w: &Tensor) -> Tensor {
    let (k, n) = (w.shape()[1], w.shape()[0]);
    let mut out = Vec::new();
    for row in x.as_f32().unwrap().chunks(k.max(1)) {
        for col in w.as_f32().unwrap().chunks(k.max(1)) {
            out.push(row.iter().zip(col).map(|(a, b)| a * b).sum());
        }
    }
    let shape = x.shape().with_dim(x.shape().rank() - 1, n);
    Tensor::from_f32(shape, &out).unwrap()
}

fn mean(x: &Tensor, keep: bool) -> Tensor {
    let (n, d) = (x.shape()[0], x.n_elems() / x.shape()[0]);
    let mut out = vec![0.0; d];
    for row in x.as_f32().unwrap().chunks(d) {
        out.iter_mut().zip(row).for_each(|(o, v)| *o += v / n as f32);
    }
    let dims = if keep { vec![1, d] } else { vec![d] };
    Tensor::from_f32(dims.as_slice(), &out).unwrap()
}

fn attend(sdpa: &Sdpa, q: &Tensor, k: &Tensor, v: &Tensor) -> Tensor {
    let (tq, h, d) = (q.shape()[0], q.shape()[1], q.shape()[2]);
    let (tk, hkv) = (k.shape()[0], k.shape()[1]);
    let (qs, ks, vs) = (q.as_f32().unwrap(), k.as_f32().unwrap(), v.as_f32().unwrap());
    let mut out = Vec::new();
    for i in 0..tq {
        for head in 0..h {
            let at = head / (h / hkv);
            let seen = if sdpa.causal { i + tk - tq + 1 } else { tk };
            let query = &qs[(i * h + head) * d..][..d];
            let row = |x: &'_ [f32], j: usize| x[(j * hkv + at) * d..][..d].to_vec();
            let scores: Vec<f32> = (0..seen)
                .map(|j| query.iter().zip(row(ks, j)).map(|(a, b)| a * b).sum::<f32>() * sdpa.scale)
                .collect();
            let max = scores.iter().fold(f32::MIN, |m, s| m.max(*s));
            let total: f32 = scores.iter().map(|s| (s - max).exp()).sum();
            let mut sum = vec![0.0; d];
            for (j, s) in scores.iter().enumerate() {
                let weight = (s - max).exp() / total;
                sum.iter_mut().zip(row(vs, j)).for_each(|(o, v)| *o += weight * v);
            }
            out.extend(sum);
        }
    }
    Tensor::from_f32([tq, h, d], &out).unwrap()
}

pub const VOCAB: usize = 16;
const WIDTH: usize = 4;

/// Embedding, `layers` of attention with a residual, a head. `causal` as the attention says.
pub fn model(layers: usize, causal: bool) -> Graph {
    let mut b = GraphBuilder::new("toy");
    let ids = b.input("input_ids", ValueType::new(DType::I32, [Dim::T])).unwrap();
    let table = b
        .weight("embed.weight", ValueType::fixed(DType::F32, &[VOCAB, WIDTH]))
        .unwrap();
    let mut x = b.token_embed("embed", ids, table).unwrap();
    for layer in 0..layers {
        x = b
            .scope(format!("layers.{layer}"), |b| attention(b, layer, x, causal))
            .unwrap();
    }
    let head = b
        .weight("lm_head.weight", ValueType::fixed(DType::F32, &[VOCAB, WIDTH]))
        .unwrap();
    let logits = b.matmul("lm_head", x, head, None).unwrap();
    b.output("logits", logits).unwrap();
    b.finish().unwrap()
}

fn attention(
    b: &mut GraphBuilder,
    layer: usize,
    x: glia_ir::Vid,
    causal: bool,
) -> Result<glia_ir::Vid, glia_ir::GraphError> {
    let mut heads = Vec::new();
    for part in ["q", "k", "v"] {
        let w = b.weight(
            &format!("layers.{layer}.{part}.weight"),
            ValueType::fixed(DType::F32, &[WIDTH, WIDTH]),
        )?;
        let flat = b.matmul(part, x, w, None)?;
        heads.push(b.node1(&format!("{part}_heads"), Op::Reshape { dims: vec![-1, 2, 2] }, &[flat])?);
    }
    let (k, v) = b.kv_cache("cache", heads[1], heads[2])?;
    let sdpa = Sdpa {
        scale: 0.7,
        causal,
        window: None,
        softcap: None,
        mask: false,
        sinks: false,
    };
    let out = b.sdpa("sdpa", [heads[0], k, v], &[], sdpa)?;
    let flat = b.node1(
        "merge",
        Op::Reshape {
            dims: vec![-1, WIDTH as i64],
        },
        &[out],
    )?;
    b.node1("residual", Op::Binary(Binary::Add), &[x, flat])
}

/// Weights for every weight of a graph, from a small generator.
pub fn weights(graph: &Graph) -> HashMap<String, Tensor> {
    let mut seed = 1u32;
    let mut next = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 8) as f32 / (1 << 24) as f32 - 0.5
    };
    let mut all = HashMap::new();
    for (_, value) in graph.weights() {
        let shape = value.ty.as_fixed().unwrap();
        let values: Vec<f32> = (0..shape.n_elems()).map(|_| next()).collect();
        all.insert(value.name.clone(), Tensor::from_f32(shape, &values).unwrap());
    }
    all
}

pub fn prepare(graph: Graph, backends: Vec<Arc<dyn Backend>>, config: ExecConfig) -> GraphExecutor {
    let weights = weights(&graph);
    GraphExecutor::prepare(graph, weights, backends, config).unwrap()
}

/// The tiny model on a backend.
pub fn executor(toy: &Arc<RecordingBackend>, config: ExecConfig) -> GraphExecutor {
    prepare(model(2, true), vec![toy.clone()], config)
}

pub fn ids(values: &[i32]) -> Tensor {
    Tensor::from_i32([values.len()], values).unwrap()
}

pub fn floats(tensor: &Tensor) -> Vec<f32> {
    tensor.as_f32().unwrap().to_vec()
}
