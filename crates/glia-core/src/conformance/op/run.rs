//! Runs a case of one op through `execute`, `execute_node` and a compiled segment.

use std::sync::Arc;

use super::OpCase;
use crate::conformance::case::{Cx, Failure, Outcome, guarded};
use crate::conformance::compare::compare;
use crate::conformance::data::{Guarded, Random};
use crate::conformance::fault;
use crate::conformance::limits::{Limit, limit};
use crate::conformance::ran::Ran;
use crate::conformance::segment::{Built, SegmentBuilder, Slots};
use crate::{
    Backend, BackendError, ByteSource, CompileOptions, DType, Dim, MemorySpace, NodeCx, NodeView, Op, Packed,
    Precision, SeqId, SeqRows, StateOptions, Step, Tensor, ValueType, reference,
};

/// A case with its tensors, and the answer.
pub(in crate::conformance) struct Prepared<'a> {
    pub case: &'a OpCase,
    /// As made, and between guard bytes.
    original: Vec<Tensor>,
    pub inputs: Vec<Tensor>,
    guards: Vec<Arc<Guarded>>,
    pub types: Vec<ValueType>,
    pub outputs: Vec<ValueType>,
    is_const: Vec<bool>,
    /// What the oracle says.
    pub want: Vec<Tensor>,
}

/// A way to run a case.
type Run<'a> = Box<dyn Fn() -> Result<Vec<Tensor>, BackendError> + 'a>;

impl OpCase {
    /// `matmul on f32 [3, 64], q4_0 [5, 64] weight`.
    pub fn subject(&self) -> String {
        let inputs: Vec<String> = self
            .inputs
            .iter()
            .map(|i| {
                let shape = crate::Shape::new(&i.shape);
                format!("{} {shape}{}", i.dtype, if i.is_weight { " weight" } else { "" })
            })
            .collect();
        format!("{} on {}", self.op, inputs.join(", "))
    }

    /// Whether the backend says that it runs this node.
    pub fn types_are_supported(&self, backend: &dyn Backend) -> bool {
        let types: Vec<ValueType> = self
            .inputs
            .iter()
            .map(|i| ValueType::fixed(i.dtype, &i.shape))
            .collect();
        let is_const: Vec<bool> = self.inputs.iter().map(|i| i.is_weight).collect();
        let outputs = self.op.infer(&types);
        outputs
            .is_ok_and(|outputs| backend.supports_node(&NodeView::new("case", &self.op, &types, &outputs, &is_const)))
    }

    /// Whether no error does in the place of its answer.
    pub fn always_answers(&self) -> bool {
        self.fails.is_none() && self.may_refuse.is_none()
    }

    /// Its inputs; `name` is the seed of their numbers.
    pub fn tensors(&self, name: &str) -> Vec<Tensor> {
        let mut random = Random::of(name);
        self.inputs.iter().map(|i| i.tensor(&mut random)).collect()
    }

    pub fn prepare(&self, name: &str) -> Result<Prepared<'_>, BackendError> {
        let original = self.tensors(name);
        let types: Vec<ValueType> = original
            .iter()
            .map(|t| ValueType::fixed(t.dtype(), t.shape()))
            .collect();
        let outputs = self.op.infer(&types)?;
        let (inputs, guards) = original.iter().map(Guarded::tensor).unzip();
        let all: Vec<&Tensor> = original.iter().collect();
        let want = match self.fails {
            None => reference::execute(&self.op, &all)?,
            Some(_) => Vec::new(),
        };
        Ok(Prepared {
            case: self,
            inputs,
            original,
            guards,
            types,
            outputs,
            is_const: self.inputs.iter().map(|i| i.is_weight).collect(),
            want,
        })
    }

    pub fn run(&self, cx: &Cx) -> Outcome {
        let prepared = match self.prepare(&cx.name) {
            Ok(prepared) => prepared,
            Err(e) => return Outcome::Failed(Failure::new(self.subject(), "the oracle", e.to_string())),
        };
        if !prepared.supported(cx, true) {
            return Outcome::Unsupported(format!("{} does not run {}", cx.backend.name(), self.subject()));
        }
        for (path, precision, run) in prepared.doors(cx) {
            let first = guarded(&run);
            let kept = first.as_ref().ok().cloned();
            let Err(mut failure) = prepared.judge(&path, precision, first) else {
                continue;
            };
            if let (Some(first), Ok(again)) = (kept, guarded(&run))
                && failure.hint.is_none()
                && differ(&first, &again)
            {
                let hint =
                    "answers change from call to call: something of an earlier call is read, a stale row or buffer";
                failure.hint = Some(hint.to_owned());
            }
            return Outcome::Failed(failure);
        }
        Outcome::Passed
    }
}

