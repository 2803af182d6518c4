//! A plain evaluator in f64 for property tests: one step of one new sequence. Written from the definitions of the ops,
//! index by index, and sharing nothing with the code under test.

use std::collections::HashMap;

use glia_core::{Binary, Gate, Op, RopePairing, Sdpa, Unary};
use glia_ir::{Graph, ValueSource};

/// An array; integers are held as f64.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    pub shape: Vec<usize>,
    pub data: Vec<f64>,
}

impl Array {
    pub fn new(shape: &[usize], data: Vec<f64>) -> Array {
        assert_eq!(shape.iter().product::<usize>(), data.len());
        Array {
            shape: shape.to_vec(),
            data,
        }
    }

    /// An array whose element at each index `f` gives.
    fn from_fn(shape: &[usize], mut f: impl FnMut(&[usize]) -> f64) -> Array {
        let n = shape.iter().product();
        let mut index = vec![0; shape.len()];
        let mut data = Vec::with_capacity(n);
        for _ in 0..n {
            data.push(f(&index));
            for axis in (0..shape.len()).rev() {
                index[axis] += 1;
                if index[axis] < shape[axis] {
                    break;
                }
                index[axis] = 0;
            }
        }
        Array::new(shape, data)
    }

    fn at(&self, index: &[usize]) -> f64 {
        let offset = index.iter().zip(&self.shape).fold(0, |n, (&i, &d)| n * d + i);
        self.data[offset]
    }

    /// As `at`, with dimensions of size 1 and missing leading ones repeated.
    fn at_broadcast(&self, index: &[usize]) -> f64 {
        let tail = &index[index.len() - self.shape.len()..];
        let index: Vec<usize> = tail
            .iter()
            .zip(&self.shape)
            .map(|(&i, &d)| if d == 1 { 0 } else { i })
            .collect();
        self.at(&index)
    }

    fn map(&self, f: impl Fn(f64) -> f64) -> Array {
        Array::new(&self.shape, self.data.iter().map(|&x| f(x)).collect())
    }

    fn resized(&self, axis: usize, size: usize) -> Vec<usize> {
        let mut shape = self.shape.clone();
        shape[axis] = size;
        shape
    }

    /// Replaces each line along `axis` by what `f` makes of it.
    fn lines(&self, axis: usize, size: usize, f: impl Fn(&[f64]) -> Vec<f64>) -> Array {
        Array::from_fn(&self.resized(axis, size), |index| {
            let mut from = index.to_vec();
            let line: Vec<f64> = (0..self.shape[axis])
                .map(|i| {
                    from[axis] = i;
                    self.at(&from)
                })
                .collect();
            f(&line)[index[axis]]
        })
    }

    /// Picks element `pick(i)` of `axis` for each `i` below `size`.
    fn picked(&self, axis: usize, size: usize, pick: impl Fn(usize) -> usize) -> Array {
        Array::from_fn(&self.resized(axis, size), |index| {
            let mut from = index.to_vec();
            from[axis] = pick(index[axis]);
            self.at(&from)
        })
    }
}

/// Values of the declared outputs of a graph, given those of inputs, injected values and weights by name.
pub fn evaluate(graph: &Graph, given: &HashMap<String, Array>) -> Vec<Array> {
    let given_of = |v: &glia_ir::Value| match v.source {
        ValueSource::Node { .. } => None,
        _ => Some(given[&v.name].clone()),
    };
    let mut values: Vec<Option<Array>> = graph.values.iter().map(given_of).collect();
    let get = |values: &[Option<Array>], id: glia_ir::Vid| values[id.index()].clone().expect("verified");
    for node in &graph.nodes {
        let inputs: Vec<Array> = node.inputs.iter().map(|&id| get(&values, id)).collect();
        for (&id, result) in node.outputs.iter().zip(run(&node.op, &inputs)) {
            values[id.index()] = Some(result);
        }
    }
    graph.outputs.iter().map(|o| get(&values, o.value)).collect()
}

