//! How fast a case runs, beside what it must move and compute at least.

use std::time::{Duration, Instant};

use super::run::Prepared;
use crate::conformance::case::{Cx, guarded};
use crate::{
    BackendError, CompileOptions, CostValue, NodeView, Precision, SeqId, SeqRows, StateOptions, Step, Tensor, Traffic,
};

/// How fast a case ran.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Timing {
    /// Median time of a run.
    pub time: Duration,
    /// Bytes that it must move at least: operands and results, once each.
    pub bytes: u64,
    /// Arithmetic operations.
    pub ops: u64,
}

impl Timing {
    /// Bytes moved, in units of 10^9 a second.
    pub fn gb_per_s(&self) -> f64 {
        self.bytes as f64 / self.time.as_secs_f64().max(1e-9) / 1e9
    }

    /// Operations, in units of 10^9 a second.
    pub fn gflop_per_s(&self) -> f64 {
        self.ops as f64 / self.time.as_secs_f64().max(1e-9) / 1e9
    }
}

/// Time spent on a case, and most runs of it.
const BUDGET: Duration = Duration::from_millis(40);
const MOST_RUNS: usize = 200;

impl Prepared<'_> {
    /// Times the case as the backend runs it best: compiled for speed, else node by node.
    pub fn time(&self, cx: &Cx) -> Result<Timing, BackendError> {
        let built = self.segment(false);
        let options = CompileOptions::new(&*built.weights, Precision::Fast);
        let times = match guarded(|| cx.backend.compile(&built.segment, &options))? {
            Some(program) => {
                let mut state = program.open(&StateOptions::default())?;
                state.create(SeqId(1))?;
                let rows = [SeqRows {
                    seq: SeqId(1),
                    first_row: 0,
                    n_rows: 1,
                    pos: 0,
                }];
                let inputs: Vec<Tensor> = self.activations().cloned().collect();
                repeat(|| {
                    let ran = guarded(|| state.run(&Step::new(&rows, &inputs, &[])));
                    state.rollback();
                    self.wait_for(cx, &ran?)
                })?
            }
            None => {
                let packed = self.packed(cx)?;
                repeat(|| self.wait_for(cx, &guarded(|| self.by_packed_node(cx, &packed))?))?
            }
        };
        let (bytes, ops) = self.cost();
        Ok(Timing {
            time: times,
            bytes,
            ops,
        })
    }

    fn wait_for(&self, cx: &Cx, outputs: &[Tensor]) -> Result<(), BackendError> {
        for tensor in outputs.iter().filter(|t| t.check_on_host().is_err()) {
            cx.backend.download(tensor)?;
        }
        Ok(())
    }

    fn cost(&self) -> (u64, u64) {
        let value = |tensor: &Tensor, weight: bool| CostValue {
            dtype: tensor.dtype(),
            shape: *tensor.shape(),
            traffic: if weight { Traffic::Weight } else { Traffic::Activation },
        };
        let inputs: Vec<CostValue> = self
            .inputs
            .iter()
            .zip(&self.case.inputs)
            .map(|(t, i)| value(t, i.is_weight))
            .collect();
        let outputs: Vec<CostValue> = self.want.iter().map(|t| value(t, false)).collect();
        let cost = self.case.op.cost(&inputs, &outputs);
        (cost.bytes(), cost.ops)
    }

    /// Whether the node can be timed here: supported, and meant to give an answer.
    pub fn is_timed(&self, cx: &Cx) -> bool {
        let flags: Vec<bool> = self.case.inputs.iter().map(|i| i.is_weight).collect();
        let view = NodeView::new("case", &self.case.op, &self.types, &self.outputs, &flags);
        self.case.fails.is_none() && cx.backend.supports_node(&view)
    }
}

fn repeat(mut run: impl FnMut() -> Result<(), BackendError>) -> Result<Duration, BackendError> {
    run()?;
    let (began, mut times) = (Instant::now(), Vec::new());
    while times.len() < MOST_RUNS && (times.is_empty() || began.elapsed() < BUDGET) {
        let start = Instant::now();
        run()?;
        times.push(start.elapsed());
    }
    times.sort();
    Ok(times[times.len() / 2])
}