impl<'a> Prepared<'a> {
    fn view(&self, consts: bool) -> (Vec<bool>, &'static str) {
        let flags = if consts {
            self.is_const.clone()
        } else {
            vec![false; self.is_const.len()]
        };
        (flags, "case")
    }

    /// Whether the backend says that it runs the node; `consts` tells it which inputs are weights.
    pub fn supported(&self, cx: &Cx, consts: bool) -> bool {
        let (flags, name) = self.view(consts);
        let view = NodeView::new(name, &self.case.op, &self.types, &self.outputs, &flags);
        cx.backend.supports_node(&view)
    }

    /// The ways in which this case can run on the backend.
    fn doors<'p>(&'p self, cx: &'p Cx) -> Vec<(String, Precision, Run<'p>)> {
        let mut doors: Vec<(String, Precision, Run<'p>)> = Vec::new();
        // Level 0 knows no weights: asked about plain inputs.
        if self.supported(cx, false) {
            let all = || self.inputs.iter().collect::<Vec<_>>();
            let run = move || cx.backend.execute(&self.case.op, &all());
            doors.push(("execute".to_owned(), Precision::Exact, Box::new(run)));
            // Rows of a larger tensor begin at any element.
            let run = move || {
                let moved = self.original.iter().map(off_the_line).collect::<Result<Vec<_>, _>>()?;
                cx.backend.execute(&self.case.op, &moved.iter().collect::<Vec<_>>())
            };
            doors.push((
                "execute, inputs off the cache lines".to_owned(),
                Precision::Exact,
                Box::new(run),
            ));
        }
        let run = || self.by_node(cx);
        doors.push(("execute_node".to_owned(), Precision::Exact, Box::new(run)));
        // The length of a sequence decides between the tables, and these rows are of none: a segment has such a case.
        let by_length = matches!(&self.case.op, Op::Rope(rope) if rope.long_from.is_some());
        let by_row = self.n_rows().is_some();
        let compiled = [
            (Precision::Exact, false),
            (Precision::Exact, true),
            (Precision::Fast, by_row),
        ];
        for (precision, rows) in compiled.into_iter().filter(|(_, rows)| !by_length && (by_row || !rows)) {
            let path = format!("compile, {precision:?}{}", if rows { ", a row per token" } else { "" });
            let run = move || self.compiled(cx, precision, rows);
            doors.push((path, precision, Box::new(run)));
        }
        doors
    }

    /// Level 1: weights packed, tensors in the backend's memory.
    pub fn by_node(&self, cx: &Cx) -> Result<Vec<Tensor>, BackendError> {
        let outputs = self.by_packed_node(cx, &self.packed(cx)?)?;
        let home = |t: Tensor| {
            if t.check_on_host().is_ok() {
                Ok(t)
            } else {
                cx.backend.download(&t)
            }
        };
        outputs.into_iter().map(home).collect()
    }

    /// Whether one call of `execute_node` is right.
    pub fn node_is_right(&self, cx: &Cx) -> Result<(), Failure> {
        self.judge("execute_node", Precision::Exact, guarded(|| self.by_node(cx)))
    }

    /// Inputs as a node is given them, and what the backend has packed of them.
    pub fn packed(&self, cx: &Cx) -> Result<(Vec<Tensor>, Vec<Option<Packed>>), BackendError> {
        let backend = &cx.backend;
        let on_host = backend.space() == MemorySpace::HOST;
        let (flags, name) = self.view(true);
        let view = NodeView::new(name, &self.case.op, &self.types, &self.outputs, &flags);
        let (mut inputs, mut packed) = (Vec::new(), Vec::new());
        for (i, tensor) in self.inputs.iter().enumerate() {
            let form = if flags[i] {
                backend.pack(&view, i, tensor)?
            } else {
                None
            };
            inputs.push(match &form {
                Some(_) => Tensor::zeros(tensor.dtype(), [0])?,
                None if on_host => tensor.clone(),
                None => backend.upload(tensor)?,
            });
            packed.push(form);
        }
        Ok((inputs, packed))
    }

    /// One call of `execute_node`.
    pub fn by_packed_node(
        &self,
        cx: &Cx,
        (inputs, packed): &(Vec<Tensor>, Vec<Option<Packed>>),
    ) -> Result<Vec<Tensor>, BackendError> {
        let (flags, name) = self.view(true);
        let view = NodeView::new(name, &self.case.op, &self.types, &self.outputs, &flags);
        let mut outputs = Vec::new();
        cx.backend
            .execute_node(&mut NodeCx::new(view, inputs, packed, &mut outputs))?;
        Ok(outputs)
    }

    /// The inputs that are no weights.
    pub fn activations(&self) -> impl Iterator<Item = &Tensor> {
        self.inputs
            .iter()
            .zip(&self.is_const)
            .filter(|(_, weight)| !**weight)
            .map(|(t, _)| t)
    }

    /// How many rows the activations have in common, when the op treats them row by row.
    pub fn n_rows(&self) -> Option<usize> {
        let mut sizes = self.activations().map(|t| t.shape().first().copied());
        let n = sizes.next()??;
        if n == 0 || !sizes.all(|other| other == Some(n)) {
            return None;
        }
        let by_row = |(ty, is_const): (&ValueType, &bool)| {
            let mut ty = ty.clone();
            if !is_const {
                ty.dims[0] = Dim::T;
            }
            ty
        };
        let types: Vec<ValueType> = self.types.iter().zip(&self.is_const).map(by_row).collect();
        let outputs = self.case.op.infer(&types).ok()?;
        outputs.iter().all(|ty| ty.dims.first() == Some(&Dim::T)).then_some(n)
    }

    /// A segment of this op alone; with `by_row`, activations have a row per token of the step.
    pub fn segment(&self, by_row: bool) -> Built {
        let mut b = SegmentBuilder::default();
        let mut ids = Vec::new();
        for (i, tensor) in self.inputs.iter().enumerate() {
            let mut dims: Vec<Dim> = tensor.shape().iter().map(|&d| d.into()).collect();
            if by_row && !self.is_const[i] {
                dims[0] = Dim::T;
            }
            ids.push(match self.is_const[i] {
                true => b.weight(&format!("w{i}"), tensor.clone()),
                false => b.input(&format!("x{i}"), tensor.dtype(), dims),
            });
        }
        let outputs = b.node("case", self.case.op.clone(), &ids);
        b.finish(&outputs, Slots::Shared)
    }

    /// Level 3, or nothing when the backend compiles nothing.
    fn compiled(&self, cx: &Cx, precision: Precision, by_row: bool) -> Result<Vec<Tensor>, BackendError> {
        let built = self.segment(by_row);
        let backend = &cx.backend;
        let options = CompileOptions::new(&*built.weights, precision);
        let Some(program) = backend.compile(&built.segment, &options)? else {
            cx.programs.note(&Ran::Declined);
            return Ok(self.want.clone());
        };
        cx.programs.note(&Ran::Compiled);
        let mut state = program.open(&StateOptions::default())?;
        let on_host = backend.space() == MemorySpace::HOST;
        let mut inputs = Vec::new();
        for tensor in self.activations() {
            inputs.push(if on_host {
                tensor.clone()
            } else {
                backend.upload(tensor)?
            });
        }
        let rows = [SeqRows {
            seq: SeqId(1),
            first_row: 0,
            n_rows: if by_row { self.n_rows().unwrap_or(1) } else { 1 },
            pos: 0,
        }];
        state.create(SeqId(1))?;
        let ran = state.run(&Step::new(&rows, &inputs, &[]));
        match ran {
            Ok(outputs) => {
                state.commit();
                let home = |t: Tensor| {
                    if t.check_on_host().is_ok() {
                        Ok(t)
                    } else {
                        backend.download(&t)
                    }
                };
                outputs.into_iter().map(home).collect()
            }
            Err(e) => {
                state.rollback();
                Err(e)
            }
        }
    }

    /// Whether the outputs are right and the inputs unharmed.
    fn judge(
        &self,
        path: &str,
        precision: Precision,
        outputs: Result<Vec<Tensor>, BackendError>,
    ) -> Result<(), Failure> {
        let failed = |what: String| Failure::new(self.case.subject(), path, what);
        for (i, (guard, original)) in self.guards.iter().zip(&self.original).enumerate() {
            if let Some(damage) = guard.damage(original) {
                let hint = "inputs belong to the caller: write to outputs and memory of your own only";
                return Err(failed(format!("input {i}: {damage}")).hint(Some(hint.to_owned())));
            }
        }
        let outputs = match (outputs, self.case.fails) {
            (Err(_), Some(_)) if path.starts_with("compile") && self.want.is_empty() => return Ok(()),
            (Err(e), Some(says)) => {
                let said = e.to_string();
                return match says.iter().find(|s| !said.contains(**s)) {
                    Some(missing) => Err(failed(format!("the error must name {missing}, it says: {said}"))),
                    None => Ok(()),
                };
            }
            (Ok(outputs), Some(_)) if outputs.is_empty() => return Ok(()),
            (Ok(_), Some(says)) => {
                let hint = "ids out of range are errors: not wrapped, not clamped, not cut to 32 bits";
                return Err(failed(format!(
                    "gave an answer instead of an error that names {}",
                    says.join(", ")
                ))
                .hint(Some(hint.to_owned())));
            }
            (Err(e), None) if self.case.may_refuse.is_some_and(|says| e.to_string().contains(says)) => return Ok(()),
            (Err(e), None) => return Err(failed(format!("failed: {e}")).hint(of_error(&e))),
            (Ok(outputs), None) => outputs,
        };
        if outputs.len() != self.want.len() {
            return Err(failed(format!(
                "returned {} outputs instead of {}",
                outputs.len(),
                self.want.len()
            )));
        }
        for (i, (got, want)) in outputs.iter().zip(&self.want).enumerate() {
            if let Some(place) = got.overrun() {
                let hint = "a write past the end of an output, or before its start";
                return Err(failed(format!("output {i}: memory outside it was written to, {place}"))
                    .hint(Some(hint.to_owned())));
            }
            let limit = limit(&self.case.op, &self.original, want.dtype(), precision);
            if let Err(mismatch) = compare(got, want, &limit) {
                let of = if self.want.len() > 1 {
                    format!("output {i}: ")
                } else {
                    String::new()
                };
                let what = format!("{of}{} ({})", mismatch.what, limit.why);
                return Err(failed(what).hint(self.explain(&outputs, precision)));
            }
        }
        Ok(())
    }

    /// The mistake that gives just these outputs.
    fn explain(&self, outputs: &[Tensor], precision: Precision) -> Option<String> {
        let limits: Vec<Limit> = self
            .want
            .iter()
            .map(|t| limit(&self.case.op, &self.original, t.dtype(), precision))
            .collect();
        let longer = outputs
            .iter()
            .zip(&self.want)
            .any(|(got, want)| got.n_elems() > want.n_elems());
        if longer {
            return Some("a write past the end: the output has more elements than its type".to_owned());
        }
        // Looking for a name must not hide the failure.
        let looked = guarded(|| {
            Ok(fault::named(
                &self.case.op,
                &self.original,
                outputs,
                &self.want,
                &limits,
            ))
        });
        looked.ok().flatten()
    }
}

