//! Composite ops as small lists of simpler ones: the definition of each in the vocabulary, and what a planner uses
//! when no backend has the op.

use super::{Binary, Gate, Op, Sdpa, Unary};
use crate::{DType, Dim, Shape, Tensor, ValueType};

/// An operand within a [`Decomposition`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// Input of the composite op.
    Input(usize),
    /// Output `output` of part `part`.
    Part {
        /// Index into [`Decomposition::parts`].
        part: usize,
        /// Which of its outputs.
        output: usize,
    },
    /// Index into [`Decomposition::consts`].
    Const(usize),
}

/// One op of a [`Decomposition`].
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// What it computes.
    pub op: Op,
    /// Its operands; parts among them are earlier ones.
    pub inputs: Vec<Operand>,
}

/// An op as a list of others, in the order in which they run.
#[derive(Clone, Debug, Default)]
pub struct Decomposition {
    /// The ops.
    pub parts: Vec<Part>,
    /// Tensors that the shapes imply, such as a causal mask. Only for concrete shapes.
    pub consts: Vec<Tensor>,
    /// What stands for the outputs of the composite op.
    pub outputs: Vec<Operand>,
}

impl Op {
    /// The op in terms of simpler ones for inputs of these types, or `None` when it is elementary, or the types do
    /// not fit, or (causal and windowed attention) when the shapes depend on the step.
    ///
    /// Equal in exact arithmetic; the order of roundings differs. The norms are one primitive: each is given in terms
    /// of the other, `LayerNorm(x) = RmsNorm(x - mean)` and `RmsNorm(x) = LayerNorm([x, -x])` (whose mean is zero and
    /// whose variance is the mean square of `x`), so a backend needs one of them.
    pub fn decompose(&self, inputs: &[ValueType]) -> Option<Decomposition> {
        let expected = self.infer(inputs).ok()?;
        let mut list = List::new(inputs);
        let outputs = list.expand(self)?;
        let types: Vec<&ValueType> = outputs.iter().map(|o| list.ty(*o)).collect::<Option<_>>()?;
        // A rule that cannot keep the types, for instance of half-precision operands, is no rule for them.
        (types.into_iter().eq(&expected)).then_some(Decomposition {
            parts: list.parts,
            consts: list.consts,
            outputs,
        })
    }
}

/// Parts so far, with the types of their outputs.
struct List<'a> {
    inputs: &'a [ValueType],
    parts: Vec<Part>,
    types: Vec<Vec<ValueType>>,
    consts: Vec<Tensor>,
    const_types: Vec<ValueType>,
}

