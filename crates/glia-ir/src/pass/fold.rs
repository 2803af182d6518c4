//! Folds nodes that read weights only: views of weights become weights of their own without a copy, small
//! computations are done once.

use std::collections::BTreeMap;
use std::ops::Range;

use glia_core::{Op, Tensor, TensorError, ValueType, tensor_bytes};

use super::rebuild::Rebuild;
use crate::graph::{Graph, GraphError, Node, ValueSource, Vid};

/// A weight that the graph's source does not hold, but that follows from those it holds.
#[derive(Clone, Debug)]
pub enum Derived {
    /// Bytes of another weight, shared.
    View {
        /// Name of a weight of the source.
        of: String,
        /// Its type, as the graph declared it.
        base: ValueType,
        /// Rows of its outermost dimension.
        rows: Option<Range<usize>>,
        /// The type: the same elements under these dimensions.
        ty: ValueType,
    },
    /// Computed when the graph was folded.
    Value(Tensor),
}

impl Derived {
    /// The tensor, given that of the weight it views (ignored for a computed one).
    ///
    /// # Errors
    /// [`TensorError`] when the base tensor has another type than the graph declares.
    pub fn resolve(&self, base: &Tensor) -> Result<Tensor, TensorError> {
        match self {
            Derived::Value(tensor) => Ok(tensor.clone()),
            Derived::View {
                base: declared,
                rows,
                ty,
                ..
            } => {
                if base.dtype() != declared.dtype {
                    return Err(TensorError::WrongDType {
                        expected: declared.dtype,
                        got: base.dtype(),
                    });
                }
                // The same shape under another name: an error when it is not.
                let base = match declared.as_fixed() {
                    Some(shape) if shape != *base.shape() => {
                        return Err(TensorError::WrongLength {
                            dtype: declared.dtype,
                            shape,
                            needed: tensor_bytes(declared.dtype, &shape)?,
                            got: base.size_bytes(),
                        });
                    }
                    _ => base,
                };
                let cut = match rows {
                    Some(rows) => base.slice_rows(rows.clone())?,
                    None => base.clone(),
                };
                match ty.as_fixed() {
                    Some(shape) => cut.reshaped(shape),
                    None => Ok(cut),
                }
            }
        }
    }
}

/// A graph and the weights that folding has added to it, by name.
#[derive(Clone, Debug)]
pub struct Folded {
    /// The graph; derived weights are weights in it.
    pub graph: Graph,
    /// How each derived weight is made.
    pub derived: BTreeMap<String, Derived>,
}

/// Runs one op on concrete tensors; `None` when it cannot.
pub type RunOp<'a> = dyn Fn(&Op, &[&Tensor]) -> Option<Vec<Tensor>> + 'a;

/// What folding may compute with. Without it, only views fold.
#[derive(Clone, Copy)]
pub struct Evaluator<'a> {
    /// A weight by name; `None` when it cannot be read (preparing reports it).
    pub weight: &'a dyn Fn(&str) -> Option<Tensor>,
    /// Runs an op; `None` leaves the node in the graph. Use the backend that would run the node, for equal bits.
    pub run: &'a RunOp<'a>,
    /// Largest operand and result. Folding large weights would double the memory of a model.
    pub max_bytes: usize,
}

/// Replaces nodes that read weights only by derived weights: reshapes and row slices as views of any size, others by
/// `evaluator` when they are small.
///
/// # Errors
/// [`GraphError`] for a graph that is not verified.
pub fn fold_weights(graph: &Graph, evaluator: Option<Evaluator<'_>>) -> Result<Folded, GraphError> {
    let mut derived = BTreeMap::new();
    let mut out = Rebuild::new(graph)?;
    for (id, node) in graph.iter_nodes() {
        let inputs = out.get_all(&node.inputs)?;
        let only_weights = !inputs.is_empty() && inputs.iter().all(|&v| is_weight(&out, v));
        let results = if only_weights && !node.op.is_stateful() {
            views(graph, node, &out, &inputs, &derived)
                .or_else(|| evaluator.and_then(|e| evaluated(graph, node, &out, &inputs, &derived, e)))
        } else {
            None
        };
        let Some(results) = results else {
            out.copy(id)?;
            continue;
        };
        for (&old, how) in node.outputs.iter().zip(results) {
            let value = graph.value(old);
            let new = out.builder().weight(&value.name, value.ty.clone())?;
            derived.insert(value.name.clone(), how);
            out.set(old, new);
        }
    }
    // What only intermediate steps needed goes.
    let graph = super::dead_code(&out.finish()?)?;
    derived.retain(|name, _| graph.weights().any(|(_, w)| w.name == *name));
    Ok(Folded { graph, derived })
}

