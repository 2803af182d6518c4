//! How rows (tokens) flow through a graph: whether a long run may be split into chunks, and whether rows of several
//! sequences may share a step. Conservative: what is not proved is not done.

use glia_core::{Dim, Op, Symbol, ValueType};

use crate::graph::{Graph, Node, ValueSource, Vid};

/// What was proved of a graph's rows; each refusal says why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowFlow {
    split: Option<String>,
    batch: Option<String>,
}

/// How the rows of the step lie in a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    /// Knows nothing of the step: weights and what is made of them.
    Free,
    /// Row `i` of the first dimension depends on row `i` of the step and the rows before it only.
    Rows,
    /// All rows of the sequence so far, first dimension: the output of a cache.
    Past,
    /// Anything else.
    Mixed,
}

impl RowFlow {
    /// Looks through a verified graph.
    pub(super) fn of(graph: &Graph) -> RowFlow {
        let mut rows = RowFlow::default();
        let mut flows = Vec::with_capacity(graph.values.len());
        for value in &graph.values {
            flows.push(match value.source {
                ValueSource::Weight => Flow::Free,
                ValueSource::Positions => Flow::Rows,
                ValueSource::Input if value.ty.is_by_rows() => Flow::Rows,
                ValueSource::Input => {
                    rows.refuse(&format!("input `{}` {} has no row per token", value.name, value.ty));
                    Flow::Mixed
                }
                _ => Flow::Mixed,
            });
        }
        for node in &graph.nodes {
            let flow = flow(graph, node, &flows);
            for &id in &node.outputs {
                flows[id.index()] = flow;
            }
            if flow == Flow::Mixed {
                rows.refuse(&format!("node `{}` ({}) mixes rows", node.name, node.op.kind()));
            }
            if let Op::Sdpa(sdpa) = &node.op {
                let past = |i: usize| flows[node.inputs[i].index()] == Flow::Past;
                if !(past(1) && past(2)) {
                    rows.refuse(&format!("attention `{}` does not read a cache", node.name));
                } else if !sdpa.causal {
                    rows.no_split(format!("attention `{}` is not causal", node.name));
                }
            } else if node.inputs.iter().any(|id| flows[id.index()] == Flow::Past) {
                let why = format!("node `{}` ({}) reads the past row by row", node.name, node.op.kind());
                rows.batch.get_or_insert(why);
            }
        }
        rows
    }

    /// Why a run must not be split into chunks; `None` when it may.
    pub fn why_not_split(&self) -> Option<&str> {
        self.split.as_deref()
    }

    /// Why sequences must run one at a time; `None` when they may share a step.
    pub fn why_not_batch(&self) -> Option<&str> {
        self.batch.as_deref()
    }

    /// What crosses regions without a row per token carries one sequence only.
    pub(super) fn note_border(&mut self, name: &str, ty: &ValueType) {
        if !ty.is_by_rows() {
            self.batch
                .get_or_insert_with(|| format!("`{name}` {ty} has no row per token"));
        }
    }

    /// Pieces of an output without a row per token do not join either.
    pub(super) fn note_output(&mut self, name: &str, ty: &ValueType) {
        if !ty.is_by_rows() {
            self.refuse(&format!("output `{name}` {ty} has no row per token"));
        }
    }

    fn refuse(&mut self, why: &str) {
        self.no_split(why.to_owned());
        self.batch.get_or_insert_with(|| why.to_owned());
    }

    fn no_split(&mut self, why: String) {
        self.split.get_or_insert(why);
    }
}

