//! One step: memory grown where it must, inputs written, dispatches recorded in slices, outputs copied out.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use glia_core::{BackendError, StateId, Step, Tensor};

use super::compiled::{Compiled, Output};
use super::needs::{self, OutputSet};
use super::output::{DeviceTensor, copy};
use super::seqs::BlockCopy;
use super::{BufDef, StepInfo, input};
use crate::gpu::{Gpu, NAME, Pooled, Use};
use crate::shader::{Call, MAX_WORDS, params_layout};

/// Device memory of a state, and the bind groups over it.
pub(super) struct Bound {
    /// By buffer: memory of its own.
    own: Vec<Option<Pooled>>,
    /// By buffer: memory that it has outgrown, whose bytes move along in the next submission.
    outgrown: RefCell<Vec<(usize, Pooled)>>,
    slots: Vec<Option<Pooled>>,
    groups: Vec<Option<wgpu::BindGroup>>,
    params: Option<(Pooled, wgpu::BindGroup)>,
}

/// A dispatch of the running step: which, its constants, workgroups from and how many.
struct Piece {
    dispatch: usize,
    variant: usize,
    words: [u32; MAX_WORDS],
    n_groups: u64,
    ops: u64,
}

impl Bound {
    pub fn new(program: &Compiled) -> Bound {
        Bound {
            own: program.bufs.iter().map(|_| None).collect(),
            outgrown: RefCell::default(),
            slots: (0..program.slots.n_slots).map(|_| None).collect(),
            groups: program.dispatches.iter().map(|_| None).collect(),
            params: None,
        }
    }

    /// More memory for a part of a state; what it holds moves along with the next step.
    pub fn grow_kv(&mut self, program: &Compiled, state: StateId, part: usize, bytes: u64) -> Result<(), BackendError> {
        let is_it = |def: &BufDef| matches!(def, BufDef::Kv { state: s, part: p } if (*s, *p) == (state, part));
        let Some(at) = program.bufs.iter().position(is_it) else {
            return Ok(());
        };
        check_binding(&program.gpu, "the KV cache of a layer", bytes)?;
        let grown = program.gpu.buffer("kv", Use::Storage, bytes)?;
        let outgrown = self.outgrown.get_mut();
        // What has grown twice between two submissions still has its bytes where they were first.
        if let Some(old) = self.own[at].replace(grown)
            && !outgrown.iter().any(|(buf, _)| *buf == at)
        {
            outgrown.push((at, old));
        }
        self.unbind(program, |buf| buf == at);
        Ok(())
    }

    /// Lets go of all memory but the cache: what the next step needs is taken anew.
    pub fn release(&mut self, program: &Compiled) {
        for (own, def) in self.own.iter_mut().zip(&program.bufs) {
            if !matches!(def, BufDef::Kv { .. }) {
                *own = None;
            }
        }
        self.slots.iter_mut().for_each(|slot| *slot = None);
        self.groups.iter_mut().for_each(|group| *group = None);
        self.params = None;
    }

    /// Forgets the bind groups of dispatches that use one of these buffers.
    fn unbind(&mut self, program: &Compiled, changed: impl Fn(usize) -> bool) {
        for (group, dispatch) in self.groups.iter_mut().zip(&program.dispatches) {
            if dispatch.binds.iter().any(|bind| changed(bind.buf.index())) {
                *group = None;
            }
        }
    }

    fn buffer<'a>(&'a self, program: &'a Compiled, buf: usize) -> Result<&'a Pooled, BackendError> {
        let found = match (&program.bufs[buf], program.slots.of_buf[buf]) {
            (BufDef::Weight(buffer), _) => Some(&**buffer),
            (_, Some(slot)) => self.slots[slot].as_ref(),
            _ => self.own[buf].as_ref(),
        };
        found.ok_or_else(|| BackendError::InvalidInput {
            op: NAME.to_owned(),
            reason: format!("buffer {buf} of the program has no memory"),
        })
    }

