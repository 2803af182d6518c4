//! Lowering: instructions become stages; stages that do not depend on each other form a group, and a group begins when
//! the one before is done.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use glia_core::{
    BackendError, CompileOptions, ConstId, DType, Instr, Op, Segment, Sizes, StateId, Symbol, Tensor, ValueId,
    ValueKind, ValueType, quant,
};

use super::slots;
use crate::error::{dtype, invalid};
use crate::kernel::Kernel;
use crate::pack::{ActForm, PackedMatrix};
use crate::state::{KvLayout, PartLayout};

/// A kernel of the schedule.
pub(crate) struct Stage {
    pub kernel: Box<dyn Kernel>,
    /// Index of the instruction it belongs to.
    pub instr: usize,
    pub(super) reads: Vec<Key>,
    pub(super) writes: Vec<Key>,
}

/// What two stages can conflict over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Slot(u32),
    Value(u32),
    State(u32),
}

/// Where a value of the program is during a step. The first values are the segment's, the rest are private.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Given with the step.
    Input(usize),
    /// One of `Lowered::consts`.
    Const(usize),
    /// In a slot of the arena.
    Slot(u32),
    /// A returned tensor.
    Output(usize),
    /// The bytes of another value.
    Alias(u32),
    /// In blocks of sequences, or nowhere.
    Nowhere,
}

/// A segment ready to run.
pub(crate) struct Lowered {
    pub stages: Vec<Stage>,
    /// Runs of stages that do not depend on each other.
    pub groups: Vec<Range<usize>>,
    pub places: Vec<Place>,
    /// Types of all values, private ones too.
    pub types: Vec<ValueType>,
    pub consts: Vec<Tensor>,
    pub n_slots: usize,
    /// For each returned tensor, the value whose bytes it holds.
    pub fresh: Vec<u32>,
}

type TableKey = (u32, u32, Option<(u32, usize)>, u32);

pub(crate) struct Builder<'a> {
    segment: &'a Segment,
    options: &'a CompileOptions<'a>,
    layout: &'a KvLayout,
    out: Lowered,
    instr: usize,
    const_places: Vec<Option<usize>>,
    tables: Vec<(TableKey, u32)>,
    packed: HashMap<ConstId, Arc<PackedMatrix>>,
    /// Prepared rows by value, row length and form.
    prepared: Vec<((u32, usize, ActForm), u32)>,
    /// Stands for the results of splits, which all share one memory.
    partials: Option<u32>,
}

/// Whether `id` is the constant matrix of a matrix product, which is packed.
pub(crate) fn is_weight(segment: &Segment, instr: &Instr, id: ValueId) -> bool {
    let def = segment.value(id);
    matches!(instr.op, Op::MatMul)
        && instr.inputs.get(1) == Some(&id)
        && instr.inputs[0] != id
        && def.ty.rank() == 2
        && matches!(def.kind, ValueKind::Const(_))
}

