//! The planner: who runs which node, how long values live, where they lie in memory. From a verified graph to
//! [`Segment`]s, one per backend region. Runs nothing and reads no weights.

mod assign;
mod copies;
mod error;
mod fallback;
mod fit;
mod lifetime;
mod lower;
mod memory;
mod print;
mod regroup;
mod rows;
mod slots;

pub use copies::BorderCopy;
pub use error::PlanError;
pub use fallback::{Fallback, FallbackGroup, FallbackReason};
pub use memory::MemoryPlan;
pub use rows::RowFlow;

use std::collections::HashMap;
use std::sync::Arc;

use glia_core::{Backend, DType, MemorySpace, Segment, Sizes};

use crate::graph::{Graph, Vid};
use assign::Support;

/// What fixes the sizes that are planned for.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PlanLimits {
    /// Most rows of a step.
    pub max_step_tokens: usize,
    /// Most tokens of a sequence.
    pub max_context: usize,
    /// Storage dtypes of keys and values.
    pub kv_dtypes: [DType; 2],
}

impl PlanLimits {
    /// Limits with F32 caches.
    pub fn new(max_step_tokens: usize, max_context: usize) -> PlanLimits {
        PlanLimits {
            max_step_tokens,
            max_context,
            kv_dtypes: [DType::F32; 2],
        }
    }

    /// The largest step: as many rows as it may have, all wanted, the rest of the context before them.
    pub fn largest(&self) -> Sizes {
        self.sizes(self.max_step_tokens.min(self.max_context))
    }

    /// A step of one token at the end of a full context.
    pub fn one_token(&self) -> Sizes {
        self.sizes(1)
    }

    fn sizes(&self, t: usize) -> Sizes {
        Sizes {
            t,
            p: self.max_context.saturating_sub(t),
            r: t,
            n: 1,
            s: t,
        }
    }
}

/// A maximal run of nodes for one backend.
#[derive(Clone, Debug)]
pub struct Region {
    /// Index into the list of backends.
    pub backend: usize,
    /// Name of the backend.
    pub backend_name: String,
    /// Where its tensors live.
    pub space: MemorySpace,
    /// Its nodes, first and past the last.
    pub nodes: (usize, usize),
    /// What it runs.
    pub segment: Arc<Segment>,
    /// Where each of the segment's inputs comes from: an index into [`Plan::wires`].
    pub imports: Vec<usize>,
    /// Where each of the segment's outputs goes: an index into [`Plan::wires`].
    pub exports: Vec<usize>,
    /// For each of the segment's outputs, whether only the host reads it: the caller, or regions in main memory.
    pub exports_to_host: Vec<bool>,
    /// Wires that nobody reads after it.
    pub frees: Vec<usize>,
    /// The backend does not run all of it itself: some nodes are left to the interpreter, so it is not compiled.
    pub interpret: bool,
}

/// A planned graph.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What it is a plan of; the order of its nodes may differ from the given one where that leaves fewer regions.
    pub graph: Arc<Graph>,
    /// Names of the backends, in order of preference.
    pub backends: Vec<String>,
    /// Regions in the order in which they run.
    pub regions: Vec<Region>,
    /// Values that cross regions, come from the caller or are returned.
    pub wires: Vec<Vid>,
    /// For each declared output, its wire.
    pub outputs: Vec<usize>,
    /// Nodes that the first backend does not run itself, in order.
    pub fallbacks: Vec<Fallback>,
    /// Copies at borders between memory spaces, in the order in which a step makes them.
    pub copies: Vec<BorderCopy>,
    /// The weights, in the order of their ids.
    pub weights: Vec<Vid>,
    /// What splitting and batching may do.
    pub rows: RowFlow,
    /// What fixed the sizes.
    pub limits: PlanLimits,
}