    /// Memory for everything that this step needs.
    fn ensure(&mut self, program: &Compiled, info: &StepInfo<'_>) -> Result<(), BackendError> {
        let gpu = &program.gpu;
        let mut slot_bytes = vec![0u64; self.slots.len()];
        for (buf, def) in program.bufs.iter().enumerate() {
            let elems = |id| info.n_elems(&program.segment.value(id).ty) as u64 * 4;
            let (name, bytes) = match def {
                BufDef::Temp(id) => (program.segment.value(*id).name.as_str(), elems(*id)),
                BufDef::Input(id) => (program.segment.value(*id).name.as_str(), elems(*id)),
                BufDef::Scratch(size) => ("working space", size(info)),
                BufDef::Table => ("step table", 4 * info.table.n_words as u64),
                BufDef::Trig(trig) => ("rotations", {
                    trig.size_bytes(info.n_elems(&program.segment.value(trig.positions).ty))
                }),
                // A state that no step has written to yet still is bound.
                BufDef::Kv { .. } => ("kv", if self.own[buf].is_some() { 0 } else { 4 }),
                BufDef::Weight(_) => continue,
            };
            check_binding(gpu, name, bytes)?;
            if let Some(slot) = program.slots.of_buf[buf] {
                slot_bytes[slot] = slot_bytes[slot].max(bytes);
            } else if !matches!(def, BufDef::Temp(_) | BufDef::Scratch(_))
                && self.own[buf].as_ref().is_none_or(|have| have.size() < bytes)
            {
                self.own[buf] = None;
                self.own[buf] = Some(gpu.buffer(name, Use::Storage, bytes)?);
                self.unbind(program, |changed| changed == buf);
            }
        }
        for (slot, bytes) in slot_bytes.into_iter().enumerate() {
            if self.slots[slot].as_ref().is_none_or(|have| have.size() < bytes) {
                self.slots[slot] = None;
                self.slots[slot] = Some(gpu.buffer("intermediates", Use::Storage, bytes)?);
                self.unbind(program, |buf| program.slots.of_buf[buf] == Some(slot));
            }
        }
        self.bind(program)
    }