/// One op; its state, if any, is empty before.
pub fn run(op: &Op, inputs: &[Array]) -> Vec<Array> {
    let x = &inputs[0];
    let last = x.shape.len().saturating_sub(1);
    let one = match op {
        Op::MatMul => matmul(inputs),
        Op::Binary(f) => {
            let rank = x.shape.len().max(inputs[1].shape.len());
            let size = |a: &Array, i: usize| (i + a.shape.len()).checked_sub(rank).map_or(1, |i| a.shape[i]);
            let dim = |i| match size(x, i) {
                1 => size(&inputs[1], i),
                d => d,
            };
            let shape: Vec<usize> = (0..rank).map(dim).collect();
            Array::from_fn(&shape, |index| {
                let (a, b) = (x.at_broadcast(index), inputs[1].at_broadcast(index));
                match f {
                    Binary::Add => a + b,
                    Binary::Sub => a - b,
                    Binary::Mul => a * b,
                    Binary::Div => a / b,
                }
            })
        }
        Op::Unary(f) => x.map(|x| unary(*f, x)),
        Op::Scale { factor } => x.map(|x| x * f64::from(*factor)),
        Op::Clamp { min, max } => x.map(|x| x.max(f64::from(*min)).min(f64::from(*max))),
        Op::Cast { .. } => x.clone(),
        Op::Gated(gate) => {
            let f = match gate {
                Gate::Silu => Unary::Silu,
                Gate::Gelu => Unary::Gelu,
                Gate::GeluTanh => Unary::GeluTanh,
            };
            Array::from_fn(&x.shape, |i| unary(f, x.at(i)) * inputs[1].at(i))
        }
        Op::RmsNorm { eps, plus_one } => {
            let d = x.shape[last];
            let norm = x.lines(last, d, |l| {
                let mean = l.iter().map(|x| x * x).sum::<f64>() / d as f64;
                l.iter().map(|x| x / (mean + f64::from(*eps)).sqrt()).collect()
            });
            let gain = |i: usize| {
                inputs
                    .get(1)
                    .map_or(1.0, |g| g.data[i] + f64::from(u8::from(*plus_one)))
            };
            Array::from_fn(&x.shape, |i| norm.at(i) * gain(i[last]))
        }
        Op::LayerNorm { eps } => {
            let d = x.shape[last];
            let norm = x.lines(last, d, |l| {
                let mean = l.iter().sum::<f64>() / d as f64;
                let var = l.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / d as f64;
                l.iter().map(|x| (x - mean) / (var + f64::from(*eps)).sqrt()).collect()
            });
            let of = |n: usize, i: usize, none: f64| inputs.get(n).map_or(none, |g| g.data[i]);
            Array::from_fn(&x.shape, |i| norm.at(i) * of(1, i[last], 1.0) + of(2, i[last], 0.0))
        }
        Op::Softmax { axis } => x.lines(*axis, x.shape[*axis], softmax),
        Op::TokenEmbed => inputs[1].picked(0, x.data.len(), |i| x.data[i] as usize),
        Op::Gather { axis } => x.picked(*axis, inputs[1].data.len(), |i| inputs[1].data[i] as usize),
        Op::Rope(rope) => {
            let half = inputs[2].data.len();
            Array::from_fn(&x.shape, |i| {
                let e = i[2];
                let (pair, second) = match rope.pairing {
                    _ if e >= 2 * half => return x.at(i),
                    RopePairing::NeoX => (e % half, e >= half),
                    RopePairing::Interleaved => (e / 2, e % 2 == 1),
                };
                let other = match rope.pairing {
                    RopePairing::NeoX => (e + half) % (2 * half),
                    RopePairing::Interleaved => e ^ 1,
                };
                let (sin, cos) = (inputs[1].data[i[0]] * inputs[2].data[pair]).sin_cos();
                let sign = if second { 1.0 } else { -1.0 };
                (x.at(i) * cos + sign * x.at(&[i[0], i[1], other]) * sin) * f64::from(rope.scale)
            })
        }
        Op::Sdpa(sdpa) => attention(sdpa, inputs),
        Op::KvCache => return inputs.to_vec(),
        Op::Reshape { dims } => {
            let known: usize = dims.iter().filter(|&&d| d >= 0).map(|&d| d as usize).product();
            let size = |&d: &i64| if d < 0 { x.data.len() / known.max(1) } else { d as usize };
            Array::new(&dims.iter().map(size).collect::<Vec<_>>(), x.data.clone())
        }
        Op::Transpose { a, b } => {
            let mut perm: Vec<usize> = (0..=last).collect();
            perm.swap(*a, *b);
            return run(&Op::Permute { perm }, inputs);
        }
        Op::Permute { perm } => {
            let shape: Vec<usize> = perm.iter().map(|&p| x.shape[p]).collect();
            Array::from_fn(&shape, |index| {
                let mut from = vec![0; index.len()];
                perm.iter().zip(index).for_each(|(&p, &i)| from[p] = i);
                x.at(&from)
            })
        }
        Op::Slice { axis, start, end } => {
            let end = end.unwrap_or(x.shape[*axis]);
            x.picked(*axis, end - start, |i| start + i)
        }
        Op::Split { axis, sizes } => {
            let mut start = 0;
            let mut parts = Vec::new();
            for &size in sizes {
                parts.push(x.picked(*axis, size, |i| start + i));
                start += size;
            }
            return parts;
        }
        Op::Concat { axis } => {
            let total = inputs.iter().map(|a| a.shape[*axis]).sum();
            Array::from_fn(&x.resized(*axis, total), |index| {
                let mut index = index.to_vec();
                for part in inputs {
                    if index[*axis] < part.shape[*axis] {
                        return part.at(&index);
                    }
                    index[*axis] -= part.shape[*axis];
                }
                unreachable!("sizes add up")
            })
        }
        Op::Repeat { axis, n } => x.picked(*axis, x.shape[*axis] * n, |i| i / n),
        Op::TopK { k } => {
            let order = |l: &[f64]| {
                let mut order: Vec<usize> = (0..l.len()).collect();
                order.sort_by(|&a, &b| l[b].total_cmp(&l[a]).then(a.cmp(&b)));
                order
            };
            let values = x.lines(last, *k, |l| order(l).into_iter().map(|i| l[i]).collect());
            return vec![
                values,
                x.lines(last, *k, |l| order(l).into_iter().map(|i| i as f64).collect()),
            ];
        }
        Op::Sum { axis, keep } | Op::Mean { axis, keep } => {
            let n = if matches!(op, Op::Sum { .. }) {
                1.0
            } else {
                x.shape[*axis] as f64
            };
            let mut sum = x.lines(*axis, 1, |l| vec![l.iter().sum::<f64>() / n]);
            if !keep {
                sum.shape.remove(*axis);
            }
            sum
        }
        other => panic!("the evaluator has no {}", other.kind()),
    };
    vec![one]
}

