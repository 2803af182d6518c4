//! Shape and dtype rules: from the types of a node's inputs to those of its outputs, symbolic or concrete alike.

use super::Op;
use crate::{BackendError, DType, Dim, Shape, Tensor, ValueType};

type Types = Result<Vec<ValueType>, BackendError>;

impl Op {
    /// Types of the outputs for inputs of these types.
    ///
    /// # Errors
    /// [`BackendError::WrongArity`], [`BackendError::ShapeMismatch`] or [`BackendError::InvalidInput`], naming the
    /// op and the shapes.
    pub fn infer(&self, inputs: &[ValueType]) -> Types {
        let (least, most) = self.arity();
        if inputs.len() < least || inputs.len() > most {
            let expected = match most {
                usize::MAX => format!("at least {least}"),
                most if most == least => least.to_string(),
                most => format!("{least} to {most}"),
            };
            return Err(BackendError::WrongArity {
                op: self.kind().to_owned(),
                expected,
                got: inputs.len(),
            });
        }
        Rule {
            op: self,
            kind: self.kind(),
            inputs,
        }
        .run()
    }

    /// Dtype and shape of each output for these tensors: what a backend's `execute` returns.
    ///
    /// ```
    /// use glia_core::{Binary, DType, Op, Tensor};
    /// let (a, b) = (Tensor::zeros(DType::F32, [3, 1, 5])?, Tensor::zeros(DType::F32, [4, 5])?);
    /// let (dtype, shape) = Op::Binary(Binary::Add).output_types(&[&a, &b])?[0];
    /// assert_eq!((dtype, shape.dims()), (DType::F32, &[3, 4, 5][..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Op::infer`].
    pub fn output_types(&self, inputs: &[&Tensor]) -> Result<Vec<(DType, Shape)>, BackendError> {
        let types: Vec<ValueType> = inputs.iter().map(|t| ValueType::fixed(t.dtype(), t.shape())).collect();
        let open = |ty: &ValueType| BackendError::shape(self.kind(), format!("an output {ty} has no fixed shape"));
        self.infer(&types)?
            .iter()
            .map(|ty| Ok((ty.dtype, ty.as_fixed().ok_or_else(|| open(ty))?)))
            .collect()
    }
}

struct Rule<'a> {
    op: &'a Op,
    kind: &'static str,
    inputs: &'a [ValueType],
}