    /// Makes the bind groups that are missing: all at the first step, then only where memory has grown.
    fn bind(&mut self, program: &Compiled) -> Result<(), BackendError> {
        let gpu = &program.gpu;
        if self.groups.iter().all(Option::is_some) {
            return Ok(());
        }
        let mut made = Vec::new();
        for (at, dispatch) in program.dispatches.iter().enumerate() {
            if self.groups[at].is_some() {
                continue;
            }
            let mut entries = Vec::with_capacity(dispatch.binds.len());
            for (binding, bind) in (0..).zip(&dispatch.binds) {
                let buffer = self.buffer(program, bind.buf.index())?;
                let whole = (0, buffer.size().min(gpu.caps.max_binding_bytes));
                let (offset, size) = bind.range.unwrap_or(whole);
                entries.push(wgpu::BindGroupEntry {
                    binding,
                    resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                        buffer: buffer.buffer(),
                        offset,
                        size: std::num::NonZeroU64::new(size),
                    }),
                });
            }
            let descriptor = wgpu::BindGroupDescriptor {
                label: Some(dispatch.pipelines[0].source.name()),
                layout: &dispatch.pipelines[0].layout,
                entries: &entries,
            };
            made.push((
                at,
                gpu.scoped("bind group", || gpu.device.create_bind_group(&descriptor))?,
            ));
        }
        gpu.count_work(0, made.len());
        for (at, group) in made {
            self.groups[at] = Some(group);
        }
        Ok(())
    }

    /// Runs a step.
    pub fn run(
        &mut self,
        program: &Compiled,
        step: &Step<'_>,
        info: &StepInfo<'_>,
        table: &[u32],
        copies: &[BlockCopy],
        block_bytes: &dyn Fn(StateId, usize) -> u64,
    ) -> Result<Vec<Tensor>, BackendError> {
        let gpu = &program.gpu;
        step.check_cancelled()?;
        let given = input::on_host(program, step)?;
        input::check_limits(program, &given)?;
        self.ensure(program, info)?;
        let mut encoder = gpu.device.create_command_encoder(&Default::default());
        for (buf, old) in self.outgrown.borrow().iter() {
            copy(&mut encoder, old, self.buffer(program, *buf)?, old.size());
        }
        for (buf, def) in program.bufs.iter().enumerate() {
            let target = || self.buffer(program, buf);
            match def {
                BufDef::Table => gpu.write(target()?.buffer(), 0, bytemuck::cast_slice(table))?,
                BufDef::Input(id) => match &given[id] {
                    input::Given::Words(words) => gpu.write(target()?.buffer(), 0, bytemuck::cast_slice(words))?,
                    input::Given::Device(tensor) => {
                        let handle = DeviceTensor::of(gpu, tensor).ok_or(glia_core::TensorError::NotOnHost)?;
                        copy(&mut encoder, &handle.data, target()?, tensor.size_bytes() as u64);
                    }
                },
                BufDef::Trig(trig) => {
                    let words = trig.words(&given, step.rows)?;
                    gpu.write(target()?.buffer(), 0, bytemuck::cast_slice(&words))?;
                }
                BufDef::Kv { state, part } => {
                    let bytes = block_bytes(*state, *part);
                    self.copy_blocks(program, &mut encoder, target()?, copies, bytes)?;
                }
                _ => {}
            }
        }
        let pieces = self.pieces(program, step, info);
        let offsets = self.write_params(program, &pieces)?;
        self.record(program, step, encoder, &pieces, &offsets, info)
    }

    /// Copies blocks of a cache, by way of another buffer: none may be copied onto itself.
    fn copy_blocks(
        &self,
        program: &Compiled,
        encoder: &mut wgpu::CommandEncoder,
        cache: &Pooled,
        copies: &[BlockCopy],
        bytes: u64,
    ) -> Result<(), BackendError> {
        if copies.is_empty() {
            return Ok(());
        }
        let between = program.gpu.buffer("blocks", Use::Storage, bytes)?;
        let (cache, between) = (cache.buffer(), between.buffer());
        for c in copies {
            encoder.copy_buffer_to_buffer(cache, u64::from(c.from) * bytes, between, 0, bytes);
            encoder.copy_buffer_to_buffer(between, 0, cache, u64::from(c.to) * bytes, bytes);
        }
        Ok(())
    }

    /// The dispatches of this step, those too large for one submission cut into several.
    fn pieces(&self, program: &Compiled, step: &Step<'_>, info: &StepInfo<'_>) -> Vec<Piece> {
        let limit = program.gpu.max_submit_ops.max(1);
        let seqs: Vec<glia_core::Sizes> = info.seq_sizes().collect();
        let mut last: (&[usize], u64) = (&[], 0);
        let mut pieces = Vec::with_capacity(program.dispatches.len());
        let wanted = (0..program.outputs.len()).filter(|&i| step.wants(i));
        let wanted = wanted.fold(0, |set, i| set | needs::output_bit(i));
        for (at, dispatch) in program.dispatches.iter().enumerate() {
            if program.needs[at] != OutputSet::MAX && program.needs[at] & wanted == 0 {
                continue;
            }
            let call: Call = (dispatch.call)(info);
            if call.groups == 0 {
                continue;
            }
            if last.0 != &*dispatch.instrs {
                let ops = dispatch.instrs.iter().map(|&i| program.ops_of(i, info, &seqs));
                last = (&dispatch.instrs, ops.fold(0, u64::saturating_add));
            }
            let n_pieces = (last.1 / limit + 1).min(call.groups);
            let each = call.groups.div_ceil(n_pieces);
            let mut from = 0;
            while from < call.groups {
                let n_groups = each.min(call.groups - from);
                let mut words = call.words;
                words[MAX_WORDS - 1] = u32::try_from(from).unwrap_or(u32::MAX);
                pieces.push(Piece {
                    dispatch: at,
                    variant: call.variant,
                    words,
                    n_groups,
                    ops: last.1 / n_pieces,
                });
                from += n_groups;
            }
        }
        pieces
    }

    /// Where the constants of each piece lie; none with immediates.
    fn write_params(&mut self, program: &Compiled, pieces: &[Piece]) -> Result<Vec<u32>, BackendError> {
        let gpu = &program.gpu;
        if gpu.caps.immediates {
            return Ok(Vec::new());
        }
        let stride = (4 * MAX_WORDS as u64).next_multiple_of(gpu.caps.uniform_align);
        // Room for every dispatch of the program: which of them have work changes from step to step.
        let bytes = stride * pieces.len().max(program.dispatches.len()) as u64;
        if self.params.as_ref().is_none_or(|(buffer, _)| buffer.size() < bytes) {
            self.params = None;
            let buffer = gpu.buffer("params", Use::Uniform, bytes)?;
            let group = gpu.scoped("params", || {
                gpu.device.create_bind_group(&wgpu::BindGroupDescriptor {
                    label: Some("params"),
                    layout: &params_layout(&gpu.device),
                    entries: &[wgpu::BindGroupEntry {
                        binding: 0,
                        resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                            buffer: buffer.buffer(),
                            offset: 0,
                            size: std::num::NonZeroU64::new(4 * MAX_WORDS as u64),
                        }),
                    }],
                })
            })?;
            gpu.count_work(0, 1);
            self.params = Some((buffer, group));
        }
        let bytes = stride * pieces.len() as u64;
        let mut all = vec![0u8; usize::try_from(bytes).unwrap_or(0)];
        let mut offsets = Vec::with_capacity(pieces.len());
        for (piece, slot) in pieces.iter().zip(all.chunks_exact_mut(stride as usize)) {
            slot[..4 * MAX_WORDS].copy_from_slice(bytemuck::cast_slice(&piece.words));
            offsets.push((offsets.len() as u64 * stride) as u32);
        }
        if let Some((buffer, _)) = &self.params {
            gpu.write(buffer.buffer(), 0, &all)?;
        }
        Ok(offsets)
    }

    fn record(
        &self,
        program: &Compiled,
        step: &Step<'_>,
        mut encoder: wgpu::CommandEncoder,
        pieces: &[Piece],
        offsets: &[u32],
        info: &StepInfo<'_>,
    ) -> Result<Vec<Tensor>, BackendError> {
        let gpu = &program.gpu;
        gpu.count_work(pieces.len(), 0);
        let mut at = 0;
        loop {
            let started = Instant::now();
            let end = slice_end(pieces, at, gpu.max_submit_ops, step.profile.is_some(), program);
            {
                let mut pass = encoder.begin_compute_pass(&Default::default());
                for i in at..end {
                    self.dispatch(program, &mut pass, &pieces[i], offsets.get(i).copied())?;
                }
            }
            let done = end == pieces.len();
            if done && step.profile.is_none() {
                break;
            }
            let index = gpu.submit(NAME, encoder.finish())?;
            self.outgrown.borrow_mut().clear();
            // One at a time: a cancelled step ends soon, and none holds up what else uses the device.
            gpu.wait(Some(index))?;
            if let (Some(sink), true) = (step.profile, end > at) {
                // The first of several is the one that the others follow.
                if let Some(&instr) = program.dispatches[pieces[at].dispatch].instrs.first() {
                    sink.add_since(instr, started);
                }
            }
            encoder = gpu.device.create_command_encoder(&Default::default());
            at = end;
            if done {
                break;
            }
            step.check_cancelled()?;
        }
        self.outputs(program, step, encoder, info)
    }

    fn dispatch(
        &self,
        program: &Compiled,
        pass: &mut wgpu::ComputePass<'_>,
        piece: &Piece,
        offset: Option<u32>,
    ) -> Result<(), BackendError> {
        let caps = &program.gpu.caps;
        let pipeline = &program.dispatches[piece.dispatch].pipelines[piece.variant];
        let max = u64::from(caps.max_groups);
        let y = piece.n_groups.div_ceil(max);
        let x = piece.n_groups.div_ceil(y.max(1));
        if y > max {
            return Err(BackendError::InvalidInput {
                op: pipeline.source.name().to_owned(),
                reason: format!(
                    "{} workgroups are more than the device starts; run fewer tokens in a step",
                    piece.n_groups
                ),
            });
        }
        pass.set_pipeline(&pipeline.pipeline);
        pass.set_bind_group(0, self.groups[piece.dispatch].as_ref(), &[]);
        match (&self.params, offset) {
            (Some((_, group)), Some(offset)) => pass.set_bind_group(1, group, &[offset]),
            _ => pass.set_immediates(0, bytemuck::cast_slice(&piece.words)),
        }
        // Fits: both are at most `max_groups`.
        pass.dispatch_workgroups(x as u32, y as u32, 1);
        Ok(())
    }

    /// Copies what is returned into buffers of its own, once to stay on the device and once to be mapped.
    fn outputs(
        &self,
        program: &Compiled,
        step: &Step<'_>,
        mut encoder: wgpu::CommandEncoder,
        info: &StepInfo<'_>,
    ) -> Result<Vec<Tensor>, BackendError> {
        let gpu = &program.gpu;
        let mut made: HashMap<usize, (Pooled, Pooled)> = HashMap::new();
        for (i, output) in program.outputs.iter().enumerate() {
            let Output::Buffer(id, buf) = output else { continue };
            if !step.wants(i) {
                continue;
            }
            let value = program.segment.value(*id);
            let bytes = info.n_elems(&value.ty) as u64 * 4;
            if bytes == 0 {
                continue;
            }
            let stay = gpu.buffer(&value.name, Use::Storage, bytes)?;
            let map = gpu.buffer(&value.name, Use::Readback, bytes)?;
            let from = self.buffer(program, buf.index())?;
            copy(&mut encoder, from, &stay, bytes);
            copy(&mut encoder, from, &map, bytes);
            made.insert(i, (stay, map));
        }
        let index = gpu.submit(NAME, encoder.finish())?;
        self.outgrown.borrow_mut().clear();
        let mut outputs = Vec::with_capacity(program.outputs.len());
        for (i, output) in program.outputs.iter().enumerate() {
            outputs.push(match (output, made.remove(&i)) {
                (Output::Input(at), _) => {
                    let ty = &program.segment.value(program.segment.outputs[i]).ty;
                    let given = super::download(gpu, &step.inputs[*at])?;
                    given.reshaped(info.shape(ty))?
                }
                (Output::Weight(tensor), _) => tensor.clone(),
                (Output::Buffer(id, _), Some((stay, map))) => {
                    let ty = &program.segment.value(*id).ty;
                    let tensor = DeviceTensor::new(gpu, stay).with_readback(map, index.clone());
                    Tensor::device(ty.dtype, info.shape(ty), Arc::new(tensor))?
                }
                // Empty, or not wanted.
                (Output::Buffer(id, _), None) if !step.wants(i) => {
                    Tensor::zeros(program.segment.value(*id).ty.dtype, [0])?
                }
                (Output::Buffer(id, _), None) => {
                    let ty = &program.segment.value(*id).ty;
                    Tensor::zeros(ty.dtype, info.shape(ty))?
                }
            });
        }
        Ok(outputs)
    }
}

