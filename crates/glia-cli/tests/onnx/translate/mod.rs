//! From the graph of a case to a graph of glia: walks the nodes, folds what is known when the graph is built, and asks
//! the families for the rest. A translation is exact: it may not lean on a value that only a run knows.

mod node;

pub mod families;
mod fold;
mod ops;

use std::collections::HashMap;

use glia_core::{DType, Op, Tensor, ValueType};
use glia_ir::{Graph, GraphBuilder, GraphError, Vid};

use crate::array::{Array, Elem};
use crate::case::{Case, Value};
pub use node::NodeCx;

/// Why a case has no translation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The vocabulary has no way to say this op.
    Op(String),
    /// Values of this type have no dtype, or the op no meaning for them.
    Type(String),
    /// Nothing is left to compute once the graph is built.
    Known,
    /// The op has a translation, this form of it has none.
    Form(String),
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reason::Op(op) => write!(f, "{op} is not in the vocabulary"),
            Reason::Type(ty) => write!(f, "type: {ty}"),
            Reason::Known => f.write_str("known when the graph is built"),
            Reason::Form(what) => f.write_str(what),
        }
    }
}

/// Why a translation stopped.
#[derive(Clone, Debug)]
pub enum Stop {
    /// It cannot be said in the vocabulary.
    NotCovered(Reason),
    /// A translation or the reader is wrong.
    Broken(String),
}

impl From<GraphError> for Stop {
    fn from(error: GraphError) -> Stop {
        Stop::Broken(error.to_string())
    }
}

/// Result of a step of the translation.
pub type R<T> = Result<T, Stop>;

/// Stops: this form has no translation.
pub fn form<T>(what: impl Into<String>) -> R<T> {
    Err(Stop::NotCovered(Reason::Form(what.into())))
}

/// Stops: the case is not what it says it is.
pub fn broken<T>(what: impl Into<String>) -> R<T> {
    Err(Stop::Broken(what.into()))
}

/// A value of the case's graph.
#[derive(Clone, Debug)]
pub struct Val {
    pub elem: Elem,
    pub shape: Vec<usize>,
    /// The value on the host: constants, and integers that follow from integer inputs.
    pub host: Option<Array>,
    /// Depends on an input of the case.
    pub derived: bool,
    source: Source,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    Input(usize),
    Graph(Vid),
    Host,
}

impl Val {
    fn constant(array: Array) -> Val {
        Val {
            elem: array.elem,
            shape: array.shape.clone(),
            host: Some(array),
            derived: false,
            source: Source::Host,
        }
    }
}

/// Which inputs of a case the graph takes as weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weights {
    /// None: every input is given with the run.
    None,
    /// All but the first: backends see constants and may pack them.
    AllButFirst,
}

/// What a case became.
pub struct Translated {
    pub graph: Graph,
    pub weights: HashMap<String, Tensor>,
    pub inputs: Vec<(String, Tensor)>,
}

/// A graph under construction. The methods in `ops` add single nodes.
pub struct Translator<'a> {
    pub b: GraphBuilder,
    case: &'a Case,
    mode: Weights,
    weights: HashMap<String, Tensor>,
    inputs: Vec<(String, Tensor)>,
    given: Vec<Option<Vid>>,
    n_names: usize,
}

/// Translates a case.
pub fn translate(case: &Case, mode: Weights) -> R<Translated> {
    let mut t = Translator {
        b: GraphBuilder::new(&case.name),
        case,
        mode,
        weights: HashMap::new(),
        inputs: Vec::new(),
        given: vec![None; case.inputs.len()],
        n_names: 0,
    };
    let mut values = t.sources()?;
    for node in &case.graph.node {
        let cx = NodeCx::new(node, &values, case.opset)?;
        let outputs = t.node(&cx)?;
        for (name, val) in node.output.iter().zip(outputs) {
            if !name.is_empty() {
                values.insert(name.clone(), val);
            }
        }
    }
    t.finish(&values)
}

