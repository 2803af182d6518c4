//! Drops nodes that change nothing, to the bit: scaling by one, casts to the same dtype, views onto the same type.

use glia_core::{Op, ValueType};

use super::rebuild::Rebuild;
use crate::graph::{Graph, GraphError};

/// The graph without identities.
///
/// # Errors
/// [`GraphError`] for a graph that is not verified.
pub fn simplify(graph: &Graph) -> Result<Graph, GraphError> {
    let mut out = Rebuild::new(graph)?;
    for (id, node) in graph.iter_nodes() {
        let (input, output) = match (node.inputs.first(), node.outputs.as_slice()) {
            (Some(&input), &[output]) => (input, output),
            _ => {
                out.copy(id)?;
                continue;
            }
        };
        if is_identity(&node.op, &graph.value(input).ty, &graph.value(output).ty) {
            let same = out.get(input)?;
            out.set(output, same);
        } else {
            out.copy(id)?;
        }
    }
    out.finish()
}

/// Whether a node with one output gives back its first input, bit for bit.
pub(super) fn is_identity(op: &Op, input: &ValueType, output: &ValueType) -> bool {
    if input != output {
        return false;
    }
    match op {
        Op::Scale { factor } => *factor == 1.0,
        Op::Cast { .. } | Op::Reshape { .. } => true,
        Op::Transpose { a, b } => a == b,
        Op::Permute { perm } => perm.iter().enumerate().all(|(i, &p)| i == p),
        Op::Slice { start, .. } => *start == 0,
        Op::Repeat { n, .. } => *n == 1,
        // Equal types: every other piece is empty. One piece alone is the common case.
        Op::Split { sizes, .. } => sizes.len() == 1,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::simplify;
    use crate::pass::testing::run;

    #[test]
    fn identities_go() {
        let text = "
            input %x f32[T, 4]
            %a f32[T, 4] = scale{factor=1}(%x)
            %b f32[T, 4] = cast{to=f32}(%a)
            %c f32[T, 4] = reshape{dims=[-1, 4]}(%b)
            %d f32[T, 4] = permute{perm=[0, 1]}(%c)
            %e f32[T, 4] = transpose{a=1, b=1}(%d)
            %f f32[T, 4] = slice{axis=1, start=0, end=4}(%e)
            %g f32[T, 4] = repeat{axis=1, n=1}(%f)
            %h f32[T, 4] = split{axis=1, sizes=[4]}(%g)
            %i f32[T, 4] = silu(%h)
            output y = %i
            output same = %h";
        insta::assert_snapshot!(run(simplify, text), @r"
        graph g
        input %x f32[T, 4]
        %i f32[T, 4] = silu(%x)
        output y = %i
        output same = %x
        ");
    }

    #[test]
    fn what_only_looks_like_an_identity_stays() {
        let text = "
            input %x f32[4, 4]
            %a f32[4, 4] = transpose{a=0, b=1}(%x)
            %b f32[4, 4] = permute{perm=[1, 0]}(%a)
            %c f32[4, 4] = scale{factor=0.99999994}(%b)
            %d f16[4, 4] = cast{to=f16}(%c)
            output y = %d";
        insta::assert_snapshot!(run(simplify, text), @r"
        graph g
        input %x f32[4, 4]
        %a f32[4, 4] = transpose{a=0, b=1}(%x)
        %b f32[4, 4] = permute{perm=[1, 0]}(%a)
        %c f32[4, 4] = scale{factor=0.99999994}(%b)
        %d f16[4, 4] = cast{to=f16}(%c)
        output y = %d
        ");
    }
}
