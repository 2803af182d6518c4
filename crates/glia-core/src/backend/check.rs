//! What every program checks before any work of a step: its inputs, and who owns which rows.

use super::{SeqId, SeqRows, Step};
use crate::{BackendError, Dim, InputRole, Segment, Sizes, Symbol, Tensor, ValueKind, ValueType};

impl Step<'_> {
    /// Checks number, dtype and shape of the inputs, and that the wanted rows rise within the step. Returns the sizes
    /// of the step; the encoder's rows are solved from the inputs.
    ///
    /// # Errors
    /// [`BackendError::WrongArity`], [`BackendError::InvalidInput`], [`BackendError::ShapeMismatch`]; the last also
    /// for an input without a row per token in a step of several sequences.
    pub fn check_inputs(&self, segment: &Segment) -> Result<Sizes, BackendError> {
        if self.inputs.len() != segment.inputs.len() {
            return Err(BackendError::WrongArity {
                op: "step".to_owned(),
                expected: segment.inputs.len().to_string(),
                got: self.inputs.len(),
            });
        }
        let n_rows = self.n_rows();
        let rising = self.wanted_rows.is_sorted_by(|a, b| a < b);
        if !rising || self.wanted_rows.last().is_some_and(|&w| w as usize >= n_rows) {
            let reason = format!("wanted rows {:?} do not rise within 0..{n_rows}", self.wanted_rows);
            return Err(BackendError::invalid("step", reason));
        }
        let mut sizes = Sizes {
            t: n_rows,
            p: self.rows.first().map_or(0, |r| r.pos),
            r: self.wanted_rows.len(),
            n: self.rows.len(),
            s: 0,
        };
        let given = || segment.inputs.iter().map(|&id| segment.value(id)).zip(self.inputs);
        let encoder_rows = Dim::symbol(Symbol::S);
        for (def, tensor) in given() {
            let at = def.ty.dims.iter().position(|d| *d == encoder_rows);
            if let Some(&s) = at.and_then(|i| tensor.shape().get(i)) {
                sizes.s = s;
            }
        }
        for (def, tensor) in given() {
            check_type(&def.ty, &sizes, tensor)
                .map_err(|reason| BackendError::shape("step", format!("input `{}` {reason}", def.name)))?;
            let named = matches!(def.kind, ValueKind::Input(InputRole::Named(_)));
            if self.rows.len() > 1 && named && def.ty.dims.first() != Some(&Dim::T) {
                let reason = format!(
                    "input `{}` {} has no row per token: one sequence at a time",
                    def.name, def.ty
                );
                return Err(BackendError::shape("step", reason));
            }
        }
        Ok(sizes)
    }
}

/// Whether a tensor has the planned type; else what is wrong.
pub(crate) fn check_type(ty: &ValueType, sizes: &Sizes, tensor: &Tensor) -> Result<(), String> {
    let planned = ty
        .shape(sizes)
        .ok_or_else(|| format!("has a planned type {ty} too large to address"))?;
    if tensor.dtype() == ty.dtype && *tensor.shape() == planned {
        return Ok(());
    }
    let (dtype, shape) = (tensor.dtype(), tensor.shape());
    Err(format!("is {dtype} {shape} instead of {} {planned}", ty.dtype))
}

/// Checks the rows of a step: dense, each sequence once, behind its `len_of` tokens (`None` for one that does not
/// exist) and within the context.
///
/// # Errors
/// [`BackendError::UnknownId`], [`BackendError::InvalidInput`], [`BackendError::ContextOverflow`].
pub fn check_rows(
    rows: &[SeqRows],
    max_context: usize,
    len_of: impl Fn(SeqId) -> Option<usize>,
) -> Result<(), BackendError> {
    let invalid = |reason: String| Err(BackendError::invalid("step", reason));
    let mut next = 0usize;
    for (i, row) in rows.iter().enumerate() {
        let (id, len) = (row.seq.0, len_of(row.seq).ok_or(row.seq.unknown())?);
        if rows[..i].iter().any(|r| r.seq == row.seq) {
            return invalid(format!("sequence {id} appears twice"));
        }
        if row.first_row != next || row.n_rows == 0 {
            return invalid(format!("rows of sequence {id} are not dense"));
        }
        if row.pos != len {
            return invalid(format!("sequence {id} has {len} tokens, not {}", row.pos));
        }
        let needed = row.pos.saturating_add(row.n_rows);
        if needed > max_context {
            let max = max_context;
            return Err(BackendError::ContextOverflow { needed, max });
        }
        next = next.saturating_add(row.n_rows);
    }
    Ok(())
}