impl<'a> List<'a> {
    fn new(inputs: &'a [ValueType]) -> List<'a> {
        List {
            inputs,
            parts: Vec::new(),
            types: Vec::new(),
            consts: Vec::new(),
            const_types: Vec::new(),
        }
    }

    fn ty(&self, of: Operand) -> Option<&ValueType> {
        match of {
            Operand::Input(i) => self.inputs.get(i),
            Operand::Part { part, output } => self.types.get(part)?.get(output),
            Operand::Const(i) => self.const_types.get(i),
        }
    }

    /// Adds a part; `None` when the op does not take these operands.
    fn push(&mut self, op: Op, inputs: &[Operand]) -> Option<Operand> {
        let types: Vec<ValueType> = inputs.iter().map(|&o| self.ty(o).cloned()).collect::<Option<_>>()?;
        self.types.push(op.infer(&types).ok()?);
        let inputs = inputs.to_vec();
        self.parts.push(Part { op, inputs });
        let part = self.parts.len() - 1;
        Some(Operand::Part { part, output: 0 })
    }

    fn add_const(&mut self, shape: &[usize], data: &[f32]) -> Option<Operand> {
        let shape = Shape::try_new(shape)?;
        self.consts.push(Tensor::from_f32(shape, data).ok()?);
        self.const_types.push(ValueType::fixed(DType::F32, shape.dims()));
        Some(Operand::Const(self.consts.len() - 1))
    }

    fn binary(&mut self, f: Binary, a: Operand, b: Operand) -> Option<Operand> {
        self.push(Op::Binary(f), &[a, b])
    }

    fn scale(&mut self, x: Operand, factor: f32) -> Option<Operand> {
        self.push(Op::Scale { factor }, &[x])
    }

    /// `x` in the dtype of input 0.
    fn cast(&mut self, x: Operand) -> Option<Operand> {
        let to = self.inputs.first()?.dtype;
        if self.ty(x)?.dtype == to {
            return Some(x);
        }
        self.push(Op::Cast { to }, &[x])
    }

    fn expand(&mut self, op: &Op) -> Option<Vec<Operand>> {
        let x = Operand::Input(0);
        let rank = self.inputs.first()?.rank();
        let one = match op {
            Op::Unary(Unary::Silu) => {
                let gate = self.push(Op::Unary(Unary::Sigmoid), &[x])?;
                self.binary(Binary::Mul, x, gate)?
            }
            Op::Unary(Unary::GeluTanh) => self.gelu_tanh(x)?,
            Op::Unary(Unary::Relu) => {
                let max = f32::INFINITY;
                self.push(Op::Clamp { min: 0.0, max }, &[x])?
            }
            Op::Gated(gate) => {
                let act = Op::Unary(match gate {
                    Gate::Silu => Unary::Silu,
                    Gate::Gelu => Unary::Gelu,
                    Gate::GeluTanh => Unary::GeluTanh,
                });
                let act = self.push(act, &[x])?;
                self.binary(Binary::Mul, act, Operand::Input(1))?
            }
            Op::Binary(Binary::Sub) => {
                let negated = self.scale(Operand::Input(1), -1.0)?;
                self.binary(Binary::Add, x, negated)?
            }
            Op::RmsNorm { eps, plus_one } => self.rms_norm(*eps, *plus_one)?,
            Op::LayerNorm { eps } => self.layer_norm(*eps)?,
            Op::Softmax { axis } => self.softmax(x, *axis)?,
            Op::Mean { axis, keep } => {
                let n = self.ty(x)?.dims.get(*axis)?.as_fixed().filter(|&n| n > 0)?;
                let sum = self.push(
                    Op::Sum {
                        axis: *axis,
                        keep: *keep,
                    },
                    &[x],
                )?;
                self.scale(sum, (1.0 / n as f64) as f32)?
            }
            Op::TokenEmbed => {
                let rows = self.push(Op::Gather { axis: 0 }, &[Operand::Input(1), x])?;
                match self.ty(rows)?.dtype {
                    DType::F32 => rows,
                    _ => self.push(Op::Cast { to: DType::F32 }, &[rows])?,
                }
            }
            Op::Transpose { a, b } => {
                let mut perm: Vec<usize> = (0..rank).collect();
                perm.swap(*a, *b);
                self.push(Op::Permute { perm }, &[x])?
            }
            Op::Split { axis, sizes } => return self.split(*axis, sizes),
            Op::Sdpa(sdpa) => self.sdpa(sdpa)?,
            _ => return None,
        };
        Some(vec![one])
    }

    /// `x/2 (1 + tanh(z)) = x sigmoid(2z)` with `z = √(2/π) (x + 0.044715 x³)`.
    fn gelu_tanh(&mut self, x: Operand) -> Option<Operand> {
        let square = self.binary(Binary::Mul, x, x)?;
        let cube = self.binary(Binary::Mul, square, x)?;
        let cubic = self.scale(cube, 0.044_715)?;
        let sum = self.binary(Binary::Add, x, cubic)?;
        let twice = (2.0 * (2.0 / std::f64::consts::PI).sqrt()) as f32;
        let z2 = self.scale(sum, twice)?;
        let gate = self.push(Op::Unary(Unary::Sigmoid), &[z2])?;
        self.binary(Binary::Mul, x, gate)
    }

    /// `LayerNorm([x, -x])[..d] * g`.
    fn rms_norm(&mut self, eps: f32, plus_one: bool) -> Option<Operand> {
        let x = Operand::Input(0);
        let ty = self.ty(x)?;
        let axis = ty.rank().checked_sub(1)?;
        let d = ty.dims[axis].as_fixed()?;
        let negated = self.scale(x, -1.0)?;
        let both = self.push(Op::Concat { axis }, &[x, negated])?;
        let norms = self.push(Op::LayerNorm { eps }, &[both])?;
        let (start, end) = (0, Some(d));
        let norm = self.push(Op::Slice { axis, start, end }, &[norms])?;
        if self.inputs.len() < 2 {
            return Some(norm);
        }
        let gain = self.cast(Operand::Input(1))?;
        let scaled = self.binary(Binary::Mul, norm, gain)?;
        if plus_one {
            // n (1 + g) = n + n g.
            return self.binary(Binary::Add, norm, scaled);
        }
        Some(scaled)
    }

    /// `RmsNorm(x - mean) * g + b`.
    fn layer_norm(&mut self, eps: f32) -> Option<Operand> {
        let x = Operand::Input(0);
        let axis = self.ty(x)?.rank().checked_sub(1)?;
        let mean = self.push(Op::Mean { axis, keep: true }, &[x])?;
        let centred = self.binary(Binary::Sub, x, mean)?;
        let plus_one = false;
        let norm = Op::RmsNorm { eps, plus_one };
        let gain = (self.inputs.len() > 1).then_some(Operand::Input(1));
        let operands: Vec<Operand> = [centred].into_iter().chain(gain).collect();
        let norm = self.push(norm, &operands)?;
        if self.inputs.len() < 3 {
            return Some(norm);
        }
        let bias = self.cast(Operand::Input(2))?;
        self.binary(Binary::Add, norm, bias)
    }

    /// `e = exp(x - max)`, `e / sum(e)`. The largest element comes from `topk`, along the last dimension.
    fn softmax(&mut self, x: Operand, axis: usize) -> Option<Operand> {
        let last = self.ty(x)?.rank().checked_sub(1)?;
        let turn = |list: &mut Self, x| match axis == last {
            true => Some(x),
            false => list.push(Op::Transpose { a: axis, b: last }, &[x]),
        };
        let x = turn(self, x)?;
        let max = self.push(Op::TopK { k: 1 }, &[x])?;
        let shifted = self.binary(Binary::Sub, x, max)?;
        let exp = self.push(Op::Unary(Unary::Exp), &[shifted])?;
        let (axis, keep) = (last, true);
        let sum = self.push(Op::Sum { axis, keep }, &[exp])?;
        let ratio = self.binary(Binary::Div, exp, sum)?;
        turn(self, ratio)
    }

    fn split(&mut self, axis: usize, sizes: &[usize]) -> Option<Vec<Operand>> {
        let mut outputs = Vec::with_capacity(sizes.len());
        let mut start = 0usize;
        for &size in sizes {
            let stop = start.checked_add(size)?;
            let end = Some(stop);
            outputs.push(self.push(Op::Slice { axis, start, end }, &[Operand::Input(0)])?);
            start = stop;
        }
        Some(outputs)
    }

    /// Heads outermost, scores in full: `softmax(cap(scale q kᵀ) + masks) v`.
    fn sdpa(&mut self, sdpa: &Sdpa) -> Option<Operand> {
        let [q, k, v] = [0, 1, 2].map(Operand::Input);
        let n_heads = self.ty(q)?.dims[1].as_fixed()?;
        let n_groups = self.ty(k)?.dims[1].as_fixed().filter(|&n| n > 0)?;
        let n = n_heads / n_groups;
        let heads_first = |perm: [usize; 3]| Op::Permute { perm: perm.to_vec() };
        let mut kv = [k, v];
        for x in &mut kv {
            *x = self.cast(*x)?;
            if n > 1 {
                *x = self.push(Op::Repeat { axis: 1, n }, &[*x])?;
            }
        }
        let q_heads = self.push(heads_first([1, 0, 2]), &[q])?;
        let k_heads = self.push(heads_first([1, 0, 2]), &[kv[0]])?;
        let v_heads = self.push(heads_first([1, 2, 0]), &[kv[1]])?;
        let product = self.push(Op::MatMul, &[q_heads, k_heads])?;
        let mut scores = self.scale(product, sdpa.scale)?;
        if let Some(cap) = sdpa.softcap {
            let shrunk = self.scale(scores, 1.0 / cap)?;
            let bent = self.push(Op::Unary(Unary::Tanh), &[shrunk])?;
            scores = self.scale(bent, cap)?;
        }
        // Finite here, unlike after the masks: zero times it is zero.
        let unmasked = scores;
        if sdpa.causal || sdpa.window.is_some() {
            let mask = self.position_mask(sdpa)?;
            let mask = self.cast(mask)?;
            scores = self.binary(Binary::Add, scores, mask)?;
        }
        if sdpa.mask {
            let mask = self.cast(Operand::Input(3))?;
            scores = self.binary(Binary::Add, scores, mask)?;
        }
        if sdpa.sinks {
            let sinks = self.sink_column(unmasked)?;
            scores = self.push(Op::Concat { axis: 2 }, &[sinks, scores])?;
        }
        let mut weights = self.push(Op::Softmax { axis: 2 }, &[scores])?;
        if sdpa.sinks {
            let (axis, start, end) = (2, 1, None);
            weights = self.push(Op::Slice { axis, start, end }, &[weights])?;
        }
        let heads = self.push(Op::MatMul, &[weights, v_heads])?;
        self.push(heads_first([1, 0, 2]), &[heads])
    }

    /// `[Tq, Tk]`: zero where the position rules let the query see the key, else -inf. Concrete shapes only.
    fn position_mask(&mut self, sdpa: &Sdpa) -> Option<Operand> {
        let n_queries = self.inputs[0].dims[0].as_fixed()?;
        let n_keys = self.inputs[1].dims[0].as_fixed()?;
        let n = n_queries.checked_mul(n_keys).filter(|&n| n <= MOST_MASK_ELEMS)?;
        let past = n_keys.checked_sub(n_queries)?;
        let mut mask = Vec::with_capacity(n);
        for i in 0..n_queries {
            let at = i + past;
            for j in 0..n_keys {
                let hidden = (sdpa.causal && j > at) || sdpa.window.is_some_and(|w| at.saturating_sub(j) >= w);
                mask.push(if hidden { f32::NEG_INFINITY } else { 0.0 });
            }
        }
        self.add_const(&[n_queries, n_keys], &mask)
    }

    /// `[H, Tq, 1]`: the sink of each head, for every query.
    fn sink_column(&mut self, scores: Operand) -> Option<Operand> {
        let sinks = self.inputs.len().checked_sub(1).map(Operand::Input)?;
        let n_heads = i64::try_from(self.ty(sinks)?.dims[0].as_fixed()?).ok()?;
        if self.ty(scores)?.dims[2] == Dim::fixed(0) {
            return None;
        }
        let sinks = self.cast(sinks)?;
        let dims = vec![n_heads, 1, 1];
        let sinks = self.push(Op::Reshape { dims }, &[sinks])?;
        let (axis, start, end) = (2, 0, Some(1));
        let column = self.push(Op::Slice { axis, start, end }, &[scores])?;
        let zeros = self.scale(column, 0.0)?;
        self.binary(Binary::Add, zeros, sinks)
    }
}

/// A larger mask is refused: shapes come from outside, and the decomposition serves small graphs.
const MOST_MASK_ELEMS: usize = 1 << 22;
