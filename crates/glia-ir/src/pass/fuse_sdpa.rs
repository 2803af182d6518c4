//! Fuses attention written out in small ops into one `sdpa`, which never holds the whole score matrix.
//!
//! What is recognised, with the token dimension first as everywhere:
//! `permute[1,0,2](softmax{2}(scale(q' k'ᵀ) + mask) v')`, where `q' = permute[1,0,2](q)`, `k' = permute[1,0,2](k)`,
//! `v' = permute[1,2,0](v)`; scale and mask may be absent, `k` and `v` may both be repeated over heads (GQA).

use glia_core::{Binary, Op, Sdpa, ValueType};

use super::fuse::Uses;
use super::rebuild::Rebuild;
use super::views::permutation;
use crate::graph::{Graph, GraphError, Node, Vid};

/// The graph with written-out attention as one op each.
///
/// # Errors
/// [`GraphError`] for a graph that is not verified.
pub fn fuse_sdpa(graph: &Graph) -> Result<Graph, GraphError> {
    let uses = Uses::new(graph);
    let mut out = Rebuild::new(graph)?;
    let mut found = false;
    for (id, node) in graph.iter_nodes() {
        let fused = attention(&uses, node).filter(|(op, inputs)| {
            let output = node.outputs.first().map(|&v| graph.value(v).ty.clone());
            op.infer(&graph.types(inputs)).ok().as_deref() == output.as_ref().map(std::slice::from_ref)
        });
        match fused {
            Some((op, inputs)) => {
                found = true;
                let inputs = out.get_all(&inputs)?;
                out.replace(id, op, &inputs)?;
            }
            None => out.copy(id)?,
        }
    }
    let graph = out.finish()?;
    if found { super::dead_code(&graph) } else { Ok(graph) }
}

fn attention(uses: &Uses<'_>, node: &Node) -> Option<(Op, Vec<Vid>)> {
    let heads = permuted(uses, node, &[1, 0, 2])?;
    let (weights, values) = two(uses.sole_producer(heads)?, |op| *op == Op::MatMul)?;
    let v = permuted(uses, uses.sole_producer(values)?, &[1, 2, 0])?;
    let softmax = uses.sole_producer(weights)?;
    let (Op::Softmax { axis: 2 }, &[scores]) = (&softmax.op, softmax.inputs.as_slice()) else {
        return None;
    };
    let (scores, mask) = masked(uses, scores);
    let (product, scale) = scaled(uses, scores);
    let (queries, keys) = two(uses.sole_producer(product)?, |op| *op == Op::MatMul)?;
    let q = permuted(uses, uses.sole_producer(queries)?, &[1, 0, 2])?;
    let k = permuted(uses, uses.sole_producer(keys)?, &[1, 0, 2])?;
    let (k, v) = match (repeated(uses, k), repeated(uses, v)) {
        // Both, and equally often: else the heads of one would be read by the wrong queries.
        (Some((k, nk)), Some((v, nv))) if nk == nv => (k, v),
        _ => (k, v),
    };
    let sdpa = Sdpa {
        scale,
        causal: false,
        window: None,
        softcap: None,
        mask: mask.is_some(),
        sinks: false,
    };
    Some((Op::Sdpa(sdpa), [q, k, v].into_iter().chain(mask).collect()))
}

/// The input of a node that permutes so.
fn permuted(uses: &Uses<'_>, node: &Node, perm: &[usize]) -> Option<Vid> {
    let &[input] = node.inputs.as_slice() else { return None };
    let rank = uses.graph.value(input).ty.rank();
    (permutation(&node.op, rank)? == perm).then_some(input)
}

fn two(node: &Node, is: impl Fn(&Op) -> bool) -> Option<(Vid, Vid)> {
    match node.inputs.as_slice() {
        &[a, b] if is(&node.op) => Some((a, b)),
        _ => None,
    }
}

