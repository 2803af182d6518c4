//! The executor: prepares a graph once on a list of backends and runs it many times, with sessions that hold one
//! sequence each. A step is all or nothing. Knows no file format and no device.

mod compiled;
mod config;
mod error;
mod inputs;
mod outputs;
mod pool;
mod prepare;
mod schedule;
mod session;
mod stats;
mod step;
mod weights;
mod wires;

pub use config::{ExecConfig, NonFinite, Passes, RunOptions, WantedRows};
pub use error::ExecError;
pub use outputs::Outputs;
pub use session::Session;
pub use stats::{ExecStats, NodeTime, StepStats};
pub use weights::{HeldWeights, Reopen, WeightError, WeightSource};
pub(crate) use weights::{WithDerived, check as check_weights};

use std::sync::Arc;

use glia_core::{Backend, Program, Tensor};

use crate::graph::Graph;
use crate::plan::Plan;
use prepare::Shared;

/// Runs a prepared graph.
///
/// What is prepared is immutable and shared by all sessions; the executor's own `run` and `reset` act on a session
/// that it brings along, so that simple use stays simple.
///
/// Inputs go by name; `pos`, `positions` and `wanted_rows` are injected. Outputs come back by name, on the host.
///
/// When a device is lost, the run that meets it fails with [`DeviceLost`](glia_core::BackendError::DeviceLost), and so
/// does every session that held tokens then: its state is gone. The next session that is opened, and the next run of one
/// that held none, finds the programs compiled again on a new device, from weights that are read once more
/// ([`WeightSource::reopen`]). Should that fail, its error is returned, and the next one tries again.
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::Arc;
///
/// use glia_core::{Backend, BackendError, DType, Dim, Op, Tensor, ValueType};
/// use glia_ir::{ExecConfig, GraphBuilder, GraphExecutor};
///
/// /// Three methods make a backend.
/// struct Doubler;
///
/// impl Backend for Doubler {
///     fn name(&self) -> &str {
///         "doubler"
///     }
///     fn supports(&self, op: &Op) -> bool {
///         matches!(op, Op::Scale { .. })
///     }
///     fn execute(&self, op: &Op, inputs: &[&Tensor]) -> Result<Vec<Tensor>, BackendError> {
///         let Op::Scale { factor } = op else { return Ok(vec![]) };
///         let values: Vec<f32> = inputs[0].as_f32()?.iter().map(|x| x * factor).collect();
///         Ok(vec![Tensor::from_f32(*inputs[0].shape(), &values)?])
///     }
/// }
///
/// let mut b = GraphBuilder::new("twice");
/// let x = b.input("x", ValueType::new(DType::F32, [Dim::T, Dim::fixed(2)]))?;
/// let y = b.node1("double", Op::Scale { factor: 2.0 }, &[x])?;
/// b.output("y", y)?;
///
/// let weights: HashMap<String, Tensor> = HashMap::new();
/// let mut executor =
///     GraphExecutor::prepare(b.finish()?, weights, vec![Arc::new(Doubler)], ExecConfig::default())?;
/// let outputs = executor.run(&[("x", Tensor::from_f32([1, 2], &[3.0, 4.0])?)])?;
/// assert_eq!(outputs.get("y").unwrap().as_f32()?, [6.0, 8.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct GraphExecutor {
    shared: Arc<Shared>,
    session: Session,
}

impl GraphExecutor {
    /// Verifies, optimises and plans the graph, checks and packs the weights, and compiles. `backends` are asked in
    /// order; `weights` is let go at the end; what it gives to read them again is kept.
    ///
    /// # Errors
    /// Everything that can be wrong with the graph, a weight, a backend's support or the memory limits, naming the
    /// node or weight.
    pub fn prepare(
        graph: Graph,
        weights: impl WeightSource,
        backends: Vec<Arc<dyn Backend>>,
        config: ExecConfig,
    ) -> Result<GraphExecutor, ExecError> {
        let shared = Arc::new(Shared::new(graph, &weights, backends, config)?);
        let session = Session::open(shared.clone())?;
        Ok(GraphExecutor { shared, session })
    }

    /// Runs the tokens given through the default session. See [`Session::run`].
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run(&mut self, inputs: &[(&str, Tensor)]) -> Result<Outputs, ExecError> {
        self.session.run(inputs)
    }

    /// As [`GraphExecutor::run`], with options.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run_with(&mut self, inputs: &[(&str, Tensor)], options: &RunOptions) -> Result<Outputs, ExecError> {
        self.session.run_with(inputs, options)
    }

    /// Begins a new conversation in the default session.
    pub fn reset(&mut self) {
        self.session.reset();
    }

    /// The default session.
    pub fn default_session(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Where the time of the default session's last run went.
    pub fn stats(&self) -> &ExecStats {
        self.session.stats()
    }

    /// A new, empty sequence. Programs that were lost with a device are compiled again first.
    ///
    /// # Errors
    /// When a program cannot hold another one; what compiling says.
    pub fn session(&self) -> Result<Session, ExecError> {
        Session::open(self.shared.clone())
    }

    /// Runs several sequences in one forward, all rows wanted. All of them advance, or none.
    ///
    /// # Errors
    /// As [`Session::run`], and [`ExecError::ForeignSession`].
    pub fn run_batch(&self, batch: &mut [(&mut Session, &[(&str, Tensor)])]) -> Result<Vec<Outputs>, ExecError> {
        self.run_batch_with(batch, &RunOptions::default())
    }

    /// As [`GraphExecutor::run_batch`]; the options hold for each sequence.
    ///
    /// # Errors
    /// As [`GraphExecutor::run_batch`].
    pub fn run_batch_with(
        &self,
        batch: &mut [(&mut Session, &[(&str, Tensor)])],
        options: &RunOptions,
    ) -> Result<Vec<Outputs>, ExecError> {
        let foreign = batch.iter().position(|(s, _)| !s.belongs_to(&self.shared));
        if let Some(index) = foreign {
            return Err(ExecError::ForeignSession { index });
        }
        session::run_all(&self.shared, batch, options)
    }

    /// The plan; prints as text.
    pub fn plan(&self) -> &Plan {
        &self.shared.plan
    }

    /// The configuration.
    pub fn config(&self) -> &ExecConfig {
        &self.shared.config
    }

    /// The graph that runs, after the passes.
    pub fn graph(&self) -> &Graph {
        &self.shared.plan.graph
    }

    /// For each region of the plan, how its program runs.
    pub fn describe(&self) -> Vec<String> {
        let of = |p: &Option<Arc<dyn Program>>| p.as_ref().map_or("lost with its device".to_owned(), |p| p.describe());
        self.shared.held().programs().iter().map(of).collect()
    }

    /// Bytes that programs hold for weights outside a memory map.
    pub fn weight_bytes(&self) -> usize {
        let held = self.shared.held();
        let programs = held.programs();
        programs
            .iter()
            .flatten()
            .map(|p| p.weight_bytes())
            .fold(0, usize::saturating_add)
    }

    /// Bytes of KV state of all sessions.
    pub fn state_bytes(&self) -> usize {
        self.shared.held().pool.lock().state_bytes()
    }
}

impl std::fmt::Debug for GraphExecutor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "GraphExecutor({})", self.graph().name)
    }
}
