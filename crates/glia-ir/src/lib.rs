//! Graphs and how they run: builder, verifier and text form; passes; the planner; executor and sessions. Knows no
//! file format and no device.

#![forbid(unsafe_code)]

pub mod graph;
pub mod pass;

pub use graph::{Graph, GraphBuilder, GraphError, Node, NodeId, Output, Value, ValueSource, Vid};