impl Translator<'_> {
    /// Initialisers and inputs by name.
    fn sources(&mut self) -> R<HashMap<String, Val>> {
        let mut values = HashMap::new();
        for tensor in &self.case.graph.initializer {
            let read = crate::array::read(tensor).map_err(Stop::Broken)?;
            let read = read.map_err(|elem| Stop::NotCovered(Reason::Type(elem.name())))?;
            values.insert(tensor.name.clone(), Val::constant(read.array));
        }
        for (i, input) in self.case.inputs.iter().enumerate() {
            let read = match &input.value {
                Value::Tensor(read) => read,
                Value::Foreign(elem) => return Err(Stop::NotCovered(Reason::Type(elem.name()))),
                Value::NoTensor => return Err(Stop::NotCovered(Reason::Type("no tensor".into()))),
            };
            let host = !read.array.elem.is_float() || read.array.data.len() == 1;
            let val = Val {
                elem: read.array.elem,
                shape: read.array.shape.clone(),
                host: host.then(|| read.array.clone()),
                derived: true,
                source: Source::Input(i),
            };
            values.insert(input.name.clone(), val);
        }
        for output in &self.case.outputs {
            match &output.value {
                Value::Tensor(_) => {}
                Value::Foreign(elem) => return Err(Stop::NotCovered(Reason::Type(elem.name()))),
                Value::NoTensor => return Err(Stop::NotCovered(Reason::Type("no tensor".into()))),
            }
        }
        Ok(values)
    }

    /// The outputs of a node: folded, translated, or both.
    fn node(&mut self, cx: &NodeCx<'_>) -> R<Vec<Val>> {
        let folded = fold::fold(cx).map_err(Stop::Broken)?;
        if let Some(array) = &folded
            && !cx.is_derived()
        {
            return Ok(vec![Val::constant(array.clone())]);
        }
        let handler = families::find(cx).ok_or_else(|| {
            Stop::NotCovered(match folded {
                Some(_) => Reason::Known,
                None => Reason::Op(cx.op().to_owned()),
            })
        });
        // Floats that depend on an input are the work of backends; integers may be needed as attributes.
        let host = folded.filter(|a| !a.elem.is_float());
        match (handler.and_then(|h| h(self, cx)), host) {
            (Ok(outputs), host) => outputs
                .into_iter()
                .enumerate()
                .map(|(i, (vid, elem))| {
                    Ok(Val {
                        elem,
                        shape: self.shape(vid)?,
                        host: if i == 0 { host.clone() } else { None },
                        derived: cx.is_derived(),
                        source: Source::Graph(vid),
                    })
                })
                .collect(),
            (Err(Stop::NotCovered(_)), Some(array)) => Ok(vec![Val {
                derived: true,
                ..Val::constant(array)
            }]),
            (Err(stop), _) => Err(stop),
        }
    }

    fn finish(mut self, values: &HashMap<String, Val>) -> R<Translated> {
        let mut computes = false;
        for output in &self.case.outputs {
            let Some(val) = values.get(&output.name) else {
                return broken(format!("no node gives the output `{}`", output.name));
            };
            if val.derived && matches!(val.source, Source::Host) {
                return Err(Stop::NotCovered(Reason::Known));
            }
            computes |= val.derived;
            let mut vid = self.vid(val)?;
            if !val.derived {
                vid = self.view(vid)?;
            }
            let Some(dtype) = val.elem.dtype() else {
                return Err(Stop::NotCovered(Reason::Type(val.elem.name())));
            };
            let vid = self.cast(vid, dtype)?;
            self.b.output(&output.name, vid)?;
        }
        if !computes {
            return Err(Stop::NotCovered(Reason::Known));
        }
        Ok(Translated {
            graph: self.b.finish()?,
            weights: self.weights,
            inputs: self.inputs,
        })
    }

    /// The value in the graph, in the dtype that it has there.
    pub fn vid(&mut self, val: &Val) -> R<Vid> {
        match (val.source, &val.host) {
            (Source::Graph(vid), _) => Ok(vid),
            (Source::Input(i), _) => self.input(i),
            (Source::Host, Some(_)) if val.derived => form("needs an integer that only the host computes"),
            (Source::Host, Some(array)) => self.constant(array),
            (Source::Host, None) => broken("a value from nowhere"),
        }
    }

    fn input(&mut self, i: usize) -> R<Vid> {
        if let Some(vid) = self.given[i] {
            return Ok(vid);
        }
        let given = &self.case.inputs[i];
        let Value::Tensor(read) = &given.value else {
            return broken("an input without a value");
        };
        let name = format!("in.{}", given.name);
        let ty = ValueType::fixed(read.tensor.dtype(), read.tensor.shape());
        let vid = if self.mode == Weights::AllButFirst && i > 0 {
            self.weights.insert(name.clone(), read.tensor.clone());
            self.b.weight(&name, ty)?
        } else {
            self.inputs.push((name.clone(), read.tensor.clone()));
            self.b.input(&name, ty)?
        };
        self.given[i] = Some(vid);
        Ok(vid)
    }

    /// A constant; floats are kept in F32.
    pub fn constant(&mut self, array: &Array) -> R<Vid> {
        let mut array = array.clone();
        if array.elem.is_float() {
            array.elem = Elem::F32;
        }
        let tensor = array.tensor().map_err(Stop::Broken)?;
        let name = self.name("const");
        let ty = ValueType::fixed(tensor.dtype(), tensor.shape());
        self.weights.insert(name.clone(), tensor);
        Ok(self.b.weight(&name, ty)?)
    }

    /// A name that no other node has.
    fn name(&mut self, kind: &str) -> String {
        self.n_names += 1;
        format!("{kind}.{}", self.n_names)
    }

    /// A node with one output.
    pub fn op(&mut self, op: Op, inputs: &[Vid]) -> R<Vid> {
        let name = self.name(op.kind());
        Ok(self.b.node1(&name, op, inputs)?)
    }

    /// A node with several outputs.
    pub fn op_n(&mut self, op: Op, inputs: &[Vid]) -> R<Vec<Vid>> {
        let name = self.name(op.kind());
        Ok(self.b.node(&name, op, inputs)?)
    }

    /// Dimensions of a value of the graph.
    pub fn shape(&self, vid: Vid) -> R<Vec<usize>> {
        match self.b.ty(vid)?.as_fixed() {
            Some(shape) => Ok(shape.dims().to_vec()),
            None => broken("a size is open"),
        }
    }

    /// Dtype of a value of the graph.
    pub fn dtype(&self, vid: Vid) -> R<DType> {
        Ok(self.b.ty(vid)?.dtype)
    }

    /// Largest integer of the case, for translations that compute with integers in F32.
    pub fn exact_in_f32(&self) -> bool {
        const LIMIT: f64 = 16_777_216.0; // 2^24
        let all = self.case.inputs.iter().chain(&self.case.outputs);
        let arrays = all.filter_map(|g| match &g.value {
            Value::Tensor(read) if !read.array.elem.is_float() => Some(&read.array),
            _ => None,
        });
        arrays.flat_map(|a| &a.data).all(|v| v.abs() <= LIMIT)
    }
}
