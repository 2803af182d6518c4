//! From the times of nodes to what is reported: sums per op kind and per layer, with bytes and operations.

use std::collections::HashMap;
use std::time::Duration;

use glia_backend_cpu::ceiling::{Ceiling, Ceilings};
use glia_core::{Cost, Op, Precision};
use glia_ir::{Graph, GraphExecutor, NodeId, StepStats, ValueSource};

use super::measure::{Forward, Runs};

/// Everything that was measured.
pub struct Profile {
    /// The model as it was named.
    pub model: String,
    /// Instructions and threads.
    pub machine: String,
    pub precision: Precision,
    /// `None` where they were left out.
    pub ceilings: Option<Ceilings>,
    pub phases: Vec<Phase>,
}

/// The forwards of one kind.
pub struct Phase {
    /// `prefill of 512 tokens`.
    pub name: String,
    /// Tokens of one forward.
    pub n_tokens: usize,
    pub forwards: Vec<Span>,
    pub steps: Vec<StepSpan>,
    /// Times of nodes in the order in which they ended.
    pub nodes: Vec<NodeSpan>,
    /// Sums over all forwards, the longest first.
    pub by_op: Vec<Row>,
    /// Sums over all forwards, in the order of the graph.
    pub by_layer: Vec<Row>,
}

/// A piece of time, since the profile began.
#[derive(Clone, Copy)]
pub struct Span {
    pub start: Duration,
    pub time: Duration,
}

/// A step of a forward.
pub struct StepSpan {
    pub span: Span,
    /// Rows of the step.
    pub n_rows: usize,
    /// Tokens before it.
    pub past: usize,
}

/// A node, or a part of it, in a step.
pub struct NodeSpan {
    pub span: Span,
    pub node: String,
    pub kind: &'static str,
    /// `f32[1, 576]`, one per output.
    pub shape: String,
    /// What the whole node moves and computes in this step.
    pub cost: Cost,
}

/// A sum over nodes.
#[derive(Clone, Default)]
pub struct Row {
    pub name: String,
    /// Nodes that ran.
    pub n_calls: usize,
    pub time: Duration,
    pub cost: Cost,
    /// Those of `cost.ops` that the int8 kernels compute.
    pub int8_ops: u64,
}

impl Row {
    fn named(name: &str) -> Row {
        Row {
            name: name.to_owned(),
            ..Row::default()
        }
    }

    fn add(&mut self, other: &Row) {
        self.n_calls += other.n_calls;
        self.time += other.time;
        self.cost += other.cost;
        self.int8_ops += other.int8_ops;
    }

    /// Operations per second at which this mix of int8 and other operations peaks.
    pub fn peak_ops(&self, ceiling: &Ceiling) -> f64 {
        if self.cost.ops == 0 {
            return ceiling.f32_ops;
        }
        let (int8, all) = (self.int8_ops as f64, self.cost.ops as f64);
        all / (int8 / ceiling.int8_ops + (all - int8) / ceiling.f32_ops)
    }

    /// The share of the machine's ceiling that was reached, 0 to 1.
    pub fn share_of(&self, ceiling: &Ceiling) -> f64 {
        let (bytes, ops) = (self.cost.bytes() as f64, self.cost.ops as f64);
        ceiling.share(self.time.as_secs_f64(), bytes, ops, self.peak_ops(ceiling))
    }
}

impl Phase {
    /// Wall time of all forwards.
    pub fn wall(&self) -> Duration {
        self.forwards.iter().map(|f| f.time).sum()
    }

    /// The sum of all nodes.
    pub fn total(&self) -> Row {
        let mut total = Row::named("all ops");
        self.by_op.iter().for_each(|row| total.add(row));
        total
    }

    /// Wall time that no op accounts for.
    pub fn rest(&self) -> Duration {
        self.wall().saturating_sub(self.total().time)
    }

    /// Tokens per second, as profiled.
    pub fn tokens_per_s(&self) -> f64 {
        (self.n_tokens * self.forwards.len()) as f64 / self.wall().as_secs_f64().max(1e-9)
    }
}

impl Profile {
    /// The ceiling of as many threads as ran.
    pub fn ceiling(&self) -> Option<&Ceiling> {
        self.ceilings.as_ref()?.most_threads()
    }

    /// The same with what these runs have measured.
    pub fn with_phases(mut self, executor: &GraphExecutor, runs: Vec<Runs>) -> Profile {
        let precision = self.precision;
        let of = |runs: &Runs| Collect::new(executor, precision, runs).phase(runs);
        self.phases = runs.iter().map(of).collect();
        self
    }
}

struct Collect<'a> {
    executor: &'a GraphExecutor,
    precision: Precision,
    layers: Vec<String>,
    out: Phase,
}