fn unary(f: Unary, x: f64) -> f64 {
    match f {
        Unary::Silu => x / (1.0 + (-x).exp()),
        Unary::Gelu => x / 2.0 * (1.0 + erf(x / std::f64::consts::SQRT_2)),
        Unary::GeluTanh => {
            let z = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
            x / 2.0 * (1.0 + z.tanh())
        }
        Unary::Relu => x.max(0.0),
        Unary::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Unary::Tanh => x.tanh(),
        Unary::Exp => x.exp(),
    }
}

/// `2/√π ∫ e^(-t²)` over 0..x by Simpson's rule: slow and plain.
fn erf(x: f64) -> f64 {
    let x = x.clamp(-6.0, 6.0);
    let n = 400;
    let h = x / f64::from(n);
    let weight = |i: i32| match i {
        0 => 1.0,
        i if i == n => 1.0,
        i if i % 2 == 1 => 4.0,
        _ => 2.0,
    };
    let sum: f64 = (0..=n).map(|i| weight(i) * (-(h * f64::from(i)).powi(2)).exp()).sum();
    2.0 / std::f64::consts::PI.sqrt() * sum * h / 3.0
}

fn softmax(line: &[f64]) -> Vec<f64> {
    let max = line.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exp: Vec<f64> = line.iter().map(|x| (x - max).exp()).collect();
    let sum: f64 = exp.iter().sum();
    exp.iter().map(|e| e / sum).collect()
}

fn matmul(inputs: &[Array]) -> Array {
    let (x, w) = (&inputs[0], &inputs[1]);
    let (k, rank) = (x.shape[x.shape.len() - 1], w.shape.len());
    Array::from_fn(&x.resized(x.shape.len() - 1, w.shape[rank - 2]), |index| {
        let (&n, front) = index.split_last().expect("rank 1 or more");
        let row = |i: usize| x.at(&[front, &[i]].concat());
        let batch = if rank > 2 { &front[..rank - 2] } else { &[] };
        let column = |i: usize| w.at(&[batch, &[n, i]].concat());
        (0..k).map(|i| row(i) * column(i)).sum::<f64>() + inputs.get(2).map_or(0.0, |b| b.data[n])
    })
}

fn attention(sdpa: &Sdpa, inputs: &[Array]) -> Array {
    let (q, k, v) = (&inputs[0], &inputs[1], &inputs[2]);
    let (n_queries, n_keys) = (q.shape[0], k.shape[0]);
    let group = q.shape[1] / k.shape[1];
    let sinks = sdpa.sinks.then(|| &inputs[inputs.len() - 1]);
    Array::from_fn(&[n_queries, q.shape[1], v.shape[2]], |index| {
        let (i, h, e) = (index[0], index[1], index[2]);
        // Negative where a query comes before all keys: it sees none, and its row is NaN.
        let at = (i + n_keys) as isize - n_queries as isize;
        let mut scores: Vec<f64> = (0..n_keys)
            .map(|j| {
                let dot: f64 = (0..q.shape[2])
                    .map(|d| q.at(&[i, h, d]) * k.at(&[j, h / group, d]))
                    .sum();
                let mut score = dot * f64::from(sdpa.scale);
                if let Some(cap) = sdpa.softcap.map(f64::from) {
                    score = cap * (score / cap).tanh();
                }
                if (sdpa.causal && j as isize > at) || sdpa.window.is_some_and(|w| at >= (j + w) as isize) {
                    return f64::NEG_INFINITY;
                }
                match sdpa.mask.then(|| &inputs[3]) {
                    Some(mask) if mask.shape.len() == 2 => score + mask.at(&[i, j]),
                    Some(mask) => score + mask.at(&[h, i, j]),
                    None => score,
                }
            })
            .collect();
        scores.extend(sinks.map(|s| s.data[h]));
        let weights = softmax(&scores);
        (0..n_keys).map(|j| weights[j] * v.at(&[j, h / group, e])).sum()
    })
}
