//! Row selection: only the rows whose outputs are wanted pass through the head.
//!
//! A declared output of `T` rows becomes one of `R` rows, the `wanted_rows` of the step. The gather that picks them
//! is pushed up as far as nodes treat every row on its own, so that a prefill of 512 tokens that asks for the last
//! row computes the logits of one.

mod roles;

use roles::{Role, row_roles};

use glia_core::{Dim, Op};

use super::rebuild::Rebuild;
use crate::graph::{Graph, GraphError, NodeId, Vid};

/// The graph whose declared outputs of leading dimension `T` have `R` rows instead, with one gather for each value
/// at the border. Other outputs, and graphs without such outputs, are untouched.
///
/// A node computes `R` rows when it is row-wise over dimension 0 and all that read it compute `R` rows or are
/// declared outputs. Nodes that need more than their row, such as attention and caches, see all rows of the step.
///
/// # Errors
/// [`GraphError`] for a graph that is not verified.
pub fn select_rows(graph: &Graph) -> Result<Graph, GraphError> {
    let narrowed = narrowed(graph);
    let mut out = Selection {
        gathered: vec![None; graph.values.len()],
        narrowed: &narrowed,
        out: Rebuild::new(graph)?,
    };
    for (id, node) in graph.iter_nodes() {
        let Some(roles) = &narrowed[id.index()] else {
            out.out.copy(id)?;
            continue;
        };
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for (&input, role) in node.inputs.iter().zip(roles) {
            inputs.push(match role {
                Role::Row => out.rows(input)?,
                Role::Whole => out.out.get(input)?,
            });
        }
        out.out.replace(id, node.op.clone(), &inputs)?;
    }
    for output in &graph.outputs {
        if has_rows(graph, output.value) {
            let rows = out.rows(output.value)?;
            out.out.redirect(&output.name, rows);
        }
    }
    out.out.finish()
}

fn has_rows(graph: &Graph, value: Vid) -> bool {
    graph.value(value).ty.dims.first() == Some(&Dim::T)
}

/// For each node that can compute wanted rows only: what its inputs are to it.
fn narrowed(graph: &Graph) -> Vec<Option<Vec<Role>>> {
    let mut narrowed: Vec<Option<Vec<Role>>> = vec![None; graph.nodes.len()];
    // Whether someone needs all rows of the value, and whether anyone needs it at all.
    let mut whole = vec![false; graph.values.len()];
    let mut wanted = vec![false; graph.values.len()];
    for output in &graph.outputs {
        wanted[output.value.index()] = true;
    }
    for (i, node) in graph.nodes.iter().enumerate().rev() {
        let free = |v: &Vid| has_rows(graph, *v) && !whole[v.index()];
        let useful = node.outputs.iter().any(|v| wanted[v.index()]);
        let roles = row_roles(&node.op, &graph.types(&node.inputs), &graph.types(&node.outputs))
            .filter(|_| useful && node.outputs.iter().all(free));
        for (j, input) in node.inputs.iter().enumerate() {
            wanted[input.index()] |= useful;
            let is_row = roles.as_ref().is_some_and(|r| r.get(j) == Some(&Role::Row));
            whole[input.index()] |= !is_row;
        }
        narrowed[i] = roles;
    }
    narrowed
}

struct Selection<'g, 'n> {
    out: Rebuild<'g>,
    narrowed: &'n [Option<Vec<Role>>],
    /// The wanted rows of each value that is computed in full, once gathered.
    gathered: Vec<Option<Vid>>,
}

impl Selection<'_, '_> {
    fn makes_rows(&self, node: NodeId) -> bool {
        self.narrowed[node.index()].is_some()
    }

