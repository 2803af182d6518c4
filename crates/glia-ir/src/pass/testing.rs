//! The helper behind the snapshot tests of passes.

use crate::graph::{Graph, GraphError};

/// Runs a pass over a graph given as text without its header; the result is verified and printed.
pub(super) fn run(pass: impl Fn(&Graph) -> Result<Graph, GraphError>, body: &str) -> String {
    let graph: Graph = format!("graph g\n{body}").parse().unwrap();
    graph.verify().unwrap();
    let result = pass(&graph).unwrap();
    result.verify().unwrap();
    result.to_string()
}
