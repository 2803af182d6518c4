//! What an op must move and compute at least, from the shapes and dtypes of its operands. Knows no time and no machine:
//! whoever has measured those divides.

use std::ops::AddAssign;

use super::{Op, Sdpa};
use crate::{DType, Shape};

/// Where an operand lies, which says under what its bytes are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// A weight, in the dtype of the file.
    Weight,
    /// An intermediate value, an input or an output.
    Activation,
    /// Rows of a state, in the dtype in which they are stored.
    Cache,
}

/// An operand or result as [`Op::cost`] sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostValue {
    /// Stored dtype.
    pub dtype: DType,
    /// Shape in the step.
    pub shape: Shape,
    /// Where it lies.
    pub traffic: Traffic,
}

/// Bytes and operations. Each operand is counted once, as if everything that is read again stayed in cache.
///
/// Sums saturate: a step of such a size does not run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cost {
    /// Weights read, as stored in the file.
    pub weight_bytes: u64,
    /// Activations read.
    pub read_bytes: u64,
    /// Activations written.
    pub written_bytes: u64,
    /// Keys and values read or appended, as stored in the cache.
    pub cache_bytes: u64,
    /// Arithmetic: each addition, multiplication, division, comparison and function value is one.
    pub ops: u64,
}

impl Cost {
    /// All bytes that are moved.
    pub fn bytes(&self) -> u64 {
        [self.read_bytes, self.written_bytes, self.cache_bytes]
            .into_iter()
            .fold(self.weight_bytes, u64::saturating_add)
    }

    fn read(&mut self, value: &CostValue, n_elems: u64) {
        let bytes = stored_bytes(value.dtype, n_elems);
        let of = match value.traffic {
            Traffic::Weight => &mut self.weight_bytes,
            Traffic::Activation => &mut self.read_bytes,
            Traffic::Cache => &mut self.cache_bytes,
        };
        *of = of.saturating_add(bytes);
    }

    fn write(&mut self, value: &CostValue, n_elems: u64) {
        let bytes = stored_bytes(value.dtype, n_elems);
        let of = match value.traffic {
            Traffic::Cache => &mut self.cache_bytes,
            Traffic::Weight | Traffic::Activation => &mut self.written_bytes,
        };
        *of = of.saturating_add(bytes);
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Cost) {
        for (a, b) in [
            (&mut self.weight_bytes, other.weight_bytes),
            (&mut self.read_bytes, other.read_bytes),
            (&mut self.written_bytes, other.written_bytes),
            (&mut self.cache_bytes, other.cache_bytes),
            (&mut self.ops, other.ops),
        ] {
            *a = a.saturating_add(b);
        }
    }
}

/// Bytes of a run of elements, whole blocks.
fn stored_bytes(dtype: DType, n_elems: u64) -> u64 {
    let (elems, bytes) = dtype.block();
    n_elems.div_ceil(elems as u64).saturating_mul(bytes as u64)
}

fn product(dims: &[usize]) -> u64 {
    dims.iter().fold(1, |n, &d| n.saturating_mul(d as u64))
}

fn elems(value: Option<&CostValue>) -> u64 {
    value.map_or(0, |v| product(&v.shape))
}

fn last(value: Option<&CostValue>) -> u64 {
    value.map_or(0, |v| v.shape.last_dim() as u64)
}

impl Op {
    /// The least that this op moves and computes on operands of these shapes, which [`Op::infer`] has accepted.
    ///
    /// A view costs nothing. Embeddings and gathers read the rows they pick. Attention reads the rows of K and V that
    /// any query sees, once for all heads and queries, and counts the products that the mask leaves: `2 D` for a
    /// score, `2 Dv` for its value and 5 for the softmax. A cache appends its inputs in the dtype of its outputs.
    ///
    /// ```
    /// use glia_core::{CostValue, DType, Op, Shape, Traffic};
    ///
    /// let value = |dtype, dims: &[usize], traffic| CostValue { dtype, shape: Shape::new(dims), traffic };
    /// let x = value(DType::F32, &[1, 64], Traffic::Activation);
    /// let w = value(DType::Q8_0, &[256, 64], Traffic::Weight);
    /// let y = value(DType::F32, &[1, 256], Traffic::Activation);
    /// let cost = Op::MatMul.cost(&[x, w], &[y]);
    /// assert_eq!((cost.weight_bytes, cost.ops), (256 * 64 / 32 * 34, 2 * 256 * 64));
    /// ```
    pub fn cost(&self, inputs: &[CostValue], outputs: &[CostValue]) -> Cost {
        let mut cost = Cost::default();
        if self.is_view() {
            return cost;
        }
        let (x, out) = (inputs.first(), outputs.first());
        match self {
            Op::KvCache => {
                for (new, all) in inputs.iter().zip(outputs) {
                    let n = product(&new.shape);
                    cost.read(new, n);
                    cost.write(all, n);
                }
                return cost;
            }
            Op::Sdpa(sdpa) => attention(sdpa, inputs, &mut cost),
            Op::TokenEmbed => {
                for (value, n) in inputs.iter().zip([elems(x), elems(out)]) {
                    cost.read(value, n);
                }
            }
            Op::Gather { .. } => {
                for (value, n) in inputs.iter().zip([elems(out), elems(inputs.get(1))]) {
                    cost.read(value, n);
                }
            }
            Op::Slice { .. } => inputs.iter().for_each(|value| cost.read(value, elems(out))),
            _ => inputs.iter().for_each(|value| cost.read(value, product(&value.shape))),
        }
        for value in outputs {
            cost.write(value, product(&value.shape));
        }
        cost.ops = cost.ops.saturating_add(self.elementwise_ops(inputs, elems(out)));
        cost
    }