impl<'a> Builder<'a> {
    /// A builder, or `None` for a segment that is left to the interpreter.
    ///
    /// # Errors
    /// [`BackendError`] for ids that the segment does not have, and weights of another type than declared.
    pub fn new(
        segment: &'a Segment,
        options: &'a CompileOptions<'a>,
        layout: &'a KvLayout,
        packed: HashMap<ConstId, Arc<PackedMatrix>>,
    ) -> Result<Option<Builder<'a>>, BackendError> {
        let mut builder = Builder {
            segment,
            options,
            layout,
            out: Lowered {
                stages: Vec::new(),
                groups: Vec::new(),
                places: Vec::with_capacity(segment.values.len()),
                types: segment.values.iter().map(|v| v.ty.clone()).collect(),
                consts: Vec::new(),
                n_slots: 0,
                fresh: Vec::new(),
            },
            instr: 0,
            const_places: vec![None; options.consts.n_consts()],
            tables: Vec::new(),
            packed,
            prepared: Vec::new(),
            partials: None,
        };
        for (i, def) in segment.values.iter().enumerate() {
            let id = ValueId(i as u32);
            let place = match def.kind {
                ValueKind::Input(_) => match segment.inputs.iter().position(|&v| v == id) {
                    Some(at) => Place::Input(at),
                    None => return Err(invalid("plan", format!("input `{}` is not listed", def.name))),
                },
                ValueKind::Const(_) | ValueKind::State(..) => Place::Nowhere,
                ValueKind::Dynamic if def.ty.depends_on(Symbol::P) => return Ok(None),
                // Slots are shared anew when the private values are known.
                ValueKind::Temp(_) | ValueKind::Dynamic => builder.new_slot(),
                ValueKind::Alias(of) => Place::Alias(of.0),
            };
            builder.out.places.push(place);
        }
        for &id in &segment.outputs {
            let root = segment.resolve(id);
            match segment.value(root).kind {
                ValueKind::State(..) => return Ok(None),
                ValueKind::Temp(_) | ValueKind::Dynamic
                    if !matches!(builder.out.places[root.index()], Place::Output(_)) =>
                {
                    builder.out.places[root.index()] = Place::Output(builder.out.fresh.len());
                    builder.out.fresh.push(root.0);
                }
                ValueKind::Const(c) => builder.keep(root.0, c)?,
                _ => {}
            }
        }
        Ok(Some(builder))
    }

    fn new_slot(&mut self) -> Place {
        self.out.n_slots += 1;
        Place::Slot(self.out.n_slots as u32 - 1)
    }

    /// Makes a weight readable under its own bytes.
    fn keep(&mut self, value: u32, id: ConstId) -> Result<(), BackendError> {
        let slot = self
            .const_places
            .get(id.index())
            .copied()
            .ok_or(BackendError::UnknownId {
                what: "weight",
                id: id.0.into(),
            })?;
        let at = match slot {
            Some(at) => at,
            None => {
                let tensor = self.tensor(id)?;
                // Weights in a file lie at any address; vectors of plain numbers are read in place.
                let plain = !tensor.dtype().is_quantized() && tensor.shape().rank() < 2;
                let tensor = if plain { tensor.to_owned_aligned()? } else { tensor };
                self.out.consts.push(tensor);
                let at = self.out.consts.len() - 1;
                self.const_places[id.index()] = Some(at);
                at
            }
        };
        self.out.places[value as usize] = Place::Const(at);
        Ok(())
    }

    /// A weight that is read under its own bytes.
    pub fn constant(&self, id: u32) -> Option<Tensor> {
        match self.out.places[self.root(id) as usize] {
            Place::Const(at) => Some(self.out.consts[at].clone()),
            _ => None,
        }
    }

    /// A weight, checked against its declared type.
    fn tensor(&self, id: ConstId) -> Result<Tensor, BackendError> {
        let tensor = self.options.consts.tensor(id)?;
        self.segment.check_weight(id, &tensor)?;
        Ok(tensor)
    }

    /// Where a value's bytes are, following aliases.
    fn root(&self, mut id: u32) -> u32 {
        while let Place::Alias(of) = self.out.places[id as usize] {
            id = of;
        }
        id
    }

    fn key(&self, id: u32) -> Key {
        let root = self.root(id);
        match self.out.places[root as usize] {
            Place::Slot(slot) => Key::Slot(slot),
            _ => match self.segment.values.get(root as usize).map(|v| &v.kind) {
                Some(ValueKind::State(state, _)) => Key::State(state.0),
                _ => Key::Value(root),
            },
        }
    }

    /// Adds a stage of the current instruction.
    pub fn stage(&mut self, kernel: impl Kernel + 'static, reads: &[u32], writes: &[u32]) {
        let writes = writes.iter().map(|&id| self.key(id)).collect();
        self.push(Box::new(kernel), reads, writes);
    }

    /// Adds a stage that appends to a state.
    pub fn append_stage(&mut self, kernel: impl Kernel + 'static, reads: &[u32], state: u32) {
        self.push(Box::new(kernel), reads, vec![Key::State(state)]);
    }

    fn push(&mut self, kernel: Box<dyn Kernel>, reads: &[u32], writes: Vec<Key>) {
        let reads = reads.iter().map(|&id| self.key(id)).collect();
        self.out.stages.push(Stage {
            kernel,
            instr: self.instr,
            reads,
            writes,
        });
    }

    /// The kind of a value of the segment.
    pub fn kind(&self, id: u32) -> ValueKind {
        self.segment.values[id as usize].kind.clone()
    }

    pub fn rank(&self, id: u32) -> usize {
        self.out.types[id as usize].rank()
    }

    pub fn dtype(&self, id: u32) -> DType {
        self.out.types[id as usize].dtype
    }

    /// Whether the first dimension depends on `symbol`.
    pub fn rows_depend_on(&self, id: u32, symbol: Symbol) -> bool {
        self.out.types[id as usize]
            .dims
            .first()
            .is_some_and(|d| d.depends_on(symbol))
    }

    /// Whether the bytes are those of a state.
    pub fn is_state(&self, id: u32) -> bool {
        matches!(
            self.segment.value(self.segment.resolve(ValueId(id))).kind,
            ValueKind::State(..)
        )
    }

    /// The layout of a cache.
    pub fn cache(&self, state: StateId) -> Option<[PartLayout; 2]> {
        self.layout.states.get(state.index()).copied()
    }

    /// A value as F32: itself, or a constant converted once.
    pub fn as_f32(&mut self, id: u32) -> Result<u32, BackendError> {
        let from = self.dtype(id);
        if from == DType::F32 {
            return Ok(id);
        }
        let root = self.segment.resolve(ValueId(id));
        let ValueKind::Const(c) = self.segment.value(root).kind else {
            return Err(dtype("weight", from));
        };
        let tensor = self.tensor(c)?;
        let mut converted = Tensor::zeros(DType::F32, *tensor.shape())?;
        quant::dequantize(from, tensor.bytes()?, converted.as_f32_mut()?)
            .map_err(|e| invalid("weight", e.to_string()))?;
        let ty = ValueType::fixed(DType::F32, tensor.shape());
        self.out.consts.push(converted);
        Ok(self.private(Place::Const(self.out.consts.len() - 1), ty))
    }

    fn private(&mut self, place: Place, ty: ValueType) -> u32 {
        self.out.places.push(place);
        self.out.types.push(ty);
        self.out.places.len() as u32 - 1
    }

    /// A private value of the step in memory of its own.
    pub fn temp(&mut self, ty: ValueType) -> u32 {
        let place = self.new_slot();
        self.private(place, ty)
    }

    /// The table of cosines and sines for these positions and frequencies, made once.
    pub fn rope_table<K: Kernel + 'static>(
        &mut self,
        positions: u32,
        freqs: u32,
        long: Option<(u32, usize)>,
        scale: f32,
        kernel: impl FnOnce(u32) -> K,
    ) -> u32 {
        let key = (positions, freqs, long, scale.to_bits());
        if let Some((_, table)) = self.tables.iter().find(|(k, _)| *k == key) {
            return *table;
        }
        let rows = self.out.types[positions as usize]
            .dims
            .first()
            .copied()
            .unwrap_or(1.into());
        let half = self.out.types[freqs as usize].dims.first().copied().unwrap_or(0.into());
        let table = self.temp(ValueType::new(DType::F32, [rows, 2.into(), half]));
        let mut reads = vec![positions, freqs];
        reads.extend(long.map(|(id, _)| id));
        self.stage(kernel(table), &reads, &[table]);
        self.tables.push((key, table));
        table
    }

    /// The packed form of a weight.
    pub fn packed(&self, id: u32) -> Option<Arc<PackedMatrix>> {
        match self.kind(id) {
            ValueKind::Const(c) => self.packed.get(&c).cloned(),
            _ => None,
        }
    }

    /// What stages that hand over [`StepCx::partials`](crate::kernel::StepCx) write and read, so that none of another
    /// instruction comes between.
    pub fn partials(&mut self) -> u32 {
        let id = self
            .partials
            .unwrap_or_else(|| self.temp(ValueType::fixed(DType::F32, &[1])));
        *self.partials.insert(id)
    }

    /// The matrix whose products are all that is done with `x`; with several, they take the same form of rows.
    pub fn only_reader(&self, x: u32) -> Option<Arc<PackedMatrix>> {
        let is_x = |id: &ValueId| id.0 == x;
        let alias = |def: &glia_core::ValueDef| matches!(def.kind, ValueKind::Alias(of) if is_x(&of));
        if self.segment.outputs.iter().any(is_x) || self.segment.values.iter().any(alias) {
            return None;
        }
        let mut found: Option<Arc<PackedMatrix>> = None;
        for instr in self.segment.instrs.iter().filter(|i| i.inputs.iter().any(is_x)) {
            let &[a, w, ..] = &instr.inputs[..] else { return None };
            let weights = self.packed(w.0).filter(|_| is_weight(self.segment, instr, w))?;
            let same = |other: &PackedMatrix| other.k() == weights.k() && other.act_form() == weights.act_form();
            if a.0 != x || instr.inputs[1..].iter().any(is_x) || !found.as_deref().is_none_or(same) {
                return None;
            }
            found = Some(weights);
        }
        found
    }

    /// Says that a value has no memory: all that read it read its prepared rows.
    pub fn nowhere(&mut self, x: u32) {
        self.out.places[x as usize] = Place::Nowhere;
    }

    /// The rows of `x` prepared for a packed matrix, from the values that `kernel` reads; shared by all that read `x` in
    /// the same form.
    pub fn prepared<K: Kernel + 'static>(
        &mut self,
        x: u32,
        weights: &PackedMatrix,
        reads: &[u32],
        kernel: impl FnOnce(u32) -> K,
    ) -> u32 {
        // The value's id, not its memory: another value may use that later.
        let key = (self.root(x), weights.k(), weights.act_form());
        if let Some((_, id)) = self.prepared.iter().find(|(k, _)| *k == key) {
            return *id;
        }
        let mut dims = self.out.types[x as usize].dims.clone();
        dims.pop();
        dims.push(weights.act_row_bytes().into());
        let acts = self.temp(ValueType::new(DType::U8, dims));
        self.stage(kernel(acts), reads, &[acts]);
        self.prepared.push((key, acts));
        acts
    }

    /// Lowers all instructions; `None` when one of them cannot be compiled.
    ///
    /// # Errors
    /// [`BackendError`], naming the node.
    pub fn lower(mut self) -> Result<Option<Lowered>, BackendError> {
        let segment = self.segment;
        for (i, instr) in segment.instrs.iter().enumerate() {
            self.instr = i;
            let at = |e: BackendError| e.at(crate::error::NAME, &instr.node, instr.op.kind());
            for &id in &instr.inputs {
                let root = segment.resolve(id);
                if let ValueKind::Const(c) = segment.value(root).kind
                    && !(is_weight(segment, instr, id) && self.packed.contains_key(&c))
                {
                    self.keep(root.0, c).map_err(at)?;
                }
                let is_sdpa = matches!(instr.op, glia_core::Op::Sdpa(_));
                let pos = matches!(segment.value(root).kind, ValueKind::Input(glia_core::InputRole::Pos));
                if pos || (self.is_state(id.0) && !is_sdpa) {
                    return Ok(None);
                }
            }
            if !crate::ops::lower(&mut self, instr).map_err(at)? {
                return Ok(None);
            }
        }
        if self
            .out
            .stages
            .iter()
            .any(|s| s.writes.iter().any(|w| s.reads.contains(w)))
        {
            return Ok(None);
        }
        self.out.groups = slots::groups(&self.out.stages);
        let largest = Sizes {
            t: self.options.max_step_tokens,
            p: self.options.max_context.saturating_sub(self.options.max_step_tokens),
            r: 1,
            n: 1,
            s: self.options.max_context,
        };
        slots::share(&mut self.out, &largest);
        Ok(Some(self.out))
    }
}
