//! A planned piece of a graph as plain data: scheduled instructions over numbered values. What backends compile.

mod cost;

use std::fmt;

use crate::{BackendError, Op, Sizes, StateSpec, Tensor, ValueType};

/// Newtypes of `u32` that index a list.
#[doc(hidden)]
#[macro_export]
macro_rules! index_types {
    ($($(#[$doc:meta])* $name:ident, $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);
        impl $name {
            /// As an index into the list it numbers.
            pub fn index(self) -> usize { self.0 as usize }
        }
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { write!(f, concat!($prefix, "{}"), self.0) }
        }
    )*};
}

index_types! {
    /// Index into [`Segment::values`].
    ValueId, "v";
    /// Index of a weight, resolved through [`CompileOptions`](crate::CompileOptions).
    ConstId, "c";
    /// Index into [`Segment::states`].
    StateId, "s";
    /// Index into [`Segment::slots`].
    SlotId, "m";
}

/// What feeds an input of a segment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum InputRole {
    /// A tensor of the caller's, or another segment's output, by name.
    Named(String),
    /// Injected: position of the first new token, I32 `[1]`. Differs per sequence: a step gives it in its rows.
    Pos,
    /// Injected: position of every row, I32 `[T]`.
    Positions,
    /// Injected: rows whose outputs are wanted, I32 `[R]`, indices into the rows of the step.
    WantedRows,
}

/// Where a value lives.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ValueKind {
    /// Given with each step, in the order of [`Segment::inputs`].
    Input(InputRole),
    /// A weight.
    Const(ConstId),
    /// An intermediate in a slot of the arena.
    Temp(SlotId),
    /// An intermediate whose size depends on the past: allocated by the step.
    Dynamic,
    /// The bytes of another value under this value's shape.
    Alias(ValueId),
    /// All rows so far of one part of a state: `(state, part)`.
    State(StateId, usize),
}

/// One value of a segment.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueDef {
    /// Unique, readable.
    pub name: String,
    /// Dtype and dimensions.
    pub ty: ValueType,
    /// Where it lives.
    pub kind: ValueKind,
}

/// One scheduled node.
#[derive(Clone, Debug, PartialEq)]
pub struct Instr {
    /// Name of the graph node.
    pub node: String,
    /// What it computes.
    pub op: Op,
    /// Operands.
    pub inputs: Vec<ValueId>,
    /// Results.
    pub outputs: Vec<ValueId>,
    /// Values whose last reader this is: their slots are free afterwards.
    pub frees: Vec<ValueId>,
    /// The state of a state-carrying op.
    pub state: Option<StateId>,
}

/// A state of a segment.
#[derive(Clone, Debug, PartialEq)]
pub struct StateDef {
    /// Name of the node that carries it.
    pub node: String,
    /// Kind and row types.
    pub spec: StateSpec,
}

/// A piece of the arena that several values use in turn; as large as the largest of `users` in a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Slot {
    /// Types of the values that live here, in turn.
    pub users: Vec<ValueType>,
}

impl Slot {
    /// Bytes in a step, rounded up to 64; `None` on overflow.
    pub fn size_bytes(&self, sizes: &Sizes) -> Option<usize> {
        let mut most = 0;
        for ty in &self.users {
            most = most.max(ty.size_bytes(sizes)?);
        }
        most.checked_next_multiple_of(64)
    }
}

/// A planned piece of a graph for one backend.
///
/// Instructions run in order. Every value is defined before it is read; `verify` of glia-ir has proved it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Segment {
    /// All values; [`ValueId`] is the index.
    pub values: Vec<ValueDef>,
    /// The schedule.
    pub instrs: Vec<Instr>,
    /// Values of kind `Input`, in the order of [`Step::inputs`](crate::Step).
    pub inputs: Vec<ValueId>,
    /// Values to return, in order. Never an input or weight itself, unless the graph declares that.
    pub outputs: Vec<ValueId>,
    /// States; [`StateId`] is the index.
    pub states: Vec<StateDef>,
    /// The arena; [`SlotId`] is the index.
    pub slots: Vec<Slot>,
}

impl Segment {
    /// The definition of a value.
    pub fn value(&self, id: ValueId) -> &ValueDef {
        &self.values[id.index()]
    }

    /// Follows aliases to the value that owns the bytes.
    pub fn resolve(&self, mut id: ValueId) -> ValueId {
        while let ValueKind::Alias(of) = self.value(id).kind {
            id = of;
        }
        id
    }

