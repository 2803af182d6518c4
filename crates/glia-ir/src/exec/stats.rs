//! Times of a profiled run.

use std::collections::BTreeMap;

use glia_core::{OpTime, Segment};

/// Where the time of a run went. Filled when [`ExecConfig::profile`](super::ExecConfig) is on, else all zero.
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
    /// Tensors copied between memory spaces.
    pub n_copies: usize,
    /// Steps that the run was split into.
    pub n_steps: usize,
    /// Tokens of all sequences.
    pub n_tokens: usize,
}

impl ExecStats {
    /// Adds the times of a segment's step; `first_node` numbers its first instruction among all.
    pub(super) fn add(&mut self, segment: &Segment, first_node: usize, times: &[OpTime]) {
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
        }
    }
}
