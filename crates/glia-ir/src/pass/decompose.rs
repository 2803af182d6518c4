//! Replaces nodes that no backend runs by their definition in simpler ops.

use glia_core::{NodeView, Op, Operand, ValueType};

use super::rebuild::Rebuild;
use crate::graph::{Graph, GraphError, Node, NodeId, ValueSource};

/// The graph in which each node that `supports` refuses is replaced by supported ones, as far as
/// [`Op::decompose`] leads there. A node for which it does not stays; the planner names it in its error.
///
/// # Errors
/// [`GraphError`] for a graph that is not verified.
pub fn decompose_unsupported(graph: &Graph, supports: &dyn Fn(&NodeView<'_>) -> bool) -> Result<Graph, GraphError> {
    let mut out = Rebuild::new(graph)?;
    for (id, node) in graph.iter_nodes() {
        let types = graph.types(&node.inputs);
        let is_const: Vec<bool> = node
            .inputs
            .iter()
            .map(|&v| graph.value(v).source == ValueSource::Weight)
            .collect();
        if supports(&NodeView::new(
            &node.name,
            &node.op,
            &types,
            &graph.types(&node.outputs),
            &is_const,
        )) {
            out.copy(id)?;
            continue;
        }
        let mut flat = Flat {
            node,
            supports,
            inputs: types.into_iter().zip(is_const).collect(),
            steps: Vec::new(),
        };
        let inputs: Vec<Ref> = (0..node.inputs.len()).map(Ref::Input).collect();
        match flat.expand(&node.op, &inputs, &mut Vec::new()) {
            Some(outputs) => emit(&mut out, id, &flat.steps, &outputs)?,
            None => out.copy(id)?,
        }
    }
    out.finish()
}

/// Adds the steps; the last one takes the node's place, so that names of values stay.
fn emit(out: &mut Rebuild<'_>, id: NodeId, steps: &[Step], outputs: &[Ref]) -> Result<(), GraphError> {
    let node = out.old.node(id);
    let mut made = Vec::with_capacity(steps.len());
    for (i, step) in steps.iter().enumerate() {
        let mut inputs = Vec::with_capacity(step.inputs.len());
        for &input in &step.inputs {
            inputs.push(match input {
                Ref::Input(i) => out.get(node.inputs[i])?,
                Ref::Step { step, output } => resolve(&made, step, output),
            });
        }
        let takes_place = i + 1 == steps.len() && *outputs == [Ref::Step { step: i, output: 0 }];
        if takes_place && step.types.len() == 1 {
            return out.replace(id, step.op.clone(), &inputs);
        }
        made.push(out.add(&format!("{}.{}", node.name, step.op.kind()), step.op.clone(), &inputs)?);
    }
    for (&old, &output) in node.outputs.iter().zip(outputs) {
        let new = match output {
            Ref::Input(i) => out.get(node.inputs[i])?,
            Ref::Step { step, output } => resolve(&made, step, output),
        };
        out.set(old, new);
    }
    Ok(())
}

fn resolve(made: &[Vec<crate::graph::Vid>], step: usize, output: usize) -> crate::graph::Vid {
    // `expand` refers to earlier steps and their inferred outputs only.
    made[step][output]
}

/// A value within the expansion of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ref {
    Input(usize),
    Step { step: usize, output: usize },
}

struct Step {
    op: Op,
    inputs: Vec<Ref>,
    types: Vec<ValueType>,
}

/// The expansion of one node down to supported ops.
struct Flat<'a> {
    node: &'a Node,
    supports: &'a dyn Fn(&NodeView<'_>) -> bool,
    inputs: Vec<(ValueType, bool)>,
    steps: Vec<Step>,
}

