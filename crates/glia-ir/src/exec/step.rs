//! One step: the regions of the plan in order, tensors carried over their borders, outputs brought to the host and
//! checked. Commits nothing.

use std::time::Instant;

use glia_core::{Dim, ProfileSink, SeqRows, Sizes, Step, Tensor, ValueType};

use super::outputs::{cut_rows, first_non_finite, join_rows};
use super::pool::States;
use super::prepare::Shared;
use super::schedule::Piece;
use super::session::Run;
use super::wires::Wires;
use super::{ExecError, ExecStats, NonFinite, RunOptions, StepStats};
use crate::graph::ValueSource;
use crate::plan::Region;

pub(super) struct StepRun<'a> {
    shared: &'a Shared,
    runs: &'a [Run],
    pieces: &'a [Piece],
    options: &'a RunOptions,
    /// For each declared output, whether it is returned.
    wanted_outputs: &'a [bool],
    rows: Vec<SeqRows>,
    wanted: Vec<u32>,
    sizes: Sizes,
    wires: Wires<'a>,
    /// When the run began, where it is profiled.
    began: Option<Instant>,
}

impl<'a> StepRun<'a> {
    pub fn new(
        shared: &'a Shared,
        runs: &'a [Run],
        pieces: &'a [Piece],
        options: &'a RunOptions,
        wanted_outputs: &'a [bool],
        began: Option<Instant>,
    ) -> StepRun<'a> {
        let (mut rows, mut wanted) = (Vec::with_capacity(pieces.len()), Vec::new());
        let mut first_row = 0;
        for piece in pieces {
            let run = &runs[piece.run];
            rows.push(SeqRows {
                seq: run.seq,
                first_row,
                n_rows: piece.n_rows,
                pos: run.past + piece.start,
            });
            wanted.extend(piece.wanted(run).map(|w| (first_row + w) as u32));
            first_row += piece.n_rows;
        }
        let sizes = Sizes {
            t: first_row,
            p: rows.iter().map(|r| r.pos).max().unwrap_or(0),
            r: wanted.len(),
            n: rows.len(),
            s: pieces.first().map_or(0, |p| runs[p.run].given.n_encoder_rows),
        };
        StepRun {
            shared,
            runs,
            pieces,
            options,
            wanted_outputs,
            rows,
            wanted,
            sizes,
            wires: Wires::new(&shared.plan, &shared.backends),
            began,
        }
    }

    /// Sizes of the step as each of its sequences sees them.
    fn seq_sizes(&self) -> Vec<Sizes> {
        let of = |rows: &SeqRows| {
            let (first, end) = (rows.first_row as u32, (rows.first_row + rows.n_rows) as u32);
            Sizes {
                t: rows.n_rows,
                p: rows.pos,
                r: self.wanted.iter().filter(|&&w| (first..end).contains(&w)).count(),
                n: 1,
                s: self.sizes.s,
            }
        };
        self.rows.iter().map(of).collect()
    }

    /// For each piece, its declared outputs.
    pub fn run(&mut self, states: &mut States, stats: &mut ExecStats) -> Result<Vec<Vec<Tensor>>, ExecError> {
        if self.options.cancel.as_ref().is_some_and(|c| c.is_cancelled()) {
            return Err(ExecError::Cancelled);
        }
        self.check_memory()?;
        for (wire, tensor) in &self.shared.returned_weights {
            self.wires.give(*wire, tensor.clone());
        }
        let entered = self.began.map(|began| (began, Instant::now()));
        if let Some((began, now)) = entered {
            stats.steps.push(StepStats {
                start: now.saturating_duration_since(began),
                sizes: self.sizes,
                seqs: self.seq_sizes(),
                ..StepStats::default()
            });
        }
        let mut first_node = 0;
        for (i, region) in self.shared.plan.regions.iter().enumerate() {
            let inputs = region
                .imports
                .iter()
                .map(|&wire| self.fetch(wire, region))
                .collect::<Result<Vec<_>, _>>()?;
            let mut step = Step::new(&self.rows, &inputs, &self.wanted);
            step.cancel = self.options.cancel.as_ref();
            let wanted_exports = self.wanted_exports(i, region);
            step.wanted_outputs = Some(&wanted_exports);
            let sink = self.began.map(|_| ProfileSink::default());
            step.profile = sink.as_ref();
            self.wires.at_work = Some(region.backend);
            let outputs = states.programs[i].run(&step)?;
            self.wires.at_work = None;
            if let (Some(sink), Some(began)) = (sink, self.began) {
                let offset = sink.began().saturating_duration_since(began);
                stats.add(&region.segment, first_node, offset, &sink.take());
            }
            first_node += region.segment.instrs.len();
            self.put(region, outputs, &wanted_exports)?;
            self.wires.free(region);
        }
        let outputs = self.host_outputs()?;
        stats.count(&self.wires.copied);
        if let (Some((_, entered)), Some(step)) = (entered, stats.steps.last_mut()) {
            step.time = entered.elapsed();
        }
        Ok(outputs)
    }

    /// Whose call it was that failed, where it was a backend's.
    pub fn backend_at_fault(&self) -> Option<usize> {
        self.wires.at_work
    }

    fn check_memory(&self) -> Result<(), ExecError> {
        let limit_bytes = self.shared.config.max_intermediate_bytes;
        if limit_bytes == 0 {
            return Ok(());
        }
        let needed_bytes = self.shared.plan.intermediate_bytes(&self.sizes).unwrap_or(usize::MAX);
        if needed_bytes > limit_bytes {
            return Err(ExecError::IntermediateMemory {
                needed_bytes,
                limit_bytes,
                lower: "the size of the inputs",
            });
        }
        Ok(())
    }

    /// The value on a wire as the region takes it.
    fn fetch(&mut self, wire: usize, region: &Region) -> Result<Tensor, ExecError> {
        if !self.wires.has(wire) {
            self.wires.give(wire, self.given(wire)?);
        }
        self.wires.fetch(wire, region)
    }

    /// An input of the caller's, or an injected one, for the rows of this step.
    fn given(&self, wire: usize) -> Result<Tensor, ExecError> {
        let graph = &self.shared.plan.graph;
        let id = self.shared.plan.wires[wire];
        let ints = |values: Vec<i32>| Ok(Tensor::from_i32([values.len()], &values)?);
        match graph.value(id).source {
            // Positions fit: `max_context` does.
            ValueSource::Pos => ints(vec![self.rows.first().map_or(0, |r| r.pos as i32)]),
            ValueSource::Positions => {
                let of = |r: &SeqRows| r.pos as i32..(r.pos + r.n_rows) as i32;
                ints(self.rows.iter().flat_map(of).collect())
            }
            ValueSource::WantedRows => ints(self.wanted.iter().map(|&w| w as i32).collect()),
            _ => {
                let at = self.shared.inputs.position(id).ok_or(ExecError::NoTokens)?;
                let has_rows = graph.value(id).ty.dims.first() == Some(&Dim::T);
                let mut pieces = Vec::with_capacity(self.pieces.len());
                for piece in self.pieces {
                    let tensor = &self.runs[piece.run].given.tensors[at];
                    pieces.push(if has_rows {
                        cut_rows(tensor, piece.start, piece.n_rows)?
                    } else {
                        tensor.clone()
                    });
                }
                join_rows(pieces)
            }
        }
    }

    /// For each export of a region, whether a later region reads it or it is returned.
    fn wanted_exports(&self, at: usize, region: &Region) -> Vec<bool> {
        let plan = &self.shared.plan;
        let read = |wire: usize| plan.regions[at + 1..].iter().any(|r| r.imports.contains(&wire));
        let returned = |wire: usize| {
            plan.outputs
                .iter()
                .zip(self.wanted_outputs)
                .any(|(&w, &wanted)| wanted && w == wire)
        };
        region
            .exports
            .iter()
            .map(|&wire| returned(wire) || read(wire))
            .collect()
    }

    /// Takes a region's outputs, once they are what was planned. Those that nobody reads are let go.
    fn put(&mut self, region: &Region, outputs: Vec<Tensor>, wanted: &[bool]) -> Result<(), ExecError> {
        let graph = &self.shared.plan.graph;
        if outputs.len() != region.exports.len() {
            let (first, last) = (region.nodes.0, region.nodes.1.saturating_sub(1));
            return Err(ExecError::WrongOutputs {
                backend: region.backend_name.clone(),
                nodes: [first, last]
                    .iter()
                    .map(|&i| format!("`{}`", graph.nodes[i].name))
                    .collect(),
                expected: region.exports.len(),
                got: outputs.len(),
            });
        }
        for ((&wire, tensor), &wanted) in region.exports.iter().zip(outputs).zip(wanted) {
            if !wanted {
                continue;
            }
            let value = graph.value(self.shared.plan.wires[wire]);
            let planned = value.ty.shape(&self.sizes);
            if tensor.dtype() != value.ty.dtype || planned.as_ref() != Some(tensor.shape()) {
                return Err(ExecError::WrongOutput {
                    backend: region.backend_name.clone(),
                    value: value.name.clone(),
                    expected: planned.map_or(value.ty.clone(), |shape| ValueType::fixed(value.ty.dtype, &shape)),
                    got: ValueType::fixed(tensor.dtype(), tensor.shape()),
                });
            }
            self.wires.put(wire, region, tensor)?;
        }
        Ok(())
    }

    /// The declared outputs on the host, cut into those of the pieces.
    fn host_outputs(&mut self) -> Result<Vec<Vec<Tensor>>, ExecError> {
        let graph = &self.shared.plan.graph;
        let mut of_pieces = vec![Vec::with_capacity(graph.outputs.len()); self.pieces.len()];
        let outputs = graph.outputs.iter().zip(&self.shared.plan.outputs);
        for ((output, &wire), &wanted) in outputs.zip(self.wanted_outputs) {
            if !wanted {
                let none = Tensor::zeros(glia_core::DType::F32, [0])?;
                of_pieces.iter_mut().for_each(|p| p.push(none.clone()));
                continue;
            }
            if !self.wires.has(wire) {
                self.wires.give(wire, self.given(wire)?);
            }
            let tensor = self.wires.read_back(wire)?;
            if self.shared.config.non_finite == NonFinite::Refuse
                && let Some(index) = first_non_finite(&tensor)?
            {
                return Err(ExecError::NonFinite {
                    output: output.name.clone(),
                    index,
                });
            }
            let ty = &graph.value(output.value).ty;
            if self.pieces.len() == 1 || !ty.is_by_rows() {
                of_pieces.iter_mut().for_each(|p| p.push(tensor.clone()));
                continue;
            }
            let wanted_only = ty.dims.first() == Some(&Dim::R);
            let mut start = 0;
            for (i, piece) in self.pieces.iter().enumerate() {
                let n = if wanted_only {
                    piece.wanted(&self.runs[piece.run]).count()
                } else {
                    piece.n_rows
                };
                of_pieces[i].push(if n == 0 {
                    Tensor::zeros(tensor.dtype(), tensor.shape().with_dim(0, 0))?
                } else {
                    cut_rows(&tensor, start, n)?
                });
                start += n;
            }
        }
        Ok(of_pieces)
    }
}