    /// The new value that holds the wanted rows of an old one.
    fn rows(&mut self, old: Vid) -> Result<Vid, GraphError> {
        let all = self.out.get(old)?;
        if self.out.old.producer(old).is_some_and(|node| self.makes_rows(node)) {
            return Ok(all);
        }
        if let Some(rows) = self.gathered[old.index()] {
            return Ok(rows);
        }
        let wanted = self.out.builder().wanted_rows();
        let name = format!("{}.wanted", self.out.old.value(old).name);
        let rows = self.out.add(&name, Op::Gather { axis: 0 }, &[all, wanted])?[0];
        self.gathered[old.index()] = Some(rows);
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::select_rows;
    use crate::pass::testing::run;

    #[test]
    fn the_head_sees_wanted_rows_only() {
        let text = "
            input %ids i32[T]
            inject %positions i32[T]
            weight %table f32[50, 8]
            weight %gain f32[8]
            weight %freqs f32[2]
            %x f32[T, 8] = token_embed(%ids, %table)
            %heads f32[T, 2, 4] = reshape{dims=[-1, 2, 4]}(%x)
            %rope f32[T, 2, 4] = rope{pairing=neox}(%heads, %positions, %freqs)
            cache: %k f32[P+T, 2, 4], %v f32[P+T, 2, 4] = kv_cache(%rope, %heads)
            %attn f32[T, 2, 4] = sdpa{scale=0.5, causal=true}(%rope, %k, %v)
            %flat f32[T, 8] = reshape{dims=[-1, 8]}(%attn)
            %res f32[T, 8] = add(%x, %flat)
            %norm f32[T, 8] = rms_norm{eps=1e-5}(%res, %gain)
            %logits f32[T, 50] = matmul(%norm, %table)
            output logits = %logits";
        insta::assert_snapshot!(run(select_rows, text), @r"
        graph g
        input %ids i32[T]
        inject %positions i32[T]
        inject %wanted_rows i32[R]
        weight %table f32[50, 8]
        weight %gain f32[8]
        weight %freqs f32[2]
        %x f32[T, 8] = token_embed(%ids, %table)
        %heads f32[T, 2, 4] = reshape{dims=[-1, 2, 4]}(%x)
        %rope f32[T, 2, 4] = rope{pairing=neox}(%heads, %positions, %freqs)
        cache: %k f32[P+T, 2, 4], %v f32[P+T, 2, 4] = kv_cache(%rope, %heads)
        %attn f32[T, 2, 4] = sdpa{scale=0.5, causal=true}(%rope, %k, %v)
        %attn.wanted f32[R, 2, 4] = gather{axis=0}(%attn, %wanted_rows)
        %flat f32[R, 8] = reshape{dims=[-1, 8]}(%attn.wanted)
        %x.wanted f32[R, 8] = gather{axis=0}(%x, %wanted_rows)
        %res f32[R, 8] = add(%x.wanted, %flat)
        %norm f32[R, 8] = rms_norm{eps=1e-5}(%res, %gain)
        %logits f32[R, 50] = matmul(%norm, %table)
        output logits = %logits
        ");
    }

    #[test]
    fn a_returned_hidden_state_that_others_need_whole_is_gathered_at_the_output() {
        let text = "
            input %x f32[T, 8]
            %h f32[T, 8] = silu(%x)
            cache: %k f32[P+T, 8], %v f32[P+T, 8] = kv_cache(%h, %h)
            %last f32[T, 8] = gelu(%h)
            output hidden = %h
            output again = %h
            output last = %last
            output past = %k
            output given = %x";
        insta::assert_snapshot!(run(select_rows, text), @r"
        graph g
        input %x f32[T, 8]
        inject %wanted_rows i32[R]
        %h f32[T, 8] = silu(%x)
        cache: %k f32[P+T, 8], %v f32[P+T, 8] = kv_cache(%h, %h)
        %h.wanted f32[R, 8] = gather{axis=0}(%h, %wanted_rows)
        %last f32[R, 8] = gelu(%h.wanted)
        %x.wanted f32[R, 8] = gather{axis=0}(%x, %wanted_rows)
        output hidden = %h.wanted
        output again = %h.wanted
        output last = %last
        output past = %k
        output given = %x.wanted
        ");
    }

    #[test]
    fn rows_that_mix_stop_the_gather() {
        let text = "
            input %x f32[T, 8]
            input %other f32[T, 8]
            %p f32[T, 8] = softmax{axis=0}(%x)
            %sum f32[1, 8] = sum{axis=0, keep=true}(%x)
            %a f32[T, 8] = add(%p, %sum)
            %b f32[T, 8] = mul(%a, %other)
            parts: %left f32[T, 3], %right f32[T, 5] = split{axis=1, sizes=[3, 5]}(%b)
            %joined f32[T, 8] = concat{axis=1}(%right, %left)
            %best i32[T] = argmax{axis=1}(%joined)
            output best = %best
            output sum = %sum";
        insta::assert_snapshot!(run(select_rows, text), @r"
        graph g
        input %x f32[T, 8]
        input %other f32[T, 8]
        inject %wanted_rows i32[R]
        %p f32[T, 8] = softmax{axis=0}(%x)
        %sum f32[1, 8] = sum{axis=0, keep=true}(%x)
        %p.wanted f32[R, 8] = gather{axis=0}(%p, %wanted_rows)
        %a f32[R, 8] = add(%p.wanted, %sum)
        %other.wanted f32[R, 8] = gather{axis=0}(%other, %wanted_rows)
        %b f32[R, 8] = mul(%a, %other.wanted)
        parts: %left f32[R, 3], %right f32[R, 5] = split{axis=1, sizes=[3, 5]}(%b)
        %joined f32[R, 8] = concat{axis=1}(%right, %left)
        %best i32[R] = argmax{axis=1}(%joined)
        output best = %best
        output sum = %sum
        ");
    }

    #[test]
    fn a_reader_that_needs_all_rows_keeps_them() {
        // `w` multiplies by the rows of `x`, so `x` is no row of the product.
        let text = "
            input %x f32[T, 8]
            %h f32[T, 8] = silu(%x)
            %gram f32[T, T] = matmul(%h, %h)
            output y = %gram";
        insta::assert_snapshot!(run(select_rows, text), @r"
        graph g
        input %x f32[T, 8]
        inject %wanted_rows i32[R]
        %h f32[T, 8] = silu(%x)
        %h.wanted f32[R, 8] = gather{axis=0}(%h, %wanted_rows)
        %gram f32[R, T] = matmul(%h.wanted, %h)
        output y = %gram
        ");
    }
}