impl Flat<'_> {
    fn ty(&self, of: Ref) -> Option<&ValueType> {
        match of {
            Ref::Input(i) => self.inputs.get(i).map(|(ty, _)| ty),
            Ref::Step { step, output } => self.steps.get(step)?.types.get(output),
        }
    }

    /// The outputs of `op` by supported steps; `None` when that is not possible. `above` are the kinds being
    /// expanded: the norms are defined by each other, and a kind within itself leads nowhere.
    fn expand(&mut self, op: &Op, inputs: &[Ref], above: &mut Vec<&'static str>) -> Option<Vec<Ref>> {
        if above.contains(&op.kind()) {
            return None;
        }
        let types: Vec<ValueType> = inputs.iter().map(|&r| self.ty(r).cloned()).collect::<Option<_>>()?;
        let definition = op.decompose(&types)?;
        if !definition.consts.is_empty() {
            // A graph holds no tensors of its own.
            return None;
        }
        above.push(op.kind());
        let mut made: Vec<Vec<Ref>> = Vec::with_capacity(definition.parts.len());
        let find = |made: &[Vec<Ref>], operand: &Operand| match *operand {
            Operand::Input(i) => inputs.get(i).copied(),
            Operand::Part { part, output } => made.get(part)?.get(output).copied(),
            Operand::Const(_) => None,
        };
        for part in &definition.parts {
            let operands: Vec<Ref> = part.inputs.iter().map(|o| find(&made, o)).collect::<Option<_>>()?;
            made.push(self.part(&part.op, operands, above)?);
        }
        above.pop();
        definition.outputs.iter().map(|o| find(&made, o)).collect()
    }

    fn part(&mut self, op: &Op, inputs: Vec<Ref>, above: &mut Vec<&'static str>) -> Option<Vec<Ref>> {
        let types: Vec<ValueType> = inputs.iter().map(|&r| self.ty(r).cloned()).collect::<Option<_>>()?;
        let outputs = op.infer(&types).ok()?;
        let is_const: Vec<bool> = inputs
            .iter()
            .map(|r| matches!(r, Ref::Input(i) if self.inputs.get(*i).is_some_and(|(_, c)| *c)))
            .collect();
        if !(self.supports)(&NodeView::new(&self.node.name, op, &types, &outputs, &is_const)) {
            return self.expand(op, &inputs, above);
        }
        let step = self.steps.len();
        let refs = (0..outputs.len()).map(|output| Ref::Step { step, output }).collect();
        self.steps.push(Step {
            op: op.clone(),
            inputs,
            types: outputs,
        });
        Some(refs)
    }
}

#[cfg(test)]
mod tests {
    use super::decompose_unsupported;
    use crate::pass::testing::run;

    fn without(kinds: &[&str], body: &str) -> String {
        run(
            |g| decompose_unsupported(g, &|node| !kinds.contains(&node.op.kind())),
            body,
        )
    }

