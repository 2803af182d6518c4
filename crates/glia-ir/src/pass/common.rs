//! Common subexpressions: a node that computes what an earlier one has computed is dropped.

use std::collections::HashMap;

use super::rebuild::Rebuild;
use crate::graph::{Graph, GraphError, NodeId, Vid};

/// The graph with one node per op, attributes and inputs. State-carrying nodes are never merged: each has a past of
/// its own.
///
/// # Errors
/// [`GraphError`] for a graph that is not verified.
pub fn common_subexpressions(graph: &Graph) -> Result<Graph, GraphError> {
    let mut out = Rebuild::new(graph)?;
    // The text of an op tells all of its attributes exactly, floats included.
    let mut seen: HashMap<(String, Vec<Vid>), NodeId> = HashMap::new();
    for (id, node) in graph.iter_nodes() {
        if node.op.is_stateful() {
            out.copy(id)?;
            continue;
        }
        let key = (node.op.to_string(), out.get_all(&node.inputs)?);
        match seen.get(&key) {
            Some(&first) => {
                for (&output, &same) in node.outputs.iter().zip(&graph.node(first).outputs) {
                    let same = out.get(same)?;
                    out.set(output, same);
                }
            }
            None => {
                seen.insert(key, id);
                out.copy(id)?;
            }
        }
    }
    out.finish()
}

#[cfg(test)]
mod tests {
    use super::common_subexpressions;
    use crate::pass::testing::run;

    #[test]
    fn equal_nodes_merge_transitively() {
        let text = "
            input %x f32[T, 4]
            %a f32[T, 4] = silu(%x)
            %b f32[T, 4] = silu(%x)
            %a2 f32[T, 4] = scale{factor=2}(%a)
            %b2 f32[T, 4] = scale{factor=2}(%b)
            %b3 f32[T, 4] = scale{factor=2.0000002}(%b)
            %sum f32[T, 4] = add(%a2, %b2)
            output y = %sum
            output z = %b2
            output w = %b3";
        insta::assert_snapshot!(run(common_subexpressions, text), @r"
        graph g
        input %x f32[T, 4]
        %a f32[T, 4] = silu(%x)
        %a2 f32[T, 4] = scale{factor=2}(%a)
        %b3 f32[T, 4] = scale{factor=2.0000002}(%a)
        %sum f32[T, 4] = add(%a2, %a2)
        output y = %sum
        output z = %a2
        output w = %b3
        ");
    }

    #[test]
    fn states_stay_apart() {
        let text = "
            input %x f32[T, 4]
            a: %ak f32[P+T, 4], %av f32[P+T, 4] = kv_cache(%x, %x)
            b: %bk f32[P+T, 4], %bv f32[P+T, 4] = kv_cache(%x, %x)
            output y = %ak
            output z = %bk";
        insta::assert_snapshot!(run(common_subexpressions, text), @r"
        graph g
        input %x f32[T, 4]
        a: %ak f32[P+T, 4], %av f32[P+T, 4] = kv_cache(%x, %x)
        b: %bk f32[P+T, 4], %bv f32[P+T, 4] = kv_cache(%x, %x)
        output y = %ak
        output z = %bk
        ");
    }
}
