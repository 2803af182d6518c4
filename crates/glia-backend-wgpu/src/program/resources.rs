//! What a program consists of: buffers by number, and dispatches that bind them.

use std::sync::Arc;

use glia_core::{StateId, Tensor, ValueId};

use super::StepInfo;
use crate::gpu::Pooled;
use crate::shader::{Call, Pipeline};

/// Index of a buffer of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct BufId(pub u32);

impl BufId {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Bytes that something needs in a step.
pub(crate) type SizeOf = Box<dyn Fn(&StepInfo<'_>) -> u64 + Send + Sync>;

/// What a buffer of a program holds.
pub(crate) enum BufDef {
    /// An intermediate; shares memory with others that live at other times.
    Temp(ValueId),
    /// Working space of one kernel or a few; shares memory as intermediates do.
    Scratch(SizeOf),
    /// An input of the step. Integers of any width arrive as I32.
    Input(ValueId),
    /// Weights, uploaded at compile.
    Weight(Arc<Pooled>),
    /// The blocks of one part of a state.
    Kv { state: StateId, part: usize },
    /// Rows, sequences and blocks of the step: see [`TableHeader`](super::TableHeader).
    Table,
    /// Cosines, then sines, of the positions in `positions` (or those of the step) times these frequencies.
    Trig(Trig),
}

/// A table of rotations, made on the host in F64 for each step.
#[derive(Clone, Debug)]
pub(crate) struct Trig {
    /// The positions: an input of the segment.
    pub positions: ValueId,
    /// Inverse frequencies `[half]`, F32; with a second table for long sequences.
    pub freqs: Vec<Tensor>,
    /// Length of a sequence from which the second table holds.
    pub long_from: Option<usize>,
    /// Factor on both.
    pub scale: f32,
}

/// A buffer as a kernel binds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bind {
    pub buf: BufId,
    /// Offset and size in bytes; all of it where there is none.
    pub range: Option<(u64, u64)>,
}

impl From<BufId> for Bind {
    fn from(buf: BufId) -> Bind {
        Bind { buf, range: None }
    }
}

/// One kernel of a program.
pub(crate) struct Dispatch {
    /// Kernels that bind alike; each call names one.
    pub pipelines: Vec<Arc<Pipeline>>,
    pub binds: Vec<Bind>,
    /// How many of the buffers, from the first, are only read.
    pub n_reads: usize,
    pub call: Box<dyn Fn(&StepInfo<'_>) -> Call + Send + Sync>,
    /// The instructions that it computes, alone or with other dispatches.
    pub instrs: Arc<[usize]>,
}