    /// Checks that every id is in range and that aliases view earlier values.
    ///
    /// # Errors
    /// [`BackendError::UnknownId`].
    pub fn check_ids(&self) -> Result<(), BackendError> {
        let unknown = |what, id: u32| BackendError::UnknownId { what, id: id.into() };
        let lists = self
            .instrs
            .iter()
            .flat_map(|i| i.inputs.iter().chain(&i.outputs).chain(&i.frees));
        for id in lists.chain(&self.inputs).chain(&self.outputs) {
            if id.index() >= self.values.len() {
                return Err(unknown("value", id.0));
            }
        }
        for (i, def) in self.values.iter().enumerate() {
            match def.kind {
                ValueKind::Alias(of) if of.index() >= i => return Err(unknown("value", of.0)),
                ValueKind::Temp(slot) if slot.index() >= self.slots.len() => return Err(unknown("slot", slot.0)),
                ValueKind::State(id, part) => match self.states.get(id.index()) {
                    Some(state) if part < state.spec.parts.len() => {}
                    _ => return Err(unknown("state", id.0)),
                },
                _ => {}
            }
        }
        Ok(())
    }

    /// Checks that a weight has the declared type.
    ///
    /// # Errors
    /// [`BackendError::ShapeMismatch`], naming the weight.
    pub fn check_weight(&self, id: ConstId, tensor: &Tensor) -> Result<(), BackendError> {
        let Some(def) = self.values.iter().find(|v| v.kind == ValueKind::Const(id)) else {
            return Ok(());
        };
        if def.ty.dtype == tensor.dtype() && def.ty.as_fixed().as_ref() == Some(tensor.shape()) {
            return Ok(());
        }
        let (name, dtype, shape) = (&def.name, tensor.dtype(), tensor.shape());
        let reason = format!("weight `{name}` is {dtype} {shape} instead of {}", def.ty);
        Err(BackendError::shape("weight", reason))
    }

    /// The types of these values.
    pub fn types(&self, ids: &[ValueId]) -> Vec<ValueType> {
        ids.iter().map(|&id| self.value(id).ty.clone()).collect()
    }

    /// Bytes of the arena in a step; `None` on overflow.
    pub fn arena_bytes(&self, sizes: &Sizes) -> Option<usize> {
        self.slots
            .iter()
            .try_fold(0usize, |n, slot| n.checked_add(slot.size_bytes(sizes)?))
    }
}

impl fmt::Display for Segment {
    /// The stable text form, one line each for inputs, weights, states, instructions and outputs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for def in &self.values {
            match &def.kind {
                ValueKind::Input(role) => {
                    let role = match role {
                        InputRole::Named(_) => "",
                        InputRole::Pos => " injected pos",
                        InputRole::Positions => " injected positions",
                        InputRole::WantedRows => " injected wanted_rows",
                    };
                    writeln!(f, "input %{} {}{role}", def.name, def.ty)?;
                }
                ValueKind::Const(_) => writeln!(f, "const %{} {}", def.name, def.ty)?,
                _ => {}
            }
        }
        for state in &self.states {
            writeln!(f, "state {} {:?} {:?}", state.node, state.spec.kind, state.spec.parts)?;
        }
        for instr in &self.instrs {
            f.write_str("  ")?;
            for (i, &id) in instr.outputs.iter().enumerate() {
                let def = self.value(id);
                write!(f, "{}%{} {}", if i > 0 { ", " } else { "" }, def.name, def.ty)?;
                match &def.kind {
                    ValueKind::Temp(slot) => write!(f, " @{slot}")?,
                    ValueKind::Alias(of) => write!(f, " =%{}", self.value(*of).name)?,
                    ValueKind::State(state, part) => write!(f, " @{state}.{part}")?,
                    ValueKind::Dynamic => f.write_str(" @heap")?,
                    ValueKind::Input(_) | ValueKind::Const(_) => {}
                }
            }
            write!(f, " = {}(", instr.op)?;
            for (i, &id) in instr.inputs.iter().enumerate() {
                write!(f, "{}%{}", if i > 0 { ", " } else { "" }, self.value(id).name)?;
            }
            f.write_str(")")?;
            for (i, &id) in instr.frees.iter().enumerate() {
                write!(f, "{}%{}", if i > 0 { " " } else { " free " }, self.value(id).name)?;
            }
            writeln!(f)?;
        }
        for &id in &self.outputs {
            writeln!(f, "output %{}", self.value(id).name)?;
        }
        Ok(())
    }
}
