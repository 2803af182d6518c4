//! From graph, weights and backends to programs ready to run.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use glia_core::{
    Backend, BackendError, CompileOptions, DType, InterpretedProgram, NodeView, Program, StateOptions, Symbol, Tensor,
    interpreter_runs,
};

use super::inputs::InputRules;
use super::pool::Pool;
use super::weights::{self, Consts, WeightSource};
use super::{ExecConfig, ExecError, Passes};
use crate::graph::{Graph, ValueSource};
use crate::pass::{self, Derived};
use crate::plan::{Plan, PlanLimits, Region};

/// What all sessions share. Only `pool` changes.
pub(super) struct Shared {
    pub plan: Plan,
    pub config: ExecConfig,
    pub backends: Vec<Arc<dyn Backend>>,
    pub programs: Vec<Arc<dyn Program>>,
    pub pool: Pool,
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
        let weights: &dyn WeightSource = &weights::WithDerived {
            source: weights,
            derived,
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

        let consts = Consts {
            graph: &graph,
            weights: &plan.weights,
            source: weights,
        };
        let mut options = CompileOptions::new(&consts, config.precision);
        options.max_step_tokens = plan.limits.max_step_tokens;
        options.max_context = config.max_context;
        options.kv_dtypes = config.kv_dtypes;
        let mut programs = Vec::with_capacity(plan.regions.len());
        let mut state_options = StateOptions::default();
        state_options.max_state_bytes = config.max_state_bytes;
        let mut states = Vec::with_capacity(plan.regions.len());
        for region in &plan.regions {
            // A backend of somebody else may panic: that is an error of prepare as any other.
            let made = catch_unwind(AssertUnwindSafe(|| {
                let program = compile(region, &backends[region.backend], &options)?;
                let state = program.clone().open(&state_options)?;
                Ok::<_, ExecError>((program, state))
            }));
            let (program, state) = made.unwrap_or_else(|panic| Err(BackendError::panicked(&*panic).into()))?;
            states.push(state);
            programs.push(program);
        }
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
            pool: Pool::new(states),
            plan,
            config,
            backends,
            programs,
            returned_weights,
        })
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

fn compile(
    region: &Region,
    backend: &Arc<dyn Backend>,
    options: &CompileOptions<'_>,
) -> Result<Arc<dyn Program>, ExecError> {
    let mut options = *options;
    options.outputs_to_host = &region.exports_to_host;
    if !region.interpret
        && let Some(program) = backend.compile(&region.segment, &options)?
    {
        return Ok(program);
    }
    Ok(InterpretedProgram::new(
        backend.clone(),
        region.segment.clone(),
        &options,
    )?)
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
