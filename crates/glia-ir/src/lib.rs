//! Graphs and how they run: builder, verifier and text form; passes; the planner; executor and sessions. Knows no
//! file format and no device.

#![forbid(unsafe_code)]

pub mod exec;
pub mod graph;
pub mod pass;
pub mod plan;

pub use exec::{
    ExecConfig, ExecError, ExecStats, GraphExecutor, NonFinite, Outputs, Passes, RunOptions, Session, WantedRows,
    WeightError, WeightSource,
};
pub use graph::{Graph, GraphBuilder, GraphError, Node, NodeId, Output, Value, ValueSource, Vid};
pub use plan::{MemoryPlan, Plan, PlanError, PlanLimits};
