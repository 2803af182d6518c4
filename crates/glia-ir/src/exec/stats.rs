//! Times of a profiled run, and what was copied between memory spaces in any.

use std::collections::BTreeMap;
use std::time::Duration;

use glia_core::{Cost, OpTime, Segment, Sizes};

use super::wires::Copied;
use crate::graph::NodeId;
use crate::plan::Plan;

/// Where the time of a run went. Filled when [`ExecConfig::profile`](super::ExecConfig) is on, else all zero but for
/// the copies, which are always counted.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ExecStats {
    /// Wall time of the run.
    pub total_ms: f64,
    /// Time per op kind.
    pub per_op_ms: BTreeMap<String, f64>,
    /// Time per node, in the order in which they ran first.
    pub per_node_ms: Vec<(String, f64)>,
    /// Whether a time was taken by a device's own clock rather than the host's.
    pub device_clock: bool,
    /// Tensors copied at borders between memory spaces, in all steps: as many per step as the plan's
    /// [`copies`](crate::Plan::copies).
    pub n_copies: usize,
    /// Their bytes.
    pub copied_bytes: usize,
    /// Bytes of declared outputs that came back from a device.
    pub read_back_bytes: usize,
    /// Steps that the run was split into.
    pub n_steps: usize,
    /// Tokens of all sequences.
    pub n_tokens: usize,
    /// Each step, with the times of its nodes.
    pub steps: Vec<StepStats>,
}

/// One step of a profiled run.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct StepStats {
    /// When it began, since the run did.
    pub start: Duration,
    /// How long it took, outputs checked and returned.
    pub time: Duration,
    /// Sizes of the whole step.
    pub sizes: Sizes,
    /// Sizes of each of its sequences.
    pub seqs: Vec<Sizes>,
    /// Times of nodes in the order in which they ended. A node that runs in several parts has several; views have none.
    pub nodes: Vec<NodeTime>,
}

/// Time of a node of the planned graph, or of one part of it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct NodeTime {
    /// The node of [`GraphExecutor::graph`](super::GraphExecutor::graph).
    pub node: NodeId,
    /// When it began, since the run did.
    pub start: Duration,
    /// How long it took.
    pub time: Duration,
}

impl StepStats {
    /// The least that a node moves and computes in this step; `None` for a node that the plan does not have.
    pub fn cost(&self, plan: &Plan, node: NodeId) -> Option<Cost> {
        let region = plan
            .regions
            .iter()
            .find(|r| (r.nodes.0..r.nodes.1).contains(&node.index()))?;
        let instr = region.segment.instrs.get(node.index() - region.nodes.0)?;
        region
            .segment
            .cost(instr, &self.sizes, &self.seqs, plan.limits.kv_dtypes)
    }
}

impl ExecStats {
    /// Adds the copies of a step.
    pub(super) fn count(&mut self, copied: &Copied) {
        self.n_copies = self.n_copies.saturating_add(copied.n_copies);
        self.copied_bytes = self.copied_bytes.saturating_add(copied.bytes);
        self.read_back_bytes = self.read_back_bytes.saturating_add(copied.read_back_bytes);
    }

    /// Adds the times of a segment's part of the last step. `first_node` numbers its first instruction among all,
    /// `offset` is when the part began, since the run did.
    pub(super) fn add(&mut self, segment: &Segment, first_node: usize, offset: Duration, times: &[OpTime]) {
        for time in times {
            let Some(instr) = segment.instrs.get(time.instr) else {
                continue;
            };
            let ms = time.time.as_secs_f64() * 1e3;
            *self.per_op_ms.entry(instr.op.kind().to_owned()).or_default() += ms;
            let at = first_node + time.instr;
            if self.per_node_ms.len() <= at {
                self.per_node_ms.resize(at + 1, (String::new(), 0.0));
            }
            let node = &mut self.per_node_ms[at];
            if node.0.is_empty() {
                node.0.clone_from(&instr.node);
            }
            node.1 += ms;
            self.device_clock |= time.device_clock;
            if let Some(step) = self.steps.last_mut() {
                step.nodes.push(NodeTime {
                    // As many as a graph has nodes, which are numbered so.
                    node: NodeId(at as u32),
                    start: offset.saturating_add(time.start),
                    time: time.time,
                });
            }
        }
    }
}