/// The first piece that does not go into the submission that begins at `at`: at least one does. Profiled, each
/// instruction has its own.
fn slice_end(pieces: &[Piece], at: usize, limit: u64, profiled: bool, program: &Compiled) -> usize {
    let mut ops = 0u64;
    for (i, piece) in pieces.iter().enumerate().skip(at) {
        let instr = |p: &Piece| &program.dispatches[p.dispatch].instrs;
        let over = ops.saturating_add(piece.ops) > limit;
        if i > at && (over || (profiled && instr(piece) != instr(&pieces[at]))) {
            return i;
        }
        ops = ops.saturating_add(piece.ops);
    }
    pieces.len()
}

fn check_binding(gpu: &Gpu, what: &str, bytes: u64) -> Result<(), BackendError> {
    if bytes <= gpu.caps.max_binding_bytes {
        return Ok(());
    }
    Err(BackendError::OutOfMemory {
        what: format!(
            "`{what}` in one binding of {} (fewer tokens in a step or in the context need less)",
            gpu.entry.name
        ),
        needed_bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
        limit_bytes: usize::try_from(gpu.caps.max_binding_bytes).unwrap_or(usize::MAX),
    })
}

impl Compiled {
    /// Arithmetic of an instruction in this step, whose sequences have these sizes.
    fn ops_of(&self, instr: usize, info: &StepInfo<'_>, seqs: &[glia_core::Sizes]) -> u64 {
        let cost = self
            .segment
            .cost(&self.segment.instrs[instr], &info.sizes, seqs, self.kv_dtypes);
        cost.map_or(0, |c| c.ops)
    }
}