fn is_weight(out: &Rebuild<'_>, new: Vid) -> bool {
    out.graph().value(new).source == ValueSource::Weight
}

/// One derived view per output, for reshapes and cuts of the outermost dimension.
fn views(
    graph: &Graph,
    node: &Node,
    out: &Rebuild<'_>,
    inputs: &[Vid],
    derived: &BTreeMap<String, Derived>,
) -> Option<Vec<Derived>> {
    let &[input] = inputs else { return None };
    let input = out.graph().value(input);
    let shape = input.ty.as_fixed()?;
    let ranges: Vec<Option<Range<usize>>> = match &node.op {
        Op::Reshape { .. } => vec![None],
        Op::Slice { axis: 0, start, end } => vec![Some(*start..end.unwrap_or(*shape.first()?))],
        Op::Split { axis: 0, sizes } => {
            let mut start = 0usize;
            let mut ranges = Vec::with_capacity(sizes.len());
            for size in sizes {
                let end = start.checked_add(*size)?;
                ranges.push(Some(start..end));
                start = end;
            }
            ranges
        }
        _ => return None,
    };
    let (of, base, before) = match derived.get(&input.name) {
        None => (&input.name, &input.ty, None),
        Some(Derived::View { of, base, rows, .. }) => (of, base, rows.clone()),
        Some(Derived::Value(_)) => return None,
    };
    // Rows of a view are rows of its base only while the row is the same: no reshape in between.
    let same_rows = base.dims.get(1..) == input.ty.dims.get(1..);
    let cut = |range: Option<Range<usize>>| -> Option<Option<Range<usize>>> {
        let Some(range) = range else {
            return Some(before.clone());
        };
        let first = before.as_ref().map_or(0, |r| r.start);
        same_rows.then_some(Some(first.checked_add(range.start)?..first.checked_add(range.end)?))
    };
    let mut views = Vec::with_capacity(ranges.len());
    for (range, &output) in ranges.into_iter().zip(&node.outputs) {
        views.push(Derived::View {
            of: of.clone(),
            base: base.clone(),
            rows: cut(range)?,
            ty: graph.value(output).ty.clone(),
        });
    }
    Some(views)
}

fn evaluated(
    graph: &Graph,
    node: &Node,
    out: &Rebuild<'_>,
    inputs: &[Vid],
    derived: &BTreeMap<String, Derived>,
    evaluator: Evaluator<'_>,
) -> Option<Vec<Derived>> {
    let small = |ty: &ValueType| {
        let bytes = ty.as_fixed().and_then(|s| tensor_bytes(ty.dtype, &s).ok());
        bytes.is_some_and(|b| b <= evaluator.max_bytes)
    };
    let fits = graph.types(&node.outputs).iter().all(small) && inputs.iter().all(|&v| small(out.ty(v)));
    if !fits {
        return None;
    }
    let mut operands = Vec::with_capacity(inputs.len());
    for &input in inputs {
        let name = &out.graph().value(input).name;
        operands.push(match derived.get(name) {
            None => (evaluator.weight)(name)?,
            Some(Derived::Value(tensor)) => tensor.clone(),
            Some(view @ Derived::View { of, .. }) => view.resolve(&(evaluator.weight)(of)?).ok()?,
        });
    }
    let results = (evaluator.run)(&node.op, &operands.iter().collect::<Vec<_>>())?;
    let as_declared = results.len() == node.outputs.len()
        && results.iter().zip(&node.outputs).all(|(tensor, &output)| {
            let ty = &graph.value(output).ty;
            tensor.dtype() == ty.dtype && ty.as_fixed().as_ref() == Some(tensor.shape())
        });
    as_declared.then(|| results.into_iter().map(Derived::Value).collect())
}

#[cfg(test)]
mod tests {
    use glia_core::Shape;

    use super::*;

