//! Drops nodes, weights and injected values that no declared output needs.

use super::rebuild::Rebuild;
use crate::graph::{Graph, GraphError};

/// The graph without what no output needs. A state that nothing reads goes too; inputs stay, they are the interface.
///
/// # Errors
/// [`GraphError`] for a graph that is not verified.
pub fn dead_code(graph: &Graph) -> Result<Graph, GraphError> {
    let mut live = vec![false; graph.values.len()];
    for output in &graph.outputs {
        live[output.value.index()] = true;
    }
    for node in graph.nodes.iter().rev() {
        if node.outputs.iter().any(|v| live[v.index()]) {
            for input in &node.inputs {
                live[input.index()] = true;
            }
        }
    }
    let mut out = Rebuild::new(graph)?;
    for (id, node) in graph.iter_nodes() {
        if node.outputs.iter().any(|v| live[v.index()]) {
            out.copy(id)?;
        }
    }
    out.finish()
}

#[cfg(test)]
mod tests {
    use super::dead_code;
    use crate::pass::testing::run;

    #[test]
    fn unread_nodes_weights_and_states_go() {
        let text = "
            input %x f32[T, 4]
            input %unread f32[T, 4]
            inject %positions i32[T]
            weight %w f32[2, 4]
            weight %used f32[4]
            cache: %k f32[P+T, 4], %v f32[P+T, 4] = kv_cache(%x, %x)
            %a f32[T, 2] = matmul(%x, %w)
            %b f32[T, 2] = silu(%a)
            %c f32[T, 4] = mul(%x, %used)
            output y = %c";
        insta::assert_snapshot!(run(dead_code, text), @r"
        graph g
        input %x f32[T, 4]
        input %unread f32[T, 4]
        weight %used f32[4]
        %c f32[T, 4] = mul(%x, %used)
        output y = %c
        ");
    }

    #[test]
    fn one_live_output_keeps_the_node() {
        let text = "
            input %x f32[T, 4]
            top: %values f32[T, 2], %indices i32[T, 2] = topk{k=2}(%x)
            output y = %indices";
        insta::assert_snapshot!(run(dead_code, text), @r"
        graph g
        input %x f32[T, 4]
        top: %values f32[T, 2], %indices i32[T, 2] = topk{k=2}(%x)
        output y = %indices
        ");
    }
}