/// What an error says of its cause.
pub(in crate::conformance) fn of_error(error: &BackendError) -> Option<String> {
    let said = error.to_string();
    let past = matches!(error.root(), BackendError::Panicked { .. })
        && (said.contains("out of bounds") || said.contains("out of range"));
    past.then(|| "a write or read past the end: an index was caught out of bounds".to_owned())
}

/// The same tensor one element behind the start of its memory.
fn off_the_line(tensor: &Tensor) -> Result<Tensor, BackendError> {
    let by = if tensor.dtype().is_quantized() {
        32
    } else {
        tensor.dtype().block_bytes()
    };
    let bytes: Vec<u8> = vec![0x5a; by]
        .into_iter()
        .chain(tensor.bytes()?.iter().copied())
        .collect();
    let n = bytes.len();
    // Aligned, then entered one element later.
    let whole = Tensor::from_bytes(DType::U8, [n], &bytes)?;
    Ok(Tensor::shared(
        tensor.dtype(),
        *tensor.shape(),
        Arc::new(Whole(whole)),
        by..n,
    )?)
}

/// The bytes of a tensor as a source of others.
#[derive(Debug)]
struct Whole(Tensor);

impl ByteSource for Whole {
    fn bytes(&self) -> &[u8] {
        self.0.bytes().unwrap_or_default()
    }
}

fn differ(a: &[Tensor], b: &[Tensor]) -> bool {
    let bytes = |t: &Tensor| t.bytes().map(<[u8]>::to_vec).unwrap_or_default();
    a.iter().map(bytes).ne(b.iter().map(bytes))
}
