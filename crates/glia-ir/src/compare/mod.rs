//! Runs one graph on two lists of backends and says where they part: every node's values, side by side.
//!
//! The graph is cut into pieces that run one after the other on both sides, each with all of its values as outputs. So
//! the weights and values of one piece are in memory at a time, and a model that is too large to be held twice can be
//! compared. What the passes of `prepare` fuse is fused before; what backends fuse within a program is not, since
//! every value is asked for. So at the end each side runs the whole graph as `prepare` makes it, one after the other,
//! and its outputs are those.

mod cut;
mod difference;

pub use difference::Difference;

use std::collections::HashMap;
use std::sync::Arc;

use glia_core::{Backend, Op, Tensor};

use crate::exec::{ExecConfig, ExecError, GraphExecutor, NonFinite, Passes, WeightSource, WithDerived, check_weights};
use crate::graph::{Graph, Node, Vid};
use crate::pass;
use cut::Piece;

/// Most nodes of a piece: two layers or so of a decoder.
const PIECE_NODES: usize = 32;

/// Backends in order of preference, and how they compute.
#[derive(Clone)]
pub struct Side {
    /// The backends.
    pub backends: Vec<Arc<dyn Backend>>,
    /// Precision, storage of caches and context; the rest is set by [`compare`].
    pub config: ExecConfig,
}

/// What to compare.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Task<'a> {
    /// The graph.
    pub graph: &'a Graph,
    /// Its weights.
    pub weights: &'a dyn WeightSource,
    /// The reference side and the other.
    pub sides: [&'a Side; 2],
    /// The inputs of each step, by name; steps of one sequence.
    pub steps: &'a [Vec<(String, Tensor)>],
    /// Gives each piece of the graph the reference's values on both sides, so that errors do not add up from piece to
    /// piece: what is found is each piece's own.
    pub piece_by_piece: bool,
}

impl<'a> Task<'a> {
    /// A comparison in which errors add up, as they do in a run.
    pub fn new(
        graph: &'a Graph,
        weights: &'a dyn WeightSource,
        sides: [&'a Side; 2],
        steps: &'a [Vec<(String, Tensor)>],
    ) -> Task<'a> {
        Task {
            graph,
            weights,
            sides,
            steps,
            piece_by_piece: false,
        }
    }
}

/// One value of the graph on both sides.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct NodeDifference {
    /// The node that makes it.
    pub node: String,
    /// What the node computes.
    pub op: Op,
    /// The value.
    pub value: String,
    /// Its type.
    pub ty: String,
    /// Who ran the node, on the reference side and on the other.
    pub backends: [String; 2],
    /// How far the other side is from the reference, over all steps.
    pub difference: Difference,
    /// The largest error among the node's inputs: what it began with.
    pub input_error: f64,
}

/// Runs both sides. `output` is shown the declared outputs of each step, reference first, of runs of the whole graph;
/// `progress` how many nodes are done, of how many: each counts twice, once alone and once in the whole. Returns a line per value in the order in which nodes run; views and caches, which
/// show what goes into them, have none.
///
/// # Errors
/// [`ExecError`] of either side. Values that are not finite are no errors: they are compared.
pub fn compare(
    task: &Task<'_>,
    mut output: impl FnMut(&str, [&Tensor; 2]),
    mut progress: impl FnMut(usize, usize),
) -> Result<Vec<NodeDifference>, ExecError> {
    task.graph.verify()?;
    // Whole rows are compared, so none are left out before the head.
    let passes: Vec<pass::Pass> = pass::PIPELINE
        .iter()
        .copied()
        .filter(|p| p.name != "select_rows")
        .collect();
    let graph = pass::run_passes(task.graph, &passes)?;
    check_weights(&graph, task.weights)?;
    let folded = pass::fold_weights(&graph, None)?;
    let weights = WithDerived {
        source: task.weights,
        derived: &folded.derived,
    };
    let mut walk = Walk::new(task, &folded.graph, &weights);
    let n_nodes = folded.graph.nodes.len();
    for piece in cut::pieces(&folded.graph, PIECE_NODES) {
        progress(piece.nodes.start, 2 * n_nodes);
        walk.piece(&piece)?;
    }
    let found = walk.found;
    progress(n_nodes, 2 * n_nodes);
    let reference = whole(task, task.sides[0])?;
    progress(n_nodes + n_nodes / 2, 2 * n_nodes);
    let other = whole(task, task.sides[1])?;
    for (a, b) in reference.iter().zip(&other) {
        for (name, a) in a {
            if let Some((_, b)) = b.iter().find(|(other, _)| other == name) {
                output(name, [a, b]);
            }
        }
    }
    progress(2 * n_nodes, 2 * n_nodes);
    Ok(found)
}

/// Declared outputs of each step, by name.
type Outputs = Vec<Vec<(String, Tensor)>>;

/// Runs the whole graph on one side, as it is run when nothing is compared.
fn whole(task: &Task<'_>, side: &Side) -> Result<Outputs, ExecError> {
    let config = config(task, side);
    let mut executor = GraphExecutor::prepare(task.graph.clone(), task.weights, side.backends.clone(), config)?;
    let mut all = Vec::with_capacity(task.steps.len());
    for step in task.steps {
        let given: Vec<(&str, Tensor)> = step
            .iter()
            .map(|(name, tensor)| (name.as_str(), tensor.clone()))
            .collect();
        let outputs = executor.run(&given)?;
        let named = task
            .graph
            .outputs
            .iter()
            .filter_map(|o| Some((o.name.clone(), outputs.get(&o.name)?.clone())));
        all.push(named.collect());
    }
    Ok(all)
}

