//! Graphs and how they run: builder, verifier and text form; passes; the planner; executor and sessions. Knows no
//! file format and no device.
//!
//! ```
//! use std::collections::HashMap;
//! use std::sync::Arc;
//!
//! use glia_core::reference::ReferenceBackend;
//! use glia_core::{DType, Dim, Tensor, ValueType};
//! use glia_ir::{ExecConfig, GraphBuilder, GraphExecutor};
//!
//! let mut b = GraphBuilder::new("tiny");
//! let ids = b.input("input_ids", ValueType::new(DType::I32, [Dim::T]))?;
//! let table = b.weight("embed.weight", ValueType::fixed(DType::F32, &[3, 2]))?;
//! let x = b.token_embed("embed", ids, table)?;
//! let logits = b.matmul("lm_head", x, table, None)?;
//! b.output("logits", logits)?;
//!
//! let table = Tensor::from_f32([3, 2], &[1., 0., 0., 1., 1., 1.])?;
//! let weights = HashMap::from([("embed.weight".to_owned(), table)]);
//! let backend = Arc::new(ReferenceBackend);
//! let mut executor = GraphExecutor::prepare(b.finish()?, weights, vec![backend], ExecConfig::default())?;
//! let outputs = executor.run(&[("input_ids", Tensor::from_i32([1], &[2])?)])?;
//! assert_eq!(outputs.get("logits").unwrap().as_f32()?, [1., 1., 2.]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub mod compare;
pub mod exec;
pub mod graph;
pub mod pass;
pub mod plan;

pub use exec::{
    ExecConfig, ExecError, ExecStats, GraphExecutor, HeldWeights, NodeTime, NonFinite, Outputs, Passes, Reopen,
    RunOptions, Session, StepStats, WantedRows, WeightError, WeightSource,
};
pub use graph::{Graph, GraphBuilder, GraphError, Node, NodeId, Output, Value, ValueSource, Vid};
pub use plan::{BorderCopy, Fallback, FallbackGroup, FallbackReason, MemoryPlan, Plan, PlanError, PlanLimits};

// The guide shows backends alone and under an executor, so its code is compiled and run here.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/writing-a-backend.md")]
struct WritingABackend;
