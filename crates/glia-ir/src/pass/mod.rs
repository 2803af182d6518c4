//! Passes: pure functions from a graph to a better graph with the same meaning. [`PIPELINE`] is their order; a run
//! can stop after any number of them, which finds the one at fault.

mod common;
mod dead;
mod decompose;
mod fold;
mod fuse;
mod fuse_sdpa;
mod rebuild;
mod rows;
mod simplify;
mod views;

#[cfg(test)]
mod testing;

pub use common::common_subexpressions;
pub use dead::dead_code;
pub use decompose::decompose_unsupported;
pub use fold::{Derived, Evaluator, Folded, RunOp, fold_weights};
pub use fuse::fuse_gated;
pub use fuse_sdpa::fuse_sdpa;
pub use rows::select_rows;
pub use simplify::simplify;
pub use views::merge_views;

use crate::graph::{Graph, GraphError};

/// A pass with its name.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    /// As `--stop-after` and errors name it.
    pub name: &'static str,
    /// The pass. The argument is a verified graph; so is the result.
    pub run: fn(&Graph) -> Result<Graph, GraphError>,
}

/// All passes in the order in which `prepare` runs them. Row selection comes late: it must see which rows the
/// remaining nodes need, and every pass before it works on rows of the whole step.
pub const PIPELINE: &[Pass] = &[
    Pass {
        name: "dead_code",
        run: dead_code,
    },
    Pass {
        name: "simplify",
        run: simplify,
    },
    Pass {
        name: "fuse_sdpa",
        run: fuse_sdpa,
    },
    Pass {
        name: "merge_views",
        run: merge_views,
    },
    Pass {
        name: "common_subexpressions",
        run: common_subexpressions,
    },
    Pass {
        name: "fuse_gated",
        run: fuse_gated,
    },
    Pass {
        name: "select_rows",
        run: select_rows,
    },
    Pass {
        name: "final_dead_code",
        run: dead_code,
    },
];

/// Runs the whole pipeline.
///
/// # Errors
/// [`GraphError`] of the first pass that fails; in debug builds also [`GraphError::AfterPass`] when a pass breaks the
/// graph.
pub fn optimize(graph: &Graph) -> Result<Graph, GraphError> {
    run_passes(graph, PIPELINE)
}

/// Runs these passes; with a prefix of [`PIPELINE`], the pass at fault can be found by bisection.
///
/// # Errors
/// As [`optimize`].
pub fn run_passes(graph: &Graph, passes: &[Pass]) -> Result<Graph, GraphError> {
    let mut graph = graph.clone();
    for pass in passes {
        graph = (pass.run)(&graph)?;
        if cfg!(debug_assertions) {
            graph.verify().map_err(|e| GraphError::AfterPass {
                pass: pass.name,
                source: Box::new(e),
            })?;
        }
    }
    Ok(graph)
}