/// How a side computes the steps: values that are not finite are no errors.
fn config(task: &Task<'_>, side: &Side) -> ExecConfig {
    let rows = |step: &Vec<(String, Tensor)>| step.iter().filter_map(|(_, t)| t.shape().first().copied()).max();
    let most = task.steps.iter().filter_map(rows).max().unwrap_or(1).max(1);
    let config = side.config.clone().with_non_finite(NonFinite::Allow);
    config.with_max_step_tokens(most)
}

struct Walk<'a> {
    task: &'a Task<'a>,
    graph: &'a Graph,
    weights: &'a WithDerived<'a>,
    /// For each side and step, the values that later pieces read.
    carried: [Vec<HashMap<Vid, Tensor>>; 2],
    /// The last node that reads each value; every piece takes the caller's inputs.
    last_reader: Vec<usize>,
    /// Error of each value so far; views and caches have their source's.
    errors: Vec<f64>,
    found: Vec<NodeDifference>,
}

impl<'a> Walk<'a> {
    fn new(task: &'a Task<'a>, graph: &'a Graph, weights: &'a WithDerived<'a>) -> Walk<'a> {
        let mut given = vec![HashMap::new(); task.steps.len()];
        for (step, inputs) in task.steps.iter().zip(&mut given) {
            for (name, tensor) in step {
                if let Some(id) = graph.find_value(name) {
                    inputs.insert(id, tensor.clone());
                }
            }
        }
        let mut last_reader: Vec<usize> = graph
            .readers()
            .iter()
            .map(|r| r.last().map_or(0, |r| r.index()))
            .collect();
        for (id, _) in graph.inputs() {
            last_reader[id.index()] = usize::MAX;
        }
        Walk {
            task,
            graph,
            weights,
            carried: [given.clone(), given],
            last_reader,
            errors: vec![0.0; graph.values.len()],
            found: Vec::new(),
        }
    }

    fn piece(&mut self, piece: &Piece) -> Result<(), ExecError> {
        let mut executors = Vec::with_capacity(2);
        for side in self.task.sides {
            executors.push(self.prepare(piece, side)?);
        }
        let mut differences = vec![Difference::default(); piece.outputs.len()];
        for step in 0..self.task.steps.len() {
            let mut results = Vec::with_capacity(2);
            for (side, executor) in executors.iter_mut().enumerate() {
                let from = if self.task.piece_by_piece { 0 } else { side };
                let all = &self.carried[from][step];
                let given = piece
                    .inputs
                    .iter()
                    .filter_map(|v| Some((self.name(*v), all.get(v)?.clone())));
                results.push(executor.run(&given.collect::<Vec<_>>())?);
            }
            for (&v, difference) in piece.outputs.iter().zip(&mut differences) {
                let (Some(a), Some(b)) = (results[0].get(self.name(v)), results[1].get(self.name(v))) else {
                    continue;
                };
                difference.add(a, b);
                if self.last_reader[v.index()] >= piece.nodes.end {
                    for (carried, tensor) in self.carried.iter_mut().zip([a, b]) {
                        carried[step].insert(v, tensor.clone());
                    }
                }
            }
            for carried in &mut self.carried {
                carried[step].retain(|v, _| self.last_reader[v.index()] >= piece.nodes.end);
            }
        }
        self.note(piece, &executors, &differences);
        Ok(())
    }

    fn prepare(&self, piece: &Piece, side: &Side) -> Result<GraphExecutor, ExecError> {
        let config = config(self.task, side).with_passes(Passes::None);
        GraphExecutor::prepare(piece.graph.clone(), self.weights, side.backends.clone(), config)
    }

    fn name(&self, v: Vid) -> &'a str {
        &self.graph.value(v).name
    }

    fn note(&mut self, piece: &Piece, executors: &[GraphExecutor], differences: &[Difference]) {
        let graph = self.graph;
        let of: HashMap<Vid, Difference> = piece.outputs.iter().copied().zip(differences.iter().copied()).collect();
        for node in &graph.nodes[piece.nodes.clone()] {
            let errors = node.inputs.iter().map(|v| self.errors[v.index()]);
            let input_error = errors.fold(0.0, f64::max);
            for &v in &node.outputs {
                let Some(&difference) = of.get(&v).filter(|_| !node.op.is_view()) else {
                    self.errors[v.index()] = input_error;
                    continue;
                };
                self.errors[v.index()] = difference.error();
                self.found.push(NodeDifference {
                    node: node.name.clone(),
                    op: node.op.clone(),
                    value: graph.value(v).name.clone(),
                    ty: graph.value(v).ty.to_string(),
                    backends: [0, 1].map(|side| executors.get(side).map_or(String::new(), |ex| who_runs(ex, node))),
                    difference,
                    input_error,
                });
            }
        }
        if self.task.piece_by_piece {
            // The next piece begins with equal values.
            piece.outputs.iter().for_each(|v| self.errors[v.index()] = 0.0);
        }
    }
}

/// The backend of a node; of one that was replaced by simpler ones, that of the last of them.
fn who_runs(executor: &GraphExecutor, node: &Node) -> String {
    let plan = executor.plan();
    let at = plan.graph.nodes.iter().rposition(|n| n.name == node.name);
    let region = plan
        .regions
        .iter()
        .find(|r| at.is_some_and(|at| (r.nodes.0..r.nodes.1).contains(&at)));
    region.map_or(String::new(), |r| r.backend_name.clone())
}