impl SeqId {
    /// The error for a sequence that does not exist.
    pub fn unknown(self) -> BackendError {
        BackendError::UnknownId {
            what: "sequence",
            id: self.0,
        }
    }

    /// The error for a sequence that exists already.
    pub fn taken(self) -> BackendError {
        BackendError::invalid("create", format!("sequence {} exists already", self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, ValueDef, ValueId};

    fn row(seq: u64, first_row: usize, n_rows: usize, pos: usize) -> SeqRows {
        SeqRows {
            seq: SeqId(seq),
            first_row,
            n_rows,
            pos,
        }
    }

    #[test]
    fn rows_are_dense_known_and_within_the_context() {
        let len_of = |seq: SeqId| (seq.0 < 3).then_some(seq.0 as usize * 10);
        let said = |rows: &[SeqRows]| check_rows(rows, 30, len_of).map_err(|e| e.to_string());
        assert_eq!(said(&[row(1, 0, 5, 10), row(0, 5, 30, 0), row(2, 35, 1, 20)]), Ok(()));
        for (rows, expected) in [
            (vec![row(7, 0, 1, 0)], "unknown sequence 7"),
            (vec![row(0, 0, 1, 0), row(0, 1, 1, 0)], "appears twice"),
            (vec![row(0, 0, 0, 0)], "not dense"),
            (vec![row(0, 0, 2, 0), row(1, 1, 1, 10)], "not dense"),
            (vec![row(1, 0, 1, 9)], "has 10 tokens, not 9"),
            (vec![row(1, 0, 21, 10)], "31 tokens needed, 30 fit"),
            (vec![row(1, 0, usize::MAX, 10)], "tokens needed"),
        ] {
            let err = said(&rows).unwrap_err();
            assert!(err.contains(expected), "{err}");
        }
    }

    #[test]
    fn inputs_have_the_planned_types() {
        let mut segment = Segment::default();
        for (name, dims) in [("x", vec![Dim::T]), ("memory", vec![Dim::symbol(Symbol::S), 2.into()])] {
            segment.inputs.push(ValueId(segment.values.len() as u32));
            segment.values.push(ValueDef {
                name: name.to_owned(),
                ty: ValueType::new(DType::F32, dims),
                kind: ValueKind::Input(InputRole::Named(name.to_owned())),
            });
        }
        let zeros = |shape: &[usize]| Tensor::zeros(DType::F32, shape).unwrap();
        let check = |rows: &[SeqRows], inputs: &[Tensor], wanted: &[u32]| {
            Step::new(rows, inputs, wanted)
                .check_inputs(&segment)
                .map_err(|e| e.to_string())
        };
        let (one, good) = ([row(0, 0, 3, 4)], [zeros(&[3]), zeros(&[5, 2])]);
        let sizes = check(&one, &good, &[0, 2]).unwrap();
        assert_eq!((sizes.t, sizes.p, sizes.r, sizes.n, sizes.s), (3, 4, 2, 1, 5));
        let two = [row(0, 0, 1, 0), row(1, 1, 2, 0)];
        let ints = Tensor::zeros(DType::I32, [3]).unwrap();
        for (rows, inputs, wanted, expected) in [
            (&one[..], vec![zeros(&[3])], vec![], "2 inputs, got 1"),
            (&one, good.to_vec(), vec![1, 1], "do not rise"),
            (&one, good.to_vec(), vec![3], "within 0..3"),
            (
                &one,
                vec![zeros(&[2]), zeros(&[5, 2])],
                vec![],
                "input `x` is f32 [2] instead of f32 [3]",
            ),
            (
                &one,
                vec![ints, zeros(&[5, 2])],
                vec![],
                "input `x` is i32 [3] instead of f32 [3]",
            ),
            (&two, good.to_vec(), vec![], "`memory` f32[S, 2] has no row per token"),
        ] {
            let err = check(rows, &inputs, &wanted).unwrap_err();
            assert!(err.contains(expected), "{err}");
        }
    }
}