/// `scores + mask`, where the mask is one for all heads or one for each.
fn masked(uses: &Uses<'_>, scores: Vid) -> (Vid, Option<Vid>) {
    let found = uses
        .sole_producer(scores)
        .and_then(|add| two(add, |op| *op == Op::Binary(Binary::Add)))
        .and_then(|(a, b)| {
            let of: &ValueType = &uses.graph.value(scores).ty;
            let full = |v: Vid| uses.graph.value(v).ty == *of;
            let fits = |v: Vid| full(v) || of.dims.get(1..) == Some(&uses.graph.value(v).ty.dims[..]);
            let is_scores = |v: Vid| full(v) && scores_below(uses, v);
            [(a, b), (b, a)].into_iter().find(|&(s, m)| is_scores(s) && fits(m))
        });
    match found {
        Some((scores, mask)) => (scores, Some(mask)),
        None => (scores, None),
    }
}

/// Whether the value is a product of matrices, scaled or not.
fn scores_below(uses: &Uses<'_>, value: Vid) -> bool {
    let (product, _) = scaled(uses, value);
    uses.sole_producer(product).is_some_and(|n| n.op == Op::MatMul)
}

fn scaled(uses: &Uses<'_>, scores: Vid) -> (Vid, f32) {
    let found = uses
        .sole_producer(scores)
        .and_then(|n| match (&n.op, n.inputs.as_slice()) {
            (Op::Scale { factor }, &[x]) if factor.is_finite() => Some((x, *factor)),
            _ => None,
        });
    found.unwrap_or((scores, 1.0))
}

/// The value before `repeat{axis=1}` over heads, and how often.
fn repeated(uses: &Uses<'_>, value: Vid) -> Option<(Vid, usize)> {
    let node = uses.graph.node(uses.graph.producer(value)?);
    match (&node.op, node.inputs.as_slice()) {
        (Op::Repeat { axis: 1, n }, &[x]) => Some((x, *n)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::fuse_sdpa;
    use crate::pass::testing::run;

    const GQA: &str = "
        input %q f32[T, 4, 8]
        input %k f32[S, 2, 8]
        input %v f32[S, 2, 6]
        input %mask f32[T, S]
        %k4 f32[S, 4, 8] = repeat{axis=1, n=2}(%k)
        %v4 f32[S, 4, 6] = repeat{axis=1, n=2}(%v)
        %qh f32[4, T, 8] = transpose{a=0, b=1}(%q)
        %kh f32[4, S, 8] = permute{perm=[1, 0, 2]}(%k4)
        %vh f32[4, 6, S] = permute{perm=[1, 2, 0]}(%v4)
        %qk f32[4, T, S] = matmul(%qh, %kh)
        %scaled f32[4, T, S] = scale{factor=0.25}(%qk)
        %masked f32[4, T, S] = add(%scaled, %mask)
        %weights f32[4, T, S] = softmax{axis=2}(%masked)
        %heads f32[4, T, 6] = matmul(%weights, %vh)
        %attn f32[T, 4, 6] = permute{perm=[1, 0, 2]}(%heads)
        output y = %attn";

    #[test]
    fn grouped_queries_with_scale_and_mask() {
        insta::assert_snapshot!(run(fuse_sdpa, GQA), @r"
        graph g
        input %q f32[T, 4, 8]
        input %k f32[S, 2, 8]
        input %v f32[S, 2, 6]
        input %mask f32[T, S]
        %attn f32[T, 4, 6] = sdpa{scale=0.25, mask=true}(%q, %k, %v, %mask)
        output y = %attn
        ");
    }

    #[test]
    fn neither_scale_nor_mask() {
        let bare = GQA.replace("%scaled f32[4, T, S] = scale{factor=0.25}(%qk)", "");
        let bare = bare.replace("%masked f32[4, T, S] = add(%scaled, %mask)", "");
        insta::assert_snapshot!(run(fuse_sdpa, &bare.replace("(%masked)", "(%qk)")), @r"
        graph g
        input %q f32[T, 4, 8]
        input %k f32[S, 2, 8]
        input %v f32[S, 2, 6]
        input %mask f32[T, S]
        %attn f32[T, 4, 6] = sdpa{scale=1}(%q, %k, %v)
        output y = %attn
        ");
    }

    #[test]
    fn not_when_the_scores_are_returned() {
        let text = format!("{GQA}\noutput scores = %weights");
        assert!(!run(fuse_sdpa, &text).contains("sdpa"));
        let other_axis = GQA.replace("softmax{axis=2}", "softmax{axis=1}");
        assert!(!run(fuse_sdpa, &other_axis).contains("sdpa"));
    }
}
