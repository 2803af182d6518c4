//! Which ops treat the rows of dimension 0 one by one, and which of their inputs hold those rows.

use glia_core::{Dim, Op, Sdpa, ValueType};

/// What an input is to a row-wise node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Output row `i` reads row `i` of it.
    Row,
    /// Every output row may read all of it.
    Whole,
}

/// The roles of the inputs when every output row depends on the same row of the `Row` inputs and on nothing else
/// that changes with the rows chosen; `None` for other ops. At least one input is a `Row`.
pub(super) fn row_roles(op: &Op, inputs: &[ValueType], outputs: &[ValueType]) -> Option<Vec<Role>> {
    use Role::{Row, Whole};
    let rank = inputs.first()?.rank();
    let first_then_whole = || -> Vec<Role> { (0..inputs.len()).map(|i| if i == 0 { Row } else { Whole }).collect() };
    let by_axis = |axis: usize| (axis != 0).then(first_then_whole);
    let roles = match op {
        Op::MatMul => (rank >= 2 && inputs.get(1)?.rank() == 2).then(first_then_whole)?,
        Op::Binary(_) => {
            let out_rank = outputs.first()?.rank();
            let aligned = |ty: &ValueType| ty.rank() == out_rank && ty.dims.first() == Some(&Dim::T);
            inputs.iter().map(|ty| if aligned(ty) { Row } else { Whole }).collect()
        }
        Op::Unary(_) | Op::Scale { .. } | Op::Clamp { .. } | Op::Cast { .. } | Op::TokenEmbed => first_then_whole(),
        Op::Gated(_) => vec![Row; inputs.len()],
        Op::RmsNorm { .. } | Op::LayerNorm { .. } | Op::TopK { .. } => (rank >= 2).then(first_then_whole)?,
        // The long table is chosen by the length of the sequence, which the rows left may not show.
        Op::Rope(rope) if rope.long_from.is_none() => vec![Row, Row, Whole],
        // Only the leading dimension depends on the step, so equal ones mean that rows keep their elements; it was
        // inferred, and will be again.
        Op::Reshape { dims } => (dims.first() == Some(&-1)).then(first_then_whole)?,
        Op::Transpose { a, b } => (*a != 0 && *b != 0).then(first_then_whole)?,
        Op::Permute { perm } => (perm.first() == Some(&0)).then(first_then_whole)?,
        Op::Concat { axis } => (*axis != 0).then(|| vec![Row; inputs.len()])?,
        Op::Softmax { axis }
        | Op::Slice { axis, .. }
        | Op::Split { axis, .. }
        | Op::Gather { axis }
        | Op::Repeat { axis, .. }
        | Op::Argmax { axis }
        | Op::Sum { axis, .. }
        | Op::Mean { axis, .. } => by_axis(*axis)?,
        // Without a position rule each query sees all keys, but the queries of several sequences are told apart by
        // their place in the step.
        Op::Sdpa(Sdpa { .. }) => return None,
        _ => return None,
    };
    let rows_fit = roles
        .iter()
        .zip(inputs)
        .all(|(role, ty)| *role == Whole || ty.dims.first() == Some(&Dim::T));
    let any = roles.contains(&Row);
    let out_fits = outputs.iter().all(|ty| ty.dims.first() == Some(&Dim::T));
    (rows_fit && any && out_fits).then_some(roles)
}
