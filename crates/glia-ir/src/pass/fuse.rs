//! Fuses activations: `x * sigmoid(x)` is SiLU, and `act(gate) * up` is a gated linear unit.

use glia_core::{Binary, Gate, Op, Unary};

use super::rebuild::Rebuild;
use crate::graph::{Graph, GraphError, Node, NodeId, Vid};

/// The graph with SwiGLU and GeGLU as one op each. Only where nothing else reads the activation: it would be
/// computed twice.
///
/// # Errors
/// [`GraphError`] for a graph that is not verified.
pub fn fuse_gated(graph: &Graph) -> Result<Graph, GraphError> {
    // Readers that nothing needs must not count.
    let mut graph = super::dead_code(graph)?;
    loop {
        // The SiLU found in the first sweep is an activation in the second. A fusion drops a node and may leave
        // another value with a single reader, so this ends once there is none.
        let fused = sweep(&sweep(&graph, silu)?, gated)?;
        if fused.nodes.len() == graph.nodes.len() {
            return Ok(fused);
        }
        graph = fused;
    }
}

/// What the node behind one factor of a product and the other factor make together.
type Rule = fn(&Uses<'_>, &Node, Vid) -> Option<(Op, Vec<Vid>)>;

fn sweep(graph: &Graph, rule: Rule) -> Result<Graph, GraphError> {
    let uses = Uses::new(graph);
    let mut out = Rebuild::new(graph)?;
    for (id, node) in graph.iter_nodes() {
        match product(&uses, node, rule) {
            Some((op, inputs)) => {
                let inputs = out.get_all(&inputs)?;
                out.replace(id, op, &inputs)?;
            }
            None => out.copy(id)?,
        }
    }
    super::dead_code(&out.finish()?)
}

/// Who reads what: the legality of a fusion.
pub(super) struct Uses<'g> {
    pub graph: &'g Graph,
    readers: Vec<Vec<NodeId>>,
}

impl<'g> Uses<'g> {
    pub fn new(graph: &'g Graph) -> Uses<'g> {
        Uses {
            graph,
            readers: graph.readers(),
        }
    }

    /// The node that makes the value, when one node reads it and the graph does not return it.
    pub fn sole_producer(&self, value: Vid) -> Option<&'g Node> {
        let alone = self.readers[value.index()].len() == 1 && !self.graph.is_output(value);
        self.graph
            .producer(value)
            .filter(|_| alone)
            .map(|id| self.graph.node(id))
    }
}

/// Applies a rule to `a * b`, either way round. A factor that others read, or that is both factors, stays.
fn product(uses: &Uses<'_>, node: &Node, rule: Rule) -> Option<(Op, Vec<Vid>)> {
    let (Op::Binary(Binary::Mul), &[a, b]) = (&node.op, node.inputs.as_slice()) else {
        return None;
    };
    if a == b {
        return None;
    }
    [(a, b), (b, a)]
        .into_iter()
        .find_map(|(inner, other)| rule(uses, uses.sole_producer(inner)?, other))
}

/// `x * sigmoid(x)`.
fn silu(_: &Uses<'_>, inner: &Node, x: Vid) -> Option<(Op, Vec<Vid>)> {
    let matches = inner.op == Op::Unary(Unary::Sigmoid) && inner.inputs == [x];
    matches.then(|| (Op::Unary(Unary::Silu), vec![x]))
}

/// `act(gate) * up`, without broadcasting.
fn gated(uses: &Uses<'_>, inner: &Node, up: Vid) -> Option<(Op, Vec<Vid>)> {
    let act = match inner.op {
        Op::Unary(Unary::Silu) => Gate::Silu,
        Op::Unary(Unary::Gelu) => Gate::Gelu,
        Op::Unary(Unary::GeluTanh) => Gate::GeluTanh,
        _ => return None,
    };
    let &[gate] = inner.inputs.as_slice() else { return None };
    let fits = uses.graph.value(gate).ty == uses.graph.value(up).ty;
    fits.then(|| (Op::Gated(act), vec![gate, up]))
}

#[cfg(test)]
mod tests {
    use super::fuse_gated;
    use crate::pass::testing::run;

    #[test]
    fn gated_units_either_way_round() {
        let text = "
            input %gate f32[T, 8]
            input %up f32[T, 8]
            %act f32[T, 8] = silu(%gate)
            %swiglu f32[T, 8] = mul(%act, %up)
            %erf f32[T, 8] = gelu(%gate)
            %geglu f32[T, 8] = mul(%up, %erf)
            %tanh f32[T, 8] = gelu_tanh(%gate)
            %geglu_tanh f32[T, 8] = mul(%tanh, %up)
            %sigmoid f32[T, 8] = sigmoid(%gate)
            %by_hand f32[T, 8] = mul(%gate, %sigmoid)
            %product f32[T, 8] = mul(%by_hand, %up)
            output a = %swiglu
            output b = %geglu
            output c = %geglu_tanh
            output d = %product";
        insta::assert_snapshot!(run(fuse_gated, text), @r"
        graph g
        input %gate f32[T, 8]
        input %up f32[T, 8]
        %swiglu f32[T, 8] = swiglu(%gate, %up)
        %geglu f32[T, 8] = geglu(%gate, %up)
        %geglu_tanh f32[T, 8] = geglu_tanh(%gate, %up)
        %product f32[T, 8] = swiglu(%gate, %up)
        output a = %swiglu
        output b = %geglu
        output c = %geglu_tanh
        output d = %product
        ");
    }

    #[test]
    fn not_when_read_twice_returned_or_broadcast() {
        let text = "
            input %gate f32[T, 8]
            input %up f32[T, 8]
            input %row f32[8]
            %twice f32[T, 8] = silu(%gate)
            %a f32[T, 8] = mul(%twice, %up)
            %b f32[T, 8] = add(%twice, %up)
            %returned f32[T, 8] = gelu(%gate)
            %c f32[T, 8] = mul(%returned, %up)
            %wide f32[T, 8] = gelu_tanh(%gate)
            %d f32[T, 8] = mul(%wide, %row)
            %square f32[T, 8] = silu(%up)
            %e f32[T, 8] = mul(%square, %square)
            output a = %a
            output b = %b
            output act = %returned
            output c = %c
            output d = %d
            output e = %e";
        insta::assert_snapshot!(run(fuse_gated, text), @r"
        graph g
        input %gate f32[T, 8]
        input %up f32[T, 8]
        input %row f32[8]
        %twice f32[T, 8] = silu(%gate)
        %a f32[T, 8] = mul(%twice, %up)
        %b f32[T, 8] = add(%twice, %up)
        %returned f32[T, 8] = gelu(%gate)
        %c f32[T, 8] = mul(%returned, %up)
        %wide f32[T, 8] = gelu_tanh(%gate)
        %d f32[T, 8] = mul(%wide, %row)
        %square f32[T, 8] = silu(%up)
        %e f32[T, 8] = mul(%square, %square)
        output a = %a
        output b = %b
        output act = %returned
        output c = %c
        output d = %d
        output e = %e
        ");
    }
}