impl Plan {
    /// Plans a verified graph for these backends, in order of preference.
    ///
    /// # Errors
    /// [`PlanError::Unsupported`] for a node that nobody runs, [`PlanError::TooLarge`] when sizes overflow.
    pub fn new(graph: Arc<Graph>, backends: &[Arc<dyn Backend>], limits: PlanLimits) -> Result<Plan, PlanError> {
        if backends.is_empty() {
            return Err(PlanError::NoBackends);
        }
        let (mut graph, mut support) = (graph.clone(), Support::of(&graph, backends));
        let mut assigned = assign::assign(&graph, backends, &support)?;
        if let Some(order) = regroup::order(&graph, &assigned, backends.len()) {
            graph = Arc::new(regroup::reorder(&graph, &order));
            support = support.reordered(&order);
            assigned = order.iter().map(|id| assigned[id.index()]).collect();
        }
        let fallbacks = fallback::fallbacks(&graph, backends, &assigned, &support);
        let weights: Vec<Vid> = graph.weights().map(|(id, _)| id).collect();
        let mut wires = Wires::default();
        let mut regions = Vec::new();
        let mut start = 0;
        while start < assigned.len() {
            let choice = assigned[start].backend;
            let end = (start..assigned.len())
                .find(|&i| assigned[i].backend != choice)
                .unwrap_or(assigned.len());
            let backend = &backends[choice];
            let exported = exports_of(&graph, start, end);
            let lowered = lower::lower(&graph, start..end, &exported, &weights);
            let mut segment = lowered.segment;
            lifetime::fill_frees(&mut segment);
            slots::fill_slots(&mut segment, &limits)?;
            regions.push(Region {
                backend: choice,
                backend_name: backend.name().to_owned(),
                space: backend.space(),
                nodes: (start, end),
                segment: Arc::new(segment),
                imports: lowered.imports.iter().map(|&id| wires.index(id)).collect(),
                exports: exported.iter().map(|&id| wires.index(id)).collect(),
                exports_to_host: Vec::new(),
                frees: Vec::new(),
                interpret: assigned[start..end].iter().any(|a| !a.native),
            });
            start = end;
        }
        let outputs: Vec<usize> = graph.outputs.iter().map(|o| wires.index(o.value)).collect();
        let copies = copies::copies(&regions, wires.ids.len());
        copies::note_readers(&mut regions, &outputs, wires.ids.len());
        let mut plan = Plan {
            rows: RowFlow::of(&graph),
            backends: backends.iter().map(|b| b.name().to_owned()).collect(),
            graph,
            regions,
            wires: wires.ids,
            outputs,
            fallbacks,
            copies,
            weights,
            limits,
        };
        plan.check_borders();
        plan.memory()?;
        Ok(plan)
    }

    /// What carries more than rows keeps sequences, or the pieces of a run, apart.
    fn check_borders(&mut self) {
        for &wire in self.regions.iter().flat_map(|r| r.exports.iter().chain(&r.imports)) {
            let value = self.graph.value(self.wires[wire]);
            if value.source.injected().is_none() {
                self.rows.note_border(&value.name, &value.ty);
            }
        }
        for output in &self.graph.outputs {
            self.rows.note_output(&output.name, &self.graph.value(output.value).ty);
        }
    }
}

/// Numbers the values that cross regions.
#[derive(Default)]
struct Wires {
    ids: Vec<Vid>,
    by_id: HashMap<Vid, usize>,
}

impl Wires {
    fn index(&mut self, id: Vid) -> usize {
        *self.by_id.entry(id).or_insert_with(|| {
            self.ids.push(id);
            self.ids.len() - 1
        })
    }
}

/// Values made in `start..end` that later nodes read or the graph returns, in the order in which they are made.
fn exports_of(graph: &Graph, start: usize, end: usize) -> Vec<Vid> {
    let mut wanted: std::collections::HashSet<Vid> = graph.outputs.iter().map(|o| o.value).collect();
    wanted.extend(graph.nodes[end..].iter().flat_map(|n| &n.inputs));
    let made = graph.nodes[start..end].iter().flat_map(|n| &n.outputs);
    made.copied().filter(|id| wanted.contains(id)).collect()
}
