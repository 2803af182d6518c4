//! From graph, weights and backends to programs ready to run, and to such again when a device was lost.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use glia_core::{Backend, BackendError, DType, NodeView, Symbol, Tensor, interpreter_runs};

use super::compiled::{Compiled, Recipe};
use super::inputs::InputRules;
use super::weights::{self, Reopen, WeightSource};
use super::{ExecConfig, ExecError, Passes};
use crate::graph::{Graph, ValueSource};
use crate::pass::{self, Derived};
use crate::plan::{Plan, PlanLimits};

/// What all sessions share. Only `compiled` changes.
pub(super) struct Shared {
    pub plan: Plan,
    pub config: ExecConfig,
    pub backends: Vec<Arc<dyn Backend>>,
    compiled: Mutex<Arc<Compiled>>,
    /// How to read the weights once more; `None` where that was not offered.
    reopen: Option<Reopen>,
    derived: BTreeMap<String, Derived>,
    pub inputs: InputRules,
    /// Weights that the graph returns, by wire.
    pub returned_weights: Vec<(usize, Tensor)>,
    /// Whether any size depends on the tokens: else a run does not advance the position.
    pub counts_tokens: bool,
}

impl Shared {
    pub fn new(
        graph: Graph,
        weights: &dyn WeightSource,
        backends: Vec<Arc<dyn Backend>>,
        config: ExecConfig,
    ) -> Result<Shared, ExecError> {
        check_config(&config)?;
        graph.verify()?;
        let (graph, derived) = optimised(graph, weights, &backends, &config)?;
        let graph = Arc::new(graph);
        let reopen = weights.reopen();
        let weights: &dyn WeightSource = &weights::WithDerived {
            source: weights,
            derived: &derived,
        };
        weights::check(&graph, weights)?;
        let mut limits = PlanLimits::new(config.max_step_tokens, config.max_context);
        limits.kv_dtypes = config.kv_dtypes;
        let mut plan = Plan::new(graph, &backends, limits)?;
        if let Some(n_rows) = plan.fewer_rows(&backends) {
            plan = Plan::new(plan.graph.clone(), &backends, limits.with_rows(n_rows))?;
        }
        let graph = plan.graph.clone();
        check_memory(&plan, &config)?;

        let recipe = Recipe {
            plan: &plan,
            config: &config,
            backends: &backends,
        };
        let compiled = Compiled::new(recipe, weights, Vec::new())?;
        let mut returned_weights = Vec::new();
        for &wire in &plan.outputs {
            let id = plan.wires[wire];
            if graph.value(id).source == ValueSource::Weight {
                returned_weights.push((wire, weights::read(&graph, id, weights)?));
            }
        }
        Ok(Shared {
            inputs: InputRules::of(&graph),
            counts_tokens: graph.values.iter().any(|v| v.ty.depends_on(Symbol::T)),
            compiled: Mutex::new(Arc::new(compiled)),
            plan,
            config,
            backends,
            reopen,
            derived,
            returned_weights,
        })
    }

    /// The programs as they are, whether or not they are lost.
    pub fn held(&self) -> Arc<Compiled> {
        self.compiled.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Programs that a session can be opened on. Those that were lost with a device are compiled again, by one thread
    /// while the others wait for it. Should that fail, the next call tries again.
    ///
    /// # Errors
    /// What compiling says; [`BackendError::DeviceLost`] where the weights cannot be read again.
    pub fn current(&self) -> Result<Arc<Compiled>, ExecError> {
        let mut held = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(reason) = held.look_for_loss(&self.plan) else {
            return Ok(held.clone());
        };
        let Some(reopen) = &self.reopen else {
            let reason = format!("{reason}; the weights were let go once they were packed: prepare the graph again");
            return Err(BackendError::DeviceLost { reason }.into());
        };
        let source = reopen().map_err(|source| ExecError::WeightsReopen { reason, source })?;
        let weights = weights::WithDerived {
            source: &*source,
            derived: &self.derived,
        };
        weights::check(&self.plan.graph, &weights)?;
        let recipe = Recipe {
            plan: &self.plan,
            config: &self.config,
            backends: &self.backends,
        };
        let survivors = held.programs().clone();
        *held = Arc::new(Compiled::new(recipe, &weights, survivors)?);
        Ok(held.clone())
    }
}

/// The graph that is planned, and the weights that folding has added to it.
fn optimised(
    graph: Graph,
    weights: &dyn WeightSource,
    backends: &[Arc<dyn Backend>],
    config: &ExecConfig,
) -> Result<(Graph, BTreeMap<String, Derived>), ExecError> {
    let (mut graph, mut derived) = (graph, BTreeMap::new());
    if config.passes == Passes::All {
        graph = pass::optimize(&graph)?;
        // Folding hides the weights that it views, so they are checked before it.
        weights::check(&graph, weights)?;
        let folded = pass::fold_weights(&graph, None)?;
        (graph, derived) = (folded.graph, folded.derived);
    }
    // What the first backends can compute in simpler ops stays with them; only then the next ones are asked.
    for n in 1..=backends.len() {
        let last = n == backends.len();
        let runs = |view: &NodeView<'_>| {
            let universal = if last {
                interpreter_runs(view)
            } else {
                view.op.is_view()
            };
            universal || backends[..n].iter().any(|b| b.supports_node(view))
        };
        graph = pass::decompose_unsupported(&graph, &runs)?;
    }
    Ok((graph, derived))
}

fn check_config(config: &ExecConfig) -> Result<(), ExecError> {
    let bad = |field, reason: String| Err(ExecError::BadConfig { field, reason });
    if config.max_step_tokens == 0 {
        return bad("max_step_tokens", "must be at least 1".to_owned());
    }
    if config.max_context == 0 {
        return bad("max_context", "must be at least 1".to_owned());
    }
    // Positions are I32.
    if i32::try_from(config.max_context).is_err() {
        return bad("max_context", format!("must be at most {}", i32::MAX));
    }
    if let Some(dtype) = config
        .kv_dtypes
        .iter()
        .find(|d| !matches!(d, DType::F32 | DType::F16 | DType::BF16 | DType::Q8_0))
    {
        return bad("kv_dtypes", format!("must be f32, f16, bf16 or q8_0, not {dtype}"));
    }
    Ok(())
}

fn check_memory(plan: &Plan, config: &ExecConfig) -> Result<(), ExecError> {
    let needed_bytes = plan.memory()?.peak_bytes;
    let limit_bytes = config.max_intermediate_bytes;
    if limit_bytes > 0 && needed_bytes > limit_bytes {
        return Err(ExecError::IntermediateMemory {
            needed_bytes,
            limit_bytes,
            lower: "max_step_tokens",
        });
    }
    Ok(())
}