impl<'a> Collect<'a> {
    fn new(executor: &'a GraphExecutor, precision: Precision, runs: &Runs) -> Collect<'a> {
        Collect {
            executor,
            precision,
            layers: layers(executor.graph()),
            out: Phase {
                name: runs.name.clone(),
                n_tokens: runs.n_tokens,
                forwards: Vec::new(),
                steps: Vec::new(),
                nodes: Vec::new(),
                by_op: Vec::new(),
                by_layer: Vec::new(),
            },
        }
    }

    fn phase(mut self, runs: &Runs) -> Phase {
        for forward in &runs.forwards {
            self.out.forwards.push(Span {
                start: forward.start,
                time: forward.time,
            });
            for step in &forward.stats.steps {
                self.step(forward, step);
            }
        }
        self.out.by_op.sort_by_key(|row| std::cmp::Reverse(row.time));
        let place = |row: &Row| self.layers.iter().position(|l| *l == row.name);
        self.out.by_layer.sort_by_key(place);
        self.out
    }

    fn step(&mut self, forward: &Forward, step: &StepStats) {
        self.out.steps.push(StepSpan {
            span: Span {
                start: forward.start + step.start,
                time: step.time,
            },
            n_rows: step.sizes.t,
            past: step.sizes.p,
        });
        let mut of_nodes: HashMap<NodeId, Row> = HashMap::new();
        for time in &step.nodes {
            let graph = self.executor.graph();
            let Some(node) = graph.nodes.get(time.node.index()) else {
                continue;
            };
            let row = of_nodes.entry(time.node).or_insert_with(|| {
                let cost = step.cost(self.executor.plan(), time.node).unwrap_or_default();
                Row {
                    n_calls: 1,
                    cost,
                    int8_ops: if self.is_int8(&node.op, time.node) { cost.ops } else { 0 },
                    ..Row::default()
                }
            });
            row.time += time.time;
            let shape = |id| {
                let ty = &graph.value(id).ty;
                let dims = ty.shape(&step.sizes).map(|s| s.to_string());
                format!("{}{}", ty.dtype, dims.unwrap_or_default())
            };
            self.out.nodes.push(NodeSpan {
                span: Span {
                    start: forward.start + time.start,
                    time: time.time,
                },
                node: node.name.clone(),
                kind: node.op.kind(),
                shape: node.outputs.iter().map(|&id| shape(id)).collect::<Vec<_>>().join(", "),
                cost: row.cost,
            });
        }
        for (id, row) in of_nodes {
            let (kind, layer) = (self.executor.graph().node(id).op.kind(), &self.layers[id.index()]);
            add(&mut self.out.by_op, kind, &row);
            add(&mut self.out.by_layer, layer, &row);
        }
    }

    /// Whether the int8 kernels compute it: products with quantised weights, unless exactness is asked for.
    fn is_int8(&self, op: &Op, id: NodeId) -> bool {
        let graph = self.executor.graph();
        let weight = graph.node(id).inputs.get(1).map(|&w| graph.value(w));
        let quantised = weight.is_some_and(|w| w.source == ValueSource::Weight && w.ty.dtype.is_quantized());
        self.precision == Precision::Fast && matches!(op, Op::MatMul) && quantised
    }
}

fn add(rows: &mut Vec<Row>, name: &str, row: &Row) {
    match rows.iter_mut().find(|r| r.name == name) {
        Some(sum) => sum.add(row),
        None => {
            let mut sum = Row::named(name);
            sum.add(row);
            rows.push(sum);
        }
    }
}

fn layers(graph: &Graph) -> Vec<String> {
    let mut layers = Layers::default();
    graph.nodes.iter().map(|n| layers.of(&n.name)).collect()
}

/// The layer that each node belongs to: `layer 3` where its name says so, else what comes before the first layer or
/// after the last. Nodes are asked about in their order.
#[derive(Default)]
pub struct Layers {
    seen: bool,
}

impl Layers {
    /// The layer of the next node.
    pub fn of(&mut self, node: &str) -> String {
        match layer_index(node) {
            Some(i) => {
                self.seen = true;
                format!("layer {i}")
            }
            None if self.seen => "output head".to_owned(),
            None => "embedding".to_owned(),
        }
    }
}

/// The number in `layers.3.mlp.up_proj`.
fn layer_index(name: &str) -> Option<usize> {
    let (_, rest) = name.split_once("layers.")?;
    rest.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_in_names() {
        for (name, index) in [
            ("layers.3.mlp.up_proj", Some(3)),
            ("model.layers.12", Some(12)),
            ("lm_head", None),
            ("layers.x.y", None),
        ] {
            assert_eq!(layer_index(name), index, "{name}");
        }
    }
}