fn flow(graph: &Graph, node: &Node, flows: &[Flow]) -> Flow {
    let of = |i: usize| node.inputs.get(i).map_or(Flow::Free, |id: &Vid| flows[id.index()]);
    let ty = |i: usize| &graph.value(node.inputs[i]).ty;
    let all_free = (0..node.inputs.len()).all(|i| of(i) == Flow::Free);
    if all_free {
        return Flow::Free;
    }
    // Picking wanted rows keeps them in order; any other index could mix them.
    if let Op::Gather { axis: 0 } = node.op
        && of(0) == Flow::Rows
        && graph.value(node.inputs[1]).source == ValueSource::WantedRows
    {
        return Flow::Rows;
    }
    if (0..node.inputs.len()).any(|i| of(i) == Flow::Mixed) {
        return Flow::Mixed;
    }
    let rest_free = (1..node.inputs.len()).all(|i| of(i) == Flow::Free);
    // Along any axis but the first, every row is worked on alone.
    let beside_rows = |axis: usize| axis > 0 && of(0) == Flow::Rows && rest_free;
    let ok = match &node.op {
        Op::Unary(_) | Op::Scale { .. } | Op::Clamp { .. } | Op::Cast { .. } => of(0) == Flow::Rows,
        Op::Binary(_) | Op::Gated(_) => {
            // Operands with rows must have as many and be aligned at the first dimension of the result.
            let rank = graph.value(node.outputs[0]).ty.rank();
            (0..2).all(|i| match of(i) {
                Flow::Rows => ty(i).rank() == rank && ty(i).is_by_rows() && ty(i).dims[0] == ty_first(graph, node),
                _ => of(i) == Flow::Free,
            })
        }
        Op::MatMul => of(0) == Flow::Rows && rest_free && ty(0).rank() >= 2 && ty(1).rank() == 2,
        Op::RmsNorm { .. } | Op::LayerNorm { .. } | Op::TopK { .. } => {
            of(0) == Flow::Rows && rest_free && ty(0).rank() >= 2
        }
        Op::TokenEmbed => of(0) == Flow::Rows && rest_free,
        Op::Rope(_) => of(0) == Flow::Rows && of(1) == Flow::Rows,
        Op::Sdpa(sdpa) => of(0) == Flow::Rows && !sdpa.mask,
        Op::KvCache => {
            if of(0) == Flow::Rows && of(1) == Flow::Rows {
                return Flow::Past;
            }
            false
        }
        Op::Softmax { axis }
        | Op::Slice { axis, .. }
        | Op::Split { axis, .. }
        | Op::Repeat { axis, .. }
        | Op::Argmax { axis }
        | Op::Sum { axis, .. }
        | Op::Mean { axis, .. } => beside_rows(*axis),
        Op::Concat { axis } => *axis > 0 && (0..node.inputs.len()).all(|i| of(i) == Flow::Rows),
        Op::Gather { axis: 0 } => of(0) == Flow::Free && of(1) == Flow::Rows,
        Op::Gather { axis } => beside_rows(*axis),
        Op::Transpose { a, b } => of(0) == Flow::Rows && *a > 0 && *b > 0,
        Op::Permute { perm } => of(0) == Flow::Rows && perm.first() == Some(&0),
        Op::Reshape { .. } => {
            let out = &graph.value(node.outputs[0]).ty;
            let keeps = out.dims.first() == ty(0).dims.first();
            let past = of(0) == Flow::Past && keeps && !out.dims[1..].iter().any(|d| d.depends_on(Symbol::P));
            if past {
                return Flow::Past;
            }
            of(0) == Flow::Rows && keeps
        }
        _ => false,
    };
    if ok && node.outputs.iter().all(|&id| graph.value(id).ty.is_by_rows()) {
        Flow::Rows
    } else {
        Flow::Mixed
    }
}