impl Rule<'_> {
    fn shape(&self, reason: impl Into<String>) -> BackendError {
        let types: Vec<String> = self.inputs.iter().map(ToString::to_string).collect();
        BackendError::shape(self.kind, format!("{} (inputs {})", reason.into(), types.join(", ")))
    }

    fn invalid(&self, reason: impl Into<String>) -> BackendError {
        BackendError::invalid(self.kind, reason)
    }

    fn need(&self, ok: bool, reason: &str) -> Result<(), BackendError> {
        if ok { Ok(()) } else { Err(self.shape(reason)) }
    }

    fn axis(&self, axis: usize) -> Result<usize, BackendError> {
        self.need(
            axis < self.inputs[0].rank(),
            &format!("axis {axis} is outside the rank"),
        )?;
        Ok(axis)
    }

    fn last(&self, i: usize) -> Result<Dim, BackendError> {
        self.inputs[i]
            .dims
            .last()
            .copied()
            .ok_or_else(|| self.shape(format!("input {i} must have a dimension")))
    }

    fn float(&self, i: usize) -> Result<(), BackendError> {
        let dtype = self.inputs[i].dtype;
        if dtype.is_float() {
            Ok(())
        } else {
            Err(self.shape(format!("input {i} must be float, not {dtype}")))
        }
    }

    /// A vector as long as the last dimension of input 0.
    fn per_column(&self, i: usize) -> Result<(), BackendError> {
        let last = self.last(0)?;
        self.need(self.inputs[i].dims == [last], &format!("input {i} must be [{last}]"))
    }

    fn run(&self) -> Types {
        let x = &self.inputs[0];
        let same = |dtype: DType| {
            Ok(vec![ValueType {
                dtype,
                dims: x.dims.clone(),
            }])
        };
        match self.op {
            Op::MatMul => self.matmul(),
            Op::Binary(_) => self.binary(),
            Op::Unary(_) | Op::Scale { .. } | Op::Clamp { .. } => {
                self.float(0)?;
                if let Op::Clamp { min, max } = self.op
                    && (min.is_nan() || max.is_nan() || min > max)
                {
                    return Err(self.invalid(format!("bounds {min} to {max} hold no number")));
                }
                same(x.dtype)
            }
            Op::Gated(_) => {
                self.float(0)?;
                self.need(x == &self.inputs[1], "gate and up must have one type")?;
                same(x.dtype)
            }
            Op::RmsNorm { eps, .. } | Op::LayerNorm { eps } => {
                self.float(0)?;
                self.last(0)?;
                if !(eps.is_finite() && *eps >= 0.0) {
                    return Err(self.invalid(format!("epsilon must be finite and not negative, not {eps}")));
                }
                for i in 1..self.inputs.len() {
                    self.float(i)?;
                    self.per_column(i)?;
                }
                same(x.dtype)
            }
            Op::Softmax { axis } => {
                self.float(0)?;
                self.axis(*axis)?;
                same(x.dtype)
            }
            Op::TokenEmbed => {
                let table = &self.inputs[1];
                if !x.dtype.is_int() || x.rank() != 1 {
                    return Err(self.invalid(format!("ids must be integers of rank 1, not {x}")));
                }
                if table.rank() != 2 {
                    return Err(self.invalid(format!("the table must have rank 2, not {table}")));
                }
                Ok(vec![ValueType::new(DType::F32, [x.dims[0], table.dims[1]])])
            }
            Op::Rope(rope) => {
                self.float(0)?;
                self.need(x.rank() == 3, "x must be [T, heads, head_dim]")?;
                self.need(self.inputs[1].dtype.is_int(), "positions must be integers")?;
                self.need(self.inputs[1].dims == [x.dims[0]], "positions must be [T]")?;
                for i in 2..self.inputs.len() {
                    let freqs = &self.inputs[i];
                    self.need(
                        freqs.dtype == DType::F32 && freqs.rank() == 1,
                        "frequencies must be f32[rot/2]",
                    )?;
                    self.need(
                        freqs.dims == self.inputs[2].dims,
                        "both frequency tables must have one size",
                    )?;
                    if let (Some(half), Some(d)) = (freqs.dims[0].as_fixed(), x.dims[2].as_fixed()) {
                        self.need(half.saturating_mul(2) <= d, "more frequencies than half the head")?;
                    }
                }
                if !rope.scale.is_finite() {
                    return Err(self.invalid("the scale must be finite"));
                }
                same(x.dtype)
            }
            Op::Sdpa(_) => self.sdpa(),
            Op::KvCache => {
                let v = &self.inputs[1];
                self.need(
                    x.rank() >= 1 && v.rank() >= 1 && x.dims[0] == v.dims[0],
                    "k and v must have a row per token",
                )?;
                let grown = |ty: &ValueType| {
                    let mut ty = ty.clone();
                    // Concrete shapes hold no symbol: outside a graph the past is empty.
                    if ty.dims[0] == Dim::T {
                        ty.dims[0] = Dim::PT;
                    }
                    ty
                };
                Ok(vec![grown(x), grown(v)])
            }
            Op::Reshape { dims } => self.reshape(dims),
            Op::Transpose { a, b } => {
                let mut dims = x.dims.clone();
                dims.swap(self.axis(*a)?, self.axis(*b)?);
                self.plain_if(a == b || (a + 1 != x.rank() && b + 1 != x.rank()))?;
                Ok(vec![ValueType { dtype: x.dtype, dims }])
            }
            Op::Permute { perm } => {
                let mut seen = vec![false; x.rank()];
                let ok = perm.len() == x.rank()
                    && perm
                        .iter()
                        .all(|&p| p < seen.len() && !std::mem::replace(&mut seen[p], true));
                self.need(ok, &format!("{perm:?} is no permutation of the dimensions"))?;
                self.plain_if(perm.last().is_none_or(|&p| p + 1 == x.rank()))?;
                Ok(vec![ValueType {
                    dtype: x.dtype,
                    dims: perm.iter().map(|&p| x.dims[p]).collect(),
                }])
            }
            Op::Slice { axis, start, end } => {
                let axis = self.axis(*axis)?;
                let size = x.dims[axis];
                let bad = || self.shape(format!("{start}..{end:?} leaves dimension {axis}"));
                let dim = match end {
                    Some(end) => {
                        let inside = size.as_fixed().is_none_or(|n| *end <= n);
                        Dim::fixed(if inside {
                            end.checked_sub(*start).ok_or_else(bad)?
                        } else {
                            return Err(bad());
                        })
                    }
                    None => size.checked_sub(*start).ok_or_else(bad)?,
                };
                self.plain_if(axis + 1 != x.rank())?;
                self.with_axis(axis, dim)
            }
            Op::Concat { axis } => {
                let axis = self.axis(*axis)?;
                let mut sum = x.dims[axis];
                for y in &self.inputs[1..] {
                    let fits = y.dtype == x.dtype
                        && y.rank() == x.rank()
                        && (0..x.rank()).all(|i| i == axis || x.dims[i] == y.dims[i]);
                    self.need(fits, "inputs must agree in all but the joined dimension")?;
                    sum = sum
                        .checked_add(&y.dims[axis])
                        .ok_or_else(|| self.shape("the joined size overflows"))?;
                }
                self.with_axis(axis, sum)
            }
            Op::Split { axis, sizes } => {
                let axis = self.axis(*axis)?;
                let total = sizes.iter().try_fold(0usize, |n, &s| n.checked_add(s));
                self.need(
                    !sizes.is_empty() && total == x.dims[axis].as_fixed(),
                    "sizes must add up to the dimension",
                )?;
                self.plain_if(axis + 1 != x.rank())?;
                let mut outputs = Vec::with_capacity(sizes.len());
                for &size in sizes {
                    outputs.extend(self.with_axis(axis, Dim::fixed(size))?);
                }
                Ok(outputs)
            }
            Op::Gather { axis } => {
                let axis = self.axis(*axis)?;
                let indices = &self.inputs[1];
                if !indices.dtype.is_int() || indices.rank() != 1 {
                    return Err(self.invalid(format!("indices must be integers of rank 1, not {indices}")));
                }
                self.plain_if(axis + 1 != x.rank())?;
                self.with_axis(axis, indices.dims[0])
            }
            Op::Repeat { axis, n } => {
                let axis = self.axis(*axis)?;
                self.plain_if(axis + 1 != x.rank())?;
                let dim = x.dims[axis]
                    .checked_mul(*n)
                    .ok_or_else(|| self.shape("the repeated size overflows"))?;
                self.with_axis(axis, dim)
            }
            Op::Cast { to } => {
                self.need(
                    !to.is_quantized(),
                    "casts to quantised dtypes are the work of a quantiser",
                )?;
                same(*to)
            }
            Op::Argmax { axis } => {
                self.float(0)?;
                let mut dims = x.dims.clone();
                let axis = self.axis(*axis)?;
                self.need(
                    dims[axis].as_fixed() != Some(0),
                    "an empty dimension has no largest element",
                )?;
                dims.remove(axis);
                Ok(vec![ValueType {
                    dtype: DType::I32,
                    dims,
                }])
            }
            Op::TopK { k } => {
                self.float(0)?;
                let last = self.last(0)?;
                self.need(
                    last.as_fixed().is_none_or(|n| *k <= n),
                    &format!("k {k} exceeds the last dimension"),
                )?;
                let values = self.with_axis(x.rank() - 1, Dim::fixed(*k))?.remove(0);
                let indices = ValueType {
                    dtype: DType::I32,
                    dims: values.dims.clone(),
                };
                Ok(vec![values, indices])
            }
            Op::Sum { axis, keep } | Op::Mean { axis, keep } => {
                self.float(0)?;
                let axis = self.axis(*axis)?;
                let mut dims = x.dims.clone();
                if *keep {
                    dims[axis] = Dim::fixed(1);
                } else {
                    dims.remove(axis);
                }
                Ok(vec![ValueType { dtype: x.dtype, dims }])
            }
        }
    }

    /// Quantised tensors keep their rows whole: `ok` says that this use does.
    fn plain_if(&self, rows_stay_whole: bool) -> Result<(), BackendError> {
        self.need(
            rows_stay_whole || !self.inputs[0].dtype.is_quantized(),
            "rows of a quantised tensor cannot be cut",
        )
    }

    fn with_axis(&self, axis: usize, dim: Dim) -> Types {
        let mut ty = self.inputs[0].clone();
        ty.dims[axis] = dim;
        Ok(vec![ty])
    }

    fn matmul(&self) -> Types {
        let (x, w) = (&self.inputs[0], &self.inputs[1]);
        self.float(0)?;
        self.need(
            w.dtype.is_float() || w.dtype.is_quantized(),
            "weights must be float or quantised",
        )?;
        self.need(x.rank() >= 1 && w.rank() >= 2, "x needs rank 1, weights rank 2 or more")?;
        self.need(self.last(0)? == self.last(1)?, "inner dimensions differ")?;
        let n = w.dims[w.rank() - 2];
        if w.rank() > 2 {
            self.need(x.rank() == w.rank(), "batched weights need x of the same rank")?;
            let batch = w.rank() - 2;
            self.need(x.dims[..batch] == w.dims[..batch], "batch dimensions differ")?;
        }
        if let Some(bias) = self.inputs.get(2) {
            self.float(2)?;
            self.need(bias.dims == [n], &format!("the bias must be [{n}]"))?;
        }
        self.with_axis(x.rank() - 1, n)
    }

    fn binary(&self) -> Types {
        let (a, b) = (&self.inputs[0], &self.inputs[1]);
        self.float(0)?;
        self.need(a.dtype == b.dtype, "operands must have one dtype")?;
        let rank = a.rank().max(b.rank());
        let one = Dim::fixed(1);
        let at = |ty: &ValueType, i: usize| (i + ty.rank()).checked_sub(rank).map_or(one, |i| ty.dims[i]);
        let mut dims = Vec::with_capacity(rank);
        for i in 0..rank {
            let (da, db) = (at(a, i), at(b, i));
            self.need(da == db || da == one || db == one, "shapes do not broadcast")?;
            dims.push(if da == one { db } else { da });
        }
        Ok(vec![ValueType { dtype: a.dtype, dims }])
    }

    fn sdpa(&self) -> Types {
        let Op::Sdpa(sdpa) = self.op else {
            unreachable!("called for sdpa")
        };
        let (q, k, v) = (&self.inputs[0], &self.inputs[1], &self.inputs[2]);
        for i in 0..self.inputs.len() {
            self.float(i)?;
        }
        self.need(
            q.rank() == 3 && k.rank() == 3 && v.rank() == 3,
            "q, k, v must be [tokens, heads, dim]",
        )?;
        self.need(k.dims[..2] == v.dims[..2], "k and v must agree in tokens and heads")?;
        self.need(q.dims[2] == k.dims[2], "q and k must agree in head size")?;
        let (Some(h), Some(hkv)) = (q.dims[1].as_fixed(), k.dims[1].as_fixed()) else {
            return Err(self.shape("head counts must be fixed"));
        };
        self.need(
            hkv > 0 && h % hkv == 0,
            "query heads must be a multiple of key/value heads",
        )?;
        if let (Some(tq), Some(tk)) = (q.dims[0].as_fixed(), k.dims[0].as_fixed())
            && sdpa.causal
        {
            self.need(tq <= tk, "causal attention needs at least as many keys as queries")?;
        }
        if sdpa.mask {
            let mask = &self.inputs[3];
            let plain = mask.dims == [q.dims[0], k.dims[0]];
            let per_head = mask.dims == [q.dims[1], q.dims[0], k.dims[0]];
            self.need(plain || per_head, "the mask must be [Tq, Tk] or [H, Tq, Tk]")?;
        }
        if sdpa.sinks {
            self.need(
                self.inputs[self.inputs.len() - 1].dims == [q.dims[1]],
                "sinks must be one per head",
            )?;
        }
        let positive = |x: f32| x.is_finite() && x > 0.0;
        if !sdpa.scale.is_finite() || sdpa.softcap.is_some_and(|c| !positive(c)) || sdpa.window == Some(0) {
            return Err(self.invalid("scale must be finite, soft-cap positive, window at least 1"));
        }
        Ok(vec![ValueType {
            dtype: q.dtype,
            dims: vec![q.dims[0], q.dims[1], v.dims[2]],
        }])
    }

    fn reshape(&self, wanted: &[i64]) -> Types {
        let x = &self.inputs[0];
        let fail = |reason: &str| self.invalid(format!("{reason}: {x} to {wanted:?}"));
        if wanted.iter().filter(|&&d| d == -1).count() > 1 {
            return Err(fail("at most one dimension can be inferred"));
        }
        if wanted.iter().any(|&d| d < -1) {
            return Err(fail("a dimension is negative"));
        }
        // The input as (one step-dependent dimension) x (a constant).
        let mut constant = 1usize;
        let mut symbolic: Option<Dim> = None;
        for dim in &x.dims {
            match (dim.as_fixed(), symbolic) {
                (Some(n), _) => constant = constant.checked_mul(n).ok_or_else(|| fail("the size overflows"))?,
                (None, None) => symbolic = Some(*dim),
                (None, Some(_)) => return Err(fail("more than one dimension depends on the step")),
            }
        }
        let mut known = 1usize;
        for &d in wanted.iter().filter(|&&d| d >= 0) {
            known = usize::try_from(d)
                .ok()
                .and_then(|d| known.checked_mul(d))
                .ok_or_else(|| fail("the size overflows"))?;
        }
        let total = match symbolic {
            None => Dim::fixed(constant),
            Some(dim) => dim.checked_mul(constant).ok_or_else(|| fail("the size overflows"))?,
        };
        let mut dims = Vec::with_capacity(wanted.len());
        if wanted.contains(&-1) {
            let inferred = total
                .checked_div(known)
                .ok_or_else(|| fail("the element count leaves a remainder"))?;
            dims.extend(
                wanted
                    .iter()
                    .map(|&d| if d == -1 { inferred } else { Dim::fixed(d as usize) }),
            );
        } else {
            if total != Dim::fixed(known) {
                return Err(fail("the element counts differ"));
            }
            dims.extend(wanted.iter().map(|&d| Dim::fixed(d as usize)));
        }
        let out = ValueType { dtype: x.dtype, dims };
        let rows_stay = out.dims.last() == x.dims.last();
        self.plain_if(rows_stay)?;
        Ok(vec![out])
    }
}
