//! How fast a case runs, beside what it must move and compute at least.

use std::time::{Duration, Instant};

use super::run::Prepared;
use crate::conformance::case::{Cx, guarded};
use crate::conformance::segment::{Built, SegmentBuilder, Slots};
use crate::{
    BackendError, CompileOptions, CostValue, Dim, MemorySpace, NodeView, Op, Precision, SeqId, SeqRows, StateOptions,
    Step, Tensor, Traffic, ValueType,
};

/// How fast a case ran.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Timing {
    /// Median time of an op, or of a step of a segment.
    pub time: Duration,
    /// How often the op ran in a call, each time on its last output. With 1, `time` is that of a whole call: inputs
    /// are handed over, the answer is brought to the host.
    pub n_chained: usize,
    /// Bytes that the op must move at least: operands and results, once each. Of a step, those of all its ops, with
    /// the rows of the cache that they read and append.
    pub bytes: u64,
    /// Its arithmetic operations.
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

/// A call of this time hides what calling costs.
const LONG: Duration = Duration::from_millis(20);
/// Most ops of a chain, and most bytes of its weights, each of which is there as often as there are ops: a weight that
/// was just used would lie in a cache.
const MOST_CHAINED: usize = 64;
const MOST_BYTES: usize = 256 << 20;

impl Prepared<'_> {
    /// Times the case as the backend runs it best: compiled for speed, else node by node. A case of the size of real
    /// models (`chained`) runs several times in a call, so that little of a call's own cost is in the time of an op.
    pub fn time(&self, cx: &Cx, chained: bool) -> Result<Timing, BackendError> {
        let (bytes, ops) = self.cost();
        let timing = |time, n_chained| Timing {
            time,
            n_chained,
            bytes,
            ops,
        };
        let Some(once) = self.of_chain(cx, 1)? else {
            let packed = self.packed(cx)?;
            let time = repeat(|| self.wait_for(cx, &guarded(|| self.by_packed_node(cx, &packed))?))?;
            return Ok(timing(time, 1));
        };
        let most = if chained { self.most_chained() } else { 1 };
        if most < 2 {
            return Ok(timing(once, 1));
        }
        let enough = LONG.as_nanos() / once.as_nanos().max(1);
        let n = usize::try_from(enough).unwrap_or(usize::MAX).clamp(2, most);
        let all = self.of_chain(cx, n)?.unwrap_or(once);
        Ok(timing(all / n as u32, n))
    }

    /// Time of a call that runs the op `n` times, each on the output of the last; `None` from a backend that compiles
    /// nothing.
    fn of_chain(&self, cx: &Cx, n: usize) -> Result<Option<Duration>, BackendError> {
        let by_row = self.n_rows();
        let built = self.chain(cx, n, by_row.is_some());
        let options = CompileOptions::new(&*built.weights, Precision::Fast);
        let Some(program) = guarded(|| cx.backend.compile(&built.segment, &options))? else {
            return Ok(None);
        };
        let mut state = program.open(&StateOptions::default())?;
        state.create(SeqId(1))?;
        let rows = [SeqRows {
            seq: SeqId(1),
            first_row: 0,
            n_rows: by_row.unwrap_or(1),
            pos: 0,
        }];
        let on_host = cx.backend.space() == MemorySpace::HOST || n == 1;
        let home = |tensor: &Tensor| match on_host {
            true => Ok(tensor.clone()),
            false => cx.backend.upload(tensor),
        };
        let inputs: Vec<Tensor> = self.activations().map(home).collect::<Result<_, _>>()?;
        let time = repeat(|| {
            let ran = guarded(|| state.run(&Step::new(&rows, &inputs, &[])));
            state.rollback();
            self.wait_for(cx, &ran?)
        })?;
        Ok(Some(time))
    }

    /// How many times in a row the op can run: its output must do for its first input.
    fn most_chained(&self) -> usize {
        let mut types = self.types.clone();
        let (Some(first), [output]) = (types.first_mut(), &self.outputs[..]) else {
            return 1;
        };
        let fits = !self.case.inputs[0].is_weight && first.dtype == output.dtype;
        first.clone_from(output);
        if !fits || self.case.op.infer(&types).is_err() {
            return 1;
        }
        let weights = self.inputs.iter().zip(&self.case.inputs).filter(|(_, i)| i.is_weight);
        let bytes: usize = weights.map(|(t, _)| t.bytes().map_or(0, <[u8]>::len)).sum();
        (MOST_BYTES / bytes.max(1)).clamp(1, MOST_CHAINED)
    }

    /// The op `n` times; of several, an element per row of the last output comes back.
    fn chain(&self, cx: &Cx, n: usize, by_row: bool) -> Built {
        let mut b = SegmentBuilder::default();
        let mut ids: Vec<_> = (self.inputs.iter().zip(&self.case.inputs).enumerate())
            .map(|(i, (tensor, input))| {
                let mut dims: Vec<Dim> = tensor.shape().iter().map(|&d| d.into()).collect();
                if by_row && !input.is_weight {
                    dims[0] = Dim::T;
                }
                match input.is_weight {
                    true => b.weight(&format!("w{i}.0"), tensor.clone()),
                    false => b.input(&format!("x{i}"), tensor.dtype(), dims),
                }
            })
            .collect();
        let mut outputs = b.node("case.0", self.case.op.clone(), &ids);
        for link in 1..n {
            ids[0] = outputs[0];
            for (i, tensor) in self
                .inputs
                .iter()
                .enumerate()
                .filter(|(i, _)| self.case.inputs[*i].is_weight)
            {
                ids[i] = b.weight(&format!("w{i}.{link}"), tensor.clone());
            }
            outputs = b.node(&format!("case.{link}"), self.case.op.clone(), &ids);
        }
        let few = Op::Slice {
            axis: self.outputs[0].dims.len().saturating_sub(1),
            start: 0,
            end: Some(1),
        };
        if n > 1 && self.can_slice(cx, &few) {
            outputs = b.node("few", few, &outputs[..1]);
        }
        b.finish(&outputs, Slots::Shared)
    }

    fn can_slice(&self, cx: &Cx, few: &Op) -> bool {
        let types: Vec<ValueType> = self.outputs.clone();
        let sliced = few.infer(&types);
        sliced.is_ok_and(|out| {
            cx.backend
                .supports_node(&NodeView::new("few", few, &types, &out, &[false]))
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

/// Median time of a call, after one that is not counted.
pub(in crate::conformance) fn repeat(
    mut run: impl FnMut() -> Result<(), BackendError>,
) -> Result<Duration, BackendError> {
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