    /// Operations of every op but attention.
    fn elementwise_ops(&self, inputs: &[CostValue], n_out: u64) -> u64 {
        let (x, n_more) = (inputs.first(), inputs.len().saturating_sub(1) as u64);
        let (n, per) = match self {
            // Multiply and add along k, then the bias.
            Op::MatMul => (
                n_out,
                last(x).saturating_mul(2).saturating_add(n_more.saturating_sub(1)),
            ),
            Op::Binary(_) | Op::Unary(_) | Op::Scale { .. } => (n_out, 1),
            // Two comparisons; an activation and a product.
            Op::Clamp { .. } | Op::Gated(_) => (n_out, 2),
            // Square, add, scale; then the gain.
            Op::RmsNorm { .. } => (n_out, 3 + n_more),
            // Add, centre, square, add, scale; then gain and bias.
            Op::LayerNorm { .. } => (n_out, 5 + n_more),
            // Largest, subtract, exponential, add, divide.
            Op::Softmax { .. } => (n_out, 5),
            // Four products and two sums per rotated pair of every head.
            Op::Rope(_) => (elems(x) / last(x).max(1), last(inputs.get(2)).saturating_mul(6)),
            Op::Argmax { .. } | Op::TopK { .. } | Op::Sum { .. } | Op::Mean { .. } => (elems(x), 1),
            Op::Sdpa(_)
            | Op::TokenEmbed
            | Op::KvCache
            | Op::Reshape { .. }
            | Op::Transpose { .. }
            | Op::Permute { .. }
            | Op::Slice { .. }
            | Op::Concat { .. }
            | Op::Split { .. }
            | Op::Gather { .. }
            | Op::Repeat { .. }
            | Op::Cast { .. } => (0, 0),
        };
        n.saturating_mul(per)
    }
}