fn ty_first(graph: &Graph, node: &Node) -> Dim {
    graph
        .value(node.outputs[0])
        .ty
        .dims
        .first()
        .copied()
        .unwrap_or(Dim::fixed(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GraphBuilder;
    use glia_core::{Binary, DType, Sdpa};

    /// What is said of a graph that `build` makes from rows `[T, 4]`; `None` when all is allowed.
    fn why(build: impl FnOnce(&mut GraphBuilder, Vid) -> Vid) -> (bool, bool) {
        let mut b = GraphBuilder::new("rows");
        let x = b
            .input("x", ValueType::new(DType::F32, [Dim::T, Dim::fixed(4)]))
            .unwrap();
        let y = build(&mut b, x);
        b.output("y", y).unwrap();
        let graph = b.finish().unwrap();
        let mut rows = RowFlow::of(&graph);
        rows.note_output("y", &graph.value(graph.outputs[0].value).ty);
        (rows.why_not_split().is_none(), rows.why_not_batch().is_none())
    }

    fn attention(b: &mut GraphBuilder, x: Vid, causal: bool, cached: bool) -> Vid {
        let heads = b.node1("heads", Op::Reshape { dims: vec![-1, 1, 4] }, &[x]).unwrap();
        let (k, v) = if cached {
            b.kv_cache("kv", heads, heads).unwrap()
        } else {
            (heads, heads)
        };
        let sdpa = Sdpa {
            scale: 1.0,
            causal,
            window: None,
            softcap: None,
            mask: false,
            sinks: false,
        };
        b.sdpa("sdpa", [heads, k, v], &[], sdpa).unwrap()
    }

    const BOTH: (bool, bool) = (true, true);
    const NEITHER: (bool, bool) = (false, false);

    #[test]
    fn what_works_row_by_row_may_be_split_and_batched() {
        let norm = Op::RmsNorm {
            eps: 1e-5,
            plus_one: false,
        };
        assert_eq!(why(|b, x| b.node1("n", norm, &[x]).unwrap()), BOTH);
        assert_eq!(why(|b, x| b.node1("n", Op::Softmax { axis: 1 }, &[x]).unwrap()), BOTH);
        assert_eq!(why(|b, x| b.node1("n", Op::Concat { axis: 1 }, &[x, x]).unwrap()), BOTH);
        assert_eq!(
            why(|b, x| b.node1("n", Op::Binary(Binary::Mul), &[x, x]).unwrap()),
            BOTH
        );
        assert_eq!(why(|b, x| attention(b, x, true, true)), BOTH);
        let wanted = |b: &mut GraphBuilder, x| {
            let w = b.wanted_rows();
            b.node1("n", Op::Gather { axis: 0 }, &[x, w]).unwrap()
        };
        assert_eq!(why(wanted), BOTH);
    }

    #[test]
    fn what_mixes_rows_may_not() {
        for op in [
            Op::Softmax { axis: 0 },
            Op::Sum { axis: 0, keep: true },
            Op::Mean { axis: 0, keep: false },
            Op::Transpose { a: 0, b: 1 },
            Op::Slice {
                axis: 0,
                start: 0,
                end: Some(1),
            },
            Op::Reshape { dims: vec![-1, 2] },
            Op::Argmax { axis: 0 },
            Op::Concat { axis: 0 },
            Op::Repeat { axis: 0, n: 2 },
        ] {
            assert_eq!(why(|b, x| b.node1("n", op.clone(), &[x]).unwrap()), NEITHER, "{op}");
        }
        // A single position stands for one sequence and one chunk only.
        let pos = |b: &mut GraphBuilder, _| {
            let pos = b.pos();
            b.node1("n", Op::Cast { to: DType::F32 }, &[pos]).unwrap()
        };
        assert_eq!(why(pos), NEITHER);
        // Taint survives a shape that looks like rows again.
        let back = |b: &mut GraphBuilder, x| {
            let mean = b.node1("mean", Op::Mean { axis: 0, keep: true }, &[x]).unwrap();
            b.node1("n", Op::Binary(Binary::Sub), &[x, mean]).unwrap()
        };
        assert_eq!(why(back), NEITHER);
    }

    #[test]
    fn attention_splits_only_when_causal_over_a_cache() {
        assert_eq!(why(|b, x| attention(b, x, false, true)), (false, true));
        assert_eq!(why(|b, x| attention(b, x, true, false)), NEITHER);
    }

    /// A decoder as model families build it, before and after the passes.
    #[test]
    fn a_decoder_may_be_split_and_batched() {
        let mut b = GraphBuilder::new("decoder");
        let fixed = |dims: &[usize]| ValueType::fixed(DType::F32, dims);
        let ids = b.input("input_ids", ValueType::new(DType::I32, [Dim::T])).unwrap();
        let table = b.weight("embed", fixed(&[16, 8])).unwrap();
        let (gain, freqs) = (
            b.weight("gain", fixed(&[8])).unwrap(),
            b.weight("freqs", fixed(&[2])).unwrap(),
        );
        let (wide, narrow) = (
            b.weight("qkv", fixed(&[16, 8])).unwrap(),
            b.weight("o", fixed(&[8, 8])).unwrap(),
        );
        let positions = b.positions();
        let x = b.token_embed("embed", ids, table).unwrap();
        let x = b.node1("scaled", Op::Scale { factor: 3.0 }, &[x]).unwrap();
        let normed = b.rms_norm("norm", x, Some(gain), 1e-5, false).unwrap();
        let qkv = b.matmul("qkv", normed, wide, None).unwrap();
        let parts = b.split("parts", qkv, 1, &[8, 4, 4]).unwrap();
        let rope = glia_core::Rope {
            pairing: glia_core::RopePairing::NeoX,
            scale: 1.0,
            long_from: None,
        };
        let mut heads = Vec::new();
        for (i, &part) in parts.iter().enumerate() {
            let flat = Op::Reshape {
                dims: vec![-1, if i == 0 { 2 } else { 1 }, 4],
            };
            let mut y = b.node1(&format!("heads{i}"), flat, &[part]).unwrap();
            if i < 2 {
                y = b
                    .rope(&format!("rope{i}"), y, positions, freqs, None, rope.clone())
                    .unwrap();
            }
            heads.push(y);
        }
        let (k, v) = b.kv_cache("kv", heads[1], heads[2]).unwrap();
        let sdpa = Sdpa {
            scale: 0.5,
            causal: true,
            window: Some(4),
            softcap: Some(30.0),
            mask: false,
            sinks: false,
        };
        let y = b.sdpa("sdpa", [heads[0], k, v], &[], sdpa).unwrap();
        let y = b.node1("merge", Op::Reshape { dims: vec![-1, 8] }, &[y]).unwrap();
        let y = b.matmul("o", y, narrow, None).unwrap();
        let x = b.node1("add", Op::Binary(Binary::Add), &[x, y]).unwrap();
        let gate = b.node1("act", Op::Unary(glia_core::Unary::Silu), &[x]).unwrap();
        let x = b.node1("gated", Op::Binary(Binary::Mul), &[gate, x]).unwrap();
        let logits = b.matmul("head", x, table, None).unwrap();
        b.output("logits", logits).unwrap();
        let graph = b.finish().unwrap();
        for graph in [crate::pass::optimize(&graph).unwrap(), graph] {
            assert_eq!(RowFlow::of(&graph), RowFlow::default());
        }
    }
}
