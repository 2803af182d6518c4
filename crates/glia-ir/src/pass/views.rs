//! Merges chains of layout ops: reshape of reshape, permutation of permutation, slice of slice.

use glia_core::{Op, ValueType};

use super::rebuild::Rebuild;
use super::simplify::is_identity;
use crate::graph::{Graph, GraphError, Vid};

/// The graph with each chain of like layout ops as one, or none when the chain changes nothing. The inner ops stay
/// for dead-code elimination, which knows whether someone else reads them.
///
/// # Errors
/// [`GraphError`] for a graph that is not verified.
pub fn merge_views(graph: &Graph) -> Result<Graph, GraphError> {
    let mut out = Rebuild::new(graph)?;
    for (id, node) in graph.iter_nodes() {
        let (&[input], &[output]) = (node.inputs.as_slice(), node.outputs.as_slice()) else {
            out.copy(id)?;
            continue;
        };
        let input = out.get(input)?;
        let ty = &graph.value(output).ty;
        let Some((op, source)) = merged(&out, &node.op, input, ty) else {
            out.replace(id, node.op.clone(), &[input])?;
            continue;
        };
        if is_identity(&op, out.ty(source), ty) {
            out.set(output, source);
        } else {
            out.replace(id, op, &[source])?;
        }
    }
    out.finish()
}

/// The op that does the work of `outer` on `input` and of the op that makes `input`, and what it works on.
fn merged(out: &Rebuild<'_>, outer: &Op, input: Vid, ty: &ValueType) -> Option<(Op, Vid)> {
    let inner = out.graph().node(out.graph().producer(input)?);
    let &[source] = inner.inputs.as_slice() else {
        return None;
    };
    let op = match (outer, &inner.op) {
        (Op::Reshape { .. }, Op::Reshape { .. }) => Op::Reshape { dims: reshape_to(ty)? },
        (Op::Transpose { .. } | Op::Permute { .. }, Op::Transpose { .. } | Op::Permute { .. }) => {
            let (outer, inner) = (permutation(outer, ty.rank())?, permutation(&inner.op, ty.rank())?);
            let perm = outer.iter().map(|&o| inner.get(o).copied()).collect::<Option<_>>()?;
            Op::Permute { perm }
        }
        (
            Op::Slice { axis, start, end },
            Op::Slice {
                axis: inner_axis,
                start: inner_start,
                end: inner_end,
            },
        ) if axis == inner_axis => Op::Slice {
            axis: *axis,
            start: start.checked_add(*inner_start)?,
            end: match (end, inner_end) {
                (Some(end), _) => Some(end.checked_add(*inner_start)?),
                (None, inner_end) => *inner_end,
            },
        },
        _ => return None,
    };
    // A merged op may break a rule that neither part breaks, for instance that quantised rows stay whole.
    let inferred = op.infer(std::slice::from_ref(out.ty(source))).ok()?;
    (inferred == [ty.clone()]).then_some((op, source))
}

/// The dimensions for a reshape to this type; `None` when two of them depend on the step.
pub(super) fn reshape_to(ty: &ValueType) -> Option<Vec<i64>> {
    let of = |d: &glia_core::Dim| d.as_fixed().map_or(Some(-1), |n| i64::try_from(n).ok());
    let dims: Vec<i64> = ty.dims.iter().map(of).collect::<Option<_>>()?;
    (dims.iter().filter(|&&d| d == -1).count() <= 1).then_some(dims)
}

/// A transposition or permutation as output dimension -> input dimension.
pub(super) fn permutation(op: &Op, rank: usize) -> Option<Vec<usize>> {
    match op {
        Op::Permute { perm } => Some(perm.clone()),
        Op::Transpose { a, b } if *a < rank && *b < rank => {
            let mut perm: Vec<usize> = (0..rank).collect();
            perm.swap(*a, *b);
            Some(perm)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::merge_views;
    use crate::pass::testing::run;

    #[test]
    fn reshapes() {
        let text = "
            input %x f32[T, 12]
            %a f32[T, 3, 4] = reshape{dims=[-1, 3, 4]}(%x)
            %b f32[T, 2, 6] = reshape{dims=[-1, 2, 6]}(%a)
            %c f32[T, 12] = reshape{dims=[-1, 12]}(%b)
            output read = %a
            output merged = %b
            output identity = %c";
        insta::assert_snapshot!(run(merge_views, text), @r"
        graph g
        input %x f32[T, 12]
        %a f32[T, 3, 4] = reshape{dims=[-1, 3, 4]}(%x)
        %b f32[T, 2, 6] = reshape{dims=[-1, 2, 6]}(%x)
        output read = %a
        output merged = %b
        output identity = %x
        ");
    }

    #[test]
    fn permutations() {
        let text = "
            input %x f32[T, 3, 4]
            %a f32[3, T, 4] = transpose{a=0, b=1}(%x)
            %b f32[4, 3, T] = permute{perm=[2, 0, 1]}(%a)
            %c f32[T, 3, 4] = transpose{a=0, b=2}(%b)
            output merged = %b
            output identity = %c";
        insta::assert_snapshot!(run(merge_views, text), @r"
        graph g
        input %x f32[T, 3, 4]
        %a f32[3, T, 4] = transpose{a=0, b=1}(%x)
        %b f32[4, 3, T] = permute{perm=[2, 1, 0]}(%x)
        output merged = %b
        output identity = %x
        ");
    }

    #[test]
    fn slices() {
        let text = "
            input %x f32[T, 12]
            %a f32[T, 9] = slice{axis=1, start=2, end=11}(%x)
            %b f32[T, 3] = slice{axis=1, start=1, end=4}(%a)
            %c f32[T, 8] = slice{axis=1, start=1}(%a)
            %d f32[T-1, 9] = slice{axis=0, start=1}(%a)
            output b = %b
            output c = %c
            output d = %d";
        insta::assert_snapshot!(run(merge_views, text), @r"
        graph g
        input %x f32[T, 12]
        %a f32[T, 9] = slice{axis=1, start=2, end=11}(%x)
        %b f32[T, 3] = slice{axis=1, start=3, end=6}(%x)
        %c f32[T, 8] = slice{axis=1, start=3, end=11}(%x)
        %d f32[T-1, 9] = slice{axis=0, start=1}(%a)
        output b = %b
        output c = %c
        output d = %d
        ");
    }
}