    #[test]
    fn a_gated_unit_down_to_sigmoids() {
        let text = "
            input %gate f32[T, 8]
            input %up f32[T, 8]
            %h f32[T, 8] = swiglu(%gate, %up)
            output h = %h";
        insta::assert_snapshot!(without(&["swiglu", "silu"], text), @r"
        graph g
        input %gate f32[T, 8]
        input %up f32[T, 8]
        %h.sigmoid f32[T, 8] = sigmoid(%gate)
        %h.mul f32[T, 8] = mul(%gate, %h.sigmoid)
        %h f32[T, 8] = mul(%h.mul, %up)
        output h = %h
        ");
    }

    #[test]
    fn the_norms_define_each_other() {
        let text = "
            input %x f32[T, 8]
            weight %g f32[8]
            weight %b f32[8]
            %ln f32[T, 8] = layer_norm{eps=1e-5}(%x, %g, %b)
            %rms f32[T, 8] = rms_norm{eps=1e-5, plus_one=true}(%x, %g)
            output ln = %ln
            output rms = %rms";
        insta::assert_snapshot!(without(&["layer_norm"], text), @r"
        graph g
        input %x f32[T, 8]
        weight %g f32[8]
        weight %b f32[8]
        %ln.mean f32[T, 1] = mean{axis=1, keep=true}(%x)
        %ln.sub f32[T, 8] = sub(%x, %ln.mean)
        %ln.rms_norm f32[T, 8] = rms_norm{eps=1e-5}(%ln.sub, %g)
        %ln f32[T, 8] = add(%ln.rms_norm, %b)
        %rms f32[T, 8] = rms_norm{eps=1e-5, plus_one=true}(%x, %g)
        output ln = %ln
        output rms = %rms
        ");
        insta::assert_snapshot!(without(&["rms_norm"], text), @r"
        graph g
        input %x f32[T, 8]
        weight %g f32[8]
        weight %b f32[8]
        %ln f32[T, 8] = layer_norm{eps=1e-5}(%x, %g, %b)
        %rms.scale f32[T, 8] = scale{factor=-1}(%x)
        %rms.concat f32[T, 16] = concat{axis=1}(%x, %rms.scale)
        %rms.layer_norm f32[T, 16] = layer_norm{eps=1e-5}(%rms.concat)
        %rms.slice f32[T, 8] = slice{axis=1, start=0, end=8}(%rms.layer_norm)
        %rms.mul f32[T, 8] = mul(%rms.slice, %g)
        %rms f32[T, 8] = add(%rms.slice, %rms.mul)
        output ln = %ln
        output rms = %rms
        ");
        // Without both there is no way.
        let both = without(&["layer_norm", "rms_norm"], text);
        assert!(both.contains("layer_norm") && both.contains("rms_norm"), "{both}");
    }

    #[test]
    fn attention_with_sinks_and_groups() {
        let text = "
            input %q f32[T, 4, 8]
            input %k f32[S, 2, 8]
            input %v f32[S, 2, 6]
            input %mask f32[T, S]
            weight %sinks f32[4]
            %attn f32[T, 4, 6] = sdpa{scale=0.25, mask=true, sinks=true, softcap=50}(%q, %k, %v, %mask, %sinks)
            output y = %attn";
        insta::assert_snapshot!(without(&["sdpa"], text), @r"
        graph g
        input %q f32[T, 4, 8]
        input %k f32[S, 2, 8]
        input %v f32[S, 2, 6]
        input %mask f32[T, S]
        weight %sinks f32[4]
        %attn.repeat f32[S, 4, 8] = repeat{axis=1, n=2}(%k)
        %attn.repeat~2 f32[S, 4, 6] = repeat{axis=1, n=2}(%v)
        %attn.permute f32[4, T, 8] = permute{perm=[1, 0, 2]}(%q)
        %attn.permute~2 f32[4, S, 8] = permute{perm=[1, 0, 2]}(%attn.repeat)
        %attn.permute~3 f32[4, 6, S] = permute{perm=[1, 2, 0]}(%attn.repeat~2)
        %attn.matmul f32[4, T, S] = matmul(%attn.permute, %attn.permute~2)
        %attn.scale f32[4, T, S] = scale{factor=0.25}(%attn.matmul)
        %attn.scale~2 f32[4, T, S] = scale{factor=0.02}(%attn.scale)
        %attn.tanh f32[4, T, S] = tanh(%attn.scale~2)
        %attn.scale~3 f32[4, T, S] = scale{factor=50}(%attn.tanh)
        %attn.add f32[4, T, S] = add(%attn.scale~3, %mask)
        %attn.reshape f32[4, 1, 1] = reshape{dims=[4, 1, 1]}(%sinks)
        %attn.slice f32[4, T, 1] = slice{axis=2, start=0, end=1}(%attn.scale~3)
        %attn.scale~4 f32[4, T, 1] = scale{factor=0}(%attn.slice)
        %attn.add~2 f32[4, T, 1] = add(%attn.scale~4, %attn.reshape)
        %attn.concat f32[4, T, S+1] = concat{axis=2}(%attn.add~2, %attn.add)
        %attn.softmax f32[4, T, S+1] = softmax{axis=2}(%attn.concat)
        %attn.slice~2 f32[4, T, S] = slice{axis=2, start=1}(%attn.softmax)
        %attn.matmul~2 f32[4, T, 6] = matmul(%attn.slice~2, %attn.permute~3)
        %attn f32[T, 4, 6] = permute{perm=[1, 0, 2]}(%attn.matmul~2)
        output y = %attn
        ");
        // Position rules need concrete shapes.
        let causal = text.replace("mask=true", "causal=true").replace("%v, %mask", "%v");
        assert!(without(&["sdpa"], &causal).contains("causal=true"));
    }

    #[test]
    fn several_outputs() {
        let text = "
            input %x f32[T, 8]
            parts: %a f32[T, 3], %b f32[T, 5] = split{axis=1, sizes=[3, 5]}(%x)
            output a = %a
            output b = %b";
        insta::assert_snapshot!(without(&["split"], text), @r"
        graph g
        input %x f32[T, 8]
        %parts.slice f32[T, 3] = slice{axis=1, start=0, end=3}(%x)
        %parts.slice~2 f32[T, 5] = slice{axis=1, start=3, end=8}(%x)
        output a = %parts.slice
        output b = %parts.slice~2
        ");
    }
}