/// Reads q, the rows of K and V that some query sees, mask and sinks; counts the products of the scores that are left.
fn attention(sdpa: &Sdpa, inputs: &[CostValue], cost: &mut Cost) {
    let [q, k, v, more @ ..] = inputs else { return };
    let dim = |value: &CostValue, i: usize| value.shape.get(i).map_or(0, |&d| d as u64);
    let (n_queries, n_keys, window) = (dim(q, 0), dim(k, 0), sdpa.window.map_or(u64::MAX, |w| w as u64));
    // The first key that query `i` sees, and past the last.
    let seen = |i: u64| {
        let past = (i + 1).saturating_add(n_keys).saturating_sub(n_queries);
        let end = if sdpa.causal { past } else { n_keys };
        (past.saturating_sub(window).min(end), end)
    };
    let (first, end) = match n_queries {
        0 => (0, 0),
        n => (seen(0).0, seen(n - 1).1),
    };
    let n_scores: u64 = (0..n_queries)
        .map(seen)
        .fold(0, |n: u64, (first, end)| n.saturating_add(end - first));
    let per_score = 2 * (dim(q, 2) + dim(v, 2)) + 5;
    cost.ops = n_scores.saturating_mul(dim(q, 1)).saturating_mul(per_score);
    cost.read(q, product(&q.shape));
    for rows in [k, v] {
        let per_row = product(rows.shape.get(1..).unwrap_or_default());
        cost.read(rows, per_row.saturating_mul(end - first));
    }
    more.iter().for_each(|value| cost.read(value, product(&value.shape)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Binary, Gate, Rope, RopePairing, Unary};

    type Value<'a> = (DType, &'a [usize], Traffic);
    use Traffic::{Activation as A, Cache as C, Weight as W};
    const F32: DType = DType::F32;

    /// Weight, read, written and cache bytes, then operations.
    fn check(op: &Op, inputs: &[Value<'_>], outputs: &[Value<'_>], expected: [u64; 5]) {
        let values = |list: &[Value<'_>]| -> Vec<CostValue> {
            let value = |&(dtype, dims, traffic): &Value<'_>| CostValue {
                dtype,
                shape: Shape::new(dims),
                traffic,
            };
            list.iter().map(value).collect()
        };
        let cost = op.cost(&values(inputs), &values(outputs));
        let got = [
            cost.weight_bytes,
            cost.read_bytes,
            cost.written_bytes,
            cost.cache_bytes,
            cost.ops,
        ];
        assert_eq!(got, expected, "{op}");
        assert_eq!(cost.bytes(), expected[..4].iter().sum::<u64>());
    }

    #[test]
    fn products_count_weights_as_stored() {
        let x = (F32, &[3, 256][..], A);
        let y = (F32, &[3, 8][..], A);
        for (dtype, weight_bytes) in [
            (DType::Q4_0, 8 * 8 * 18),
            (DType::Q8_0, 8 * 8 * 34),
            (DType::Q4_K, 8 * 144),
            (DType::Q6_K, 8 * 210),
            (DType::BF16, 8 * 256 * 2),
            (F32, 8 * 256 * 4),
        ] {
            let w = (dtype, &[8, 256][..], W);
            let expected = [weight_bytes, 3 * 256 * 4, 3 * 8 * 4, 0, 2 * 3 * 8 * 256];
            check(&Op::MatMul, &[x, w], &[y], expected);
        }
        // A bias is read once and added to each output.
        let (w, bias) = ((DType::F16, &[8, 256][..], W), (F32, &[8][..], W));
        let expected = [4096 + 32, 3072, 96, 0, 3 * 8 * (512 + 1)];
        check(&Op::MatMul, &[x, w, bias], &[y], expected);
        // Batched, both sides activations: 2 batches of 3 x 5 along 4.
        let (a, b, c) = (
            (F32, &[2, 3, 4][..], A),
            (F32, &[2, 5, 4][..], A),
            (F32, &[2, 3, 5][..], A),
        );
        check(&Op::MatMul, &[a, b], &[c], [0, 4 * (24 + 40), 4 * 30, 0, 2 * 30 * 4]);
    }

    #[test]
    fn attention_counts_what_the_mask_leaves() {
        // 4 heads of 8 over 2 K/V heads, 10 tokens of which 3 are new; caches in f16.
        let (q, y) = ((F32, &[3, 4, 8][..], A), (F32, &[3, 4, 8][..], A));
        let kv = (DType::F16, &[10, 2, 8][..], C);
        let op = |causal, window| {
            Op::Sdpa(Sdpa {
                scale: 1.0,
                causal,
                window,
                softcap: None,
                mask: false,
                sinks: false,
            })
        };
        let per_score = 2 * (8 + 8) + 5;
        let row = 2 * 8 * 2;
        for (causal, window, n_rows, n_scores) in [
            (false, None, 10, 30),
            // The queries are at 7, 8 and 9: they see 8, 9 and 10 keys.
            (true, None, 10, 27),
            // Four each; the first sees 4 to 7, the last 6 to 9.
            (true, Some(4), 6, 12),
            (true, Some(100), 10, 27),
            // 4.., 5.., 6.. to 9.
            (false, Some(4), 6, 6 + 5 + 4),
        ] {
            let expected = [0, 3 * 32 * 4, 3 * 32 * 4, 2 * n_rows * row, n_scores * 4 * per_score];
            check(&op(causal, window), &[q, kv, kv], &[y], expected);
        }
        // Mask and sinks are read too.
        let Op::Sdpa(mut sdpa) = op(true, None) else { return };
        (sdpa.mask, sdpa.sinks) = (true, true);
        let (mask, sinks) = ((F32, &[3, 10][..], A), (F32, &[4][..], W));
        let expected = [16, 3 * 32 * 4 + 120, 384, 20 * row, 27 * 4 * per_score];
        check(&Op::Sdpa(sdpa), &[q, kv, kv, mask, sinks], &[y], expected);
    }

    #[test]
    fn caches_append_in_their_own_dtype() {
        let (new, all) = ((F32, &[3, 2, 32][..], A), (DType::Q8_0, &[10, 2, 32][..], C));
        check(
            &Op::KvCache,
            &[new, new],
            &[all, all],
            [0, 2 * 192 * 4, 0, 2 * 6 * 34, 0],
        );
    }

    #[test]
    fn lookups_read_the_rows_they_pick() {
        let (ids, table) = ((DType::I32, &[3][..], A), (DType::Q8_0, &[1000, 64][..], W));
        let rows = (F32, &[3, 64][..], A);
        check(&Op::TokenEmbed, &[ids, table], &[rows], [3 * 2 * 34, 12, 768, 0, 0]);
        let x = (F32, &[100, 64][..], A);
        check(&Op::Gather { axis: 0 }, &[x, ids], &[rows], [0, 768 + 12, 768, 0, 0]);
        let slice = Op::Slice {
            axis: 0,
            start: 0,
            end: Some(3),
        };
        check(&slice, &[x], &[rows], [0, 768, 768, 0, 0]);
    }

    #[test]
    fn rows_are_read_once_and_written_once() {
        let (x, gain) = ((F32, &[2, 10][..], A), (F32, &[10][..], W));
        let rms = Op::RmsNorm {
            eps: 1e-5,
            plus_one: false,
        };
        check(&rms, &[x, gain], &[x], [40, 80, 80, 0, 20 * 4]);
        check(&rms, &[x], &[x], [0, 80, 80, 0, 20 * 3]);
        let layer = Op::LayerNorm { eps: 1e-5 };
        check(&layer, &[x, gain, gain], &[x], [80, 80, 80, 0, 20 * 7]);
        check(&Op::Softmax { axis: 1 }, &[x], &[x], [0, 80, 80, 0, 100]);
        check(&Op::Binary(Binary::Add), &[x, x], &[x], [0, 160, 80, 0, 20]);
        check(&Op::Gated(Gate::Silu), &[x, x], &[x], [0, 160, 80, 0, 40]);
        for op in [Op::Unary(Unary::Silu), Op::Scale { factor: 2.0 }] {
            check(&op, &[x], &[x], [0, 80, 80, 0, 20]);
        }
        let clamp = Op::Clamp { min: 0.0, max: 1.0 };
        check(&clamp, &[x], &[x], [0, 80, 80, 0, 40]);
        let sum = Op::Sum { axis: 1, keep: false };
        check(&sum, &[x], &[(F32, &[2], A)], [0, 80, 8, 0, 20]);
        check(
            &Op::TopK { k: 2 },
            &[x],
            &[(F32, &[2, 2], A), (DType::I32, &[2, 2], A)],
            [0, 80, 32, 0, 20],
        );
    }

    #[test]
    fn rotations_count_their_pairs() {
        let rope = Op::Rope(Rope {
            pairing: RopePairing::NeoX,
            scale: 1.0,
            long_from: None,
        });
        // 2 tokens of 3 heads, 4 of 16 elements rotated: 2 pairs.
        let x = (F32, &[2, 3, 16][..], A);
        let (positions, freqs) = ((DType::I32, &[2][..], A), (F32, &[2][..], W));
        check(&rope, &[x, positions, freqs], &[x], [8, 384 + 8, 384, 0, 6 * 6 * 2]);
    }

    #[test]
    fn moves_compute_nothing_and_views_cost_nothing() {
        let (x, half) = ((F32, &[4, 6][..], A), (DType::F16, &[4, 6][..], A));
        check(&Op::Reshape { dims: vec![24] }, &[x], &[(F32, &[24], A)], [0; 5]);
        check(&Op::Cast { to: DType::F16 }, &[x], &[half], [0, 96, 48, 0, 0]);
        check(
            &Op::Transpose { a: 0, b: 1 },
            &[x],
            &[(F32, &[6, 4], A)],
            [0, 96, 96, 0, 0],
        );
        check(
            &Op::Concat { axis: 0 },
            &[x, x],
            &[(F32, &[8, 6], A)],
            [0, 192, 192, 0, 0],
        );
        check(
            &Op::Repeat { axis: 0, n: 2 },
            &[x],
            &[(F32, &[8, 6], A)],
            [0, 96, 192, 0, 0],
        );
        let split = Op::Split {
            axis: 0,
            sizes: vec![1, 3],
        };
        check(&split, &[x], &[(F32, &[1, 6], A), (F32, &[3, 6], A)], [0, 96, 96, 0, 0]);
    }

    #[test]
    fn sizes_beyond_a_machine_saturate() {
        let x = CostValue {
            dtype: F32,
            shape: Shape::new(&[usize::MAX, usize::MAX]),
            traffic: A,
        };
        let cost = Op::MatMul.cost(&[x, x], &[x]);
        assert_eq!((cost.bytes(), cost.ops), (u64::MAX, u64::MAX));
    }
}
