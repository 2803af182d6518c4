//! The CPU backend: all four levels of [`Backend`] on one set of kernels.

use std::sync::Arc;

use glia_core::{Backend, BackendError, CompileOptions, NodeView, Op, Program, Segment, Tensor};

use crate::error::NAME;
use crate::isa::Isa;
use crate::pack::Store;
use crate::simd::Level;
use crate::threads::{Team, resolve};
use crate::{ops, program};

/// How a [`CpuBackend`] works.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuOptions {
    /// Threads; 0 takes the physical cores that this process may use. Larger numbers than twice the processors (and
    /// than 8) are cut.
    pub threads: usize,
    /// The instruction set; `None` takes the best of this machine.
    pub isa: Option<Isa>,
    /// Packs nothing: each tile of a weight is packed from its rows every time it is used. The bits are those of packed
    /// weights, memory is only what the file's pages take, and every step is slower.
    pub keep_mapped: bool,
}

/// Runs on the processors of this machine. Results do not depend on the number of threads.
pub struct CpuBackend {
    team: Arc<Team>,
    isa: Isa,
    keep_mapped: bool,
}

impl CpuBackend {
    /// A backend with the default options.
    ///
    /// # Errors
    /// When the system starts no threads.
    pub fn new() -> Result<CpuBackend, BackendError> {
        CpuBackend::with_options(CpuOptions::default())
    }

    /// A backend with these options.
    ///
    /// # Errors
    /// When the system starts no threads, or the machine lacks the instruction set asked for.
    pub fn with_options(options: CpuOptions) -> Result<CpuBackend, BackendError> {
        let isa = options.isa.unwrap_or_else(Isa::detect);
        if !isa.is_available() {
            let op = format!("{} kernels on this machine", isa.name());
            return Err(BackendError::UnsupportedOp {
                backend: NAME.to_owned(),
                op,
            });
        }
        Ok(CpuBackend {
            team: Arc::new(Team::new(resolve(options.threads))?),
            isa,
            keep_mapped: options.keep_mapped,
        })
    }

    fn levels(&self) -> (Isa, Level) {
        (self.isa, Level::of(self.isa))
    }

    /// Threads that walk a step.
    pub fn n_threads(&self) -> usize {
        self.team.n_threads()
    }

    /// A line for people: instruction level and threads.
    pub fn describe(&self) -> String {
        let n = self.n_threads();
        format!("{}, {n} thread{}", self.isa.name(), if n == 1 { "" } else { "s" })
    }
}

impl Backend for CpuBackend {
    fn name(&self) -> &str {
        NAME
    }

    fn supports(&self, op: &Op) -> bool {
        // What an op takes is a matter of dtypes here: `supports_node` says which.
        let _ = op;
        true
    }

    fn execute(&self, op: &Op, inputs: &[&Tensor]) -> Result<Vec<Tensor>, BackendError> {
        program::execute(op, inputs, &self.team, self.levels())
    }

    fn supports_node(&self, node: &NodeView<'_>) -> bool {
        ops::supports(node)
    }

    fn compile(
        &self,
        segment: &Segment,
        options: &CompileOptions<'_>,
    ) -> Result<Option<Arc<dyn Program>>, BackendError> {
        let description = format!("compiled for {}", self.describe());
        let store = if self.keep_mapped { Store::Mapped } else { Store::Packed };
        let program = program::compile(segment, options, &self.team, self.levels(), store, description)?;
        Ok(program.map(|p| p as Arc<dyn Program>))
    }
}