    const QKV: &str = "graph g
        input %x f32[T, 4]
        weight %qkv f32[6, 4]
        weight %gain f32[4]
        weight %flat f32[2, 2]
        parts: %q f32[2, 4], %kv f32[4, 4] = split{axis=0, sizes=[2, 4]}(%qkv)
        %k f32[2, 4] = slice{axis=0, start=0, end=2}(%kv)
        %v f32[2, 4] = slice{axis=0, start=2}(%kv)
        %v3 f32[2, 2, 2] = reshape{dims=[2, 2, 2]}(%v)
        %v1 f32[1, 2, 2] = slice{axis=0, start=1}(%v3)
        %vflat f32[2, 2] = reshape{dims=[2, 2]}(%v1)
        %wide f32[4] = reshape{dims=[4]}(%flat)
        %twice f32[4] = add(%gain, %wide)
        %qx f32[T, 2] = matmul(%x, %q)
        %kx f32[T, 2] = matmul(%x, %k)
        %y f32[T, 4] = mul(%x, %twice)
        output q = %qx
        output k = %kx
        output y = %y
        output v = %vflat";

    fn weight(name: &str) -> Option<Tensor> {
        let tensor = |shape: &[usize]| {
            let n: usize = shape.iter().product();
            Tensor::from_f32(Shape::new(shape), &(0..n).map(|i| i as f32).collect::<Vec<_>>()).ok()
        };
        match name {
            "qkv" => tensor(&[6, 4]),
            "gain" => tensor(&[4]),
            "flat" => tensor(&[2, 2]),
            _ => None,
        }
    }

    #[test]
    fn views_fold_without_an_evaluator() {
        let graph: Graph = QKV.parse().unwrap();
        graph.verify().unwrap();
        let folded = fold_weights(&graph, None).unwrap();
        folded.graph.verify().unwrap();
        insta::assert_snapshot!(folded.graph, @r"
        graph g
        input %x f32[T, 4]
        weight %gain f32[4]
        weight %q f32[2, 4]
        weight %k f32[2, 4]
        weight %v3 f32[2, 2, 2]
        weight %wide f32[4]
        %v1 f32[1, 2, 2] = slice{axis=0, start=1}(%v3)
        %vflat f32[2, 2] = reshape{dims=[2, 2]}(%v1)
        %twice f32[4] = add(%gain, %wide)
        %qx f32[T, 2] = matmul(%x, %q)
        %kx f32[T, 2] = matmul(%x, %k)
        %y f32[T, 4] = mul(%x, %twice)
        output q = %qx
        output k = %kx
        output y = %y
        output v = %vflat
        ");
        let k = folded.derived["k"].resolve(&weight("qkv").unwrap()).unwrap();
        assert_eq!(k.as_f32().unwrap(), [8., 9., 10., 11., 12., 13., 14., 15.]);
        let flat = folded.derived["wide"].resolve(&weight("flat").unwrap()).unwrap();
        assert_eq!(
            (flat.shape().dims(), flat.as_f32().unwrap()),
            (&[4][..], &[0., 1., 2., 3.][..])
        );
    }

    #[test]
    fn small_computations_fold_with_one() {
        let add = |op: &Op, inputs: &[&Tensor]| {
            let [a, b] = inputs else { return None };
            let sum: Vec<f32> = a
                .as_f32()
                .ok()?
                .iter()
                .zip(b.as_f32().ok()?)
                .map(|(a, b)| a + b)
                .collect();
            (op.kind() == "add").then(|| vec![Tensor::from_f32(*a.shape(), &sum).unwrap()])
        };
        let graph: Graph = QKV.parse().unwrap();
        let evaluator = |max_bytes| Evaluator {
            weight: &weight,
            run: &add,
            max_bytes,
        };
        let folded = fold_weights(&graph, Some(evaluator(16))).unwrap();
        folded.graph.verify().unwrap();
        assert_eq!(
            folded.graph.weights().map(|(_, w)| w.name.as_str()).collect::<Vec<_>>(),
            ["q", "k", "v3", "twice"]
        );
        let Derived::Value(twice) = &folded.derived["twice"] else {
            panic!("computed")
        };
        assert_eq!(twice.as_f32().unwrap(), [0., 2., 4., 6.]);
        let folded = fold_weights(&graph, Some(evaluator(15))).unwrap();
        assert!(!folded.derived.contains_key("twice"), "larger than allowed");
    }
}
