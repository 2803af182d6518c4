//! The oracle with one mistake planted: what hints are compared with, and what the tests of the suite must find.

use std::sync::Arc;

use super::program::FaultyProgram;
use super::{Fault, StateFault, execute};
use crate::{Backend, BackendError, CompileOptions, NodeView, Op, Program, Segment, Tensor};

/// The oracle with a mistake in an op, in its states, or in both.
#[derive(Clone, Default)]
pub(in crate::conformance) struct FaultyBackend {
    pub fault: Option<Fault>,
    pub state: Option<StateFault>,
}

impl Backend for FaultyBackend {
    fn name(&self) -> &str {
        "faulty"
    }

    fn supports(&self, _: &Op) -> bool {
        true
    }

    fn supports_node(&self, _: &NodeView<'_>) -> bool {
        true
    }

    fn execute(&self, op: &Op, inputs: &[&Tensor]) -> Result<Vec<Tensor>, BackendError> {
        execute(self.fault.as_ref(), op, inputs)
    }

    fn compile(
        &self,
        segment: &Segment,
        options: &CompileOptions<'_>,
    ) -> Result<Option<Arc<dyn Program>>, BackendError> {
        let program = FaultyProgram::new(segment, options, self)?;
        Ok(Some(Arc::new(program)))
    }
}
