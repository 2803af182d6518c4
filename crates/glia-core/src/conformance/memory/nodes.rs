//! Nodes whose inputs nobody else holds may use them up; inputs that are held, also by a view only, stay as they are.
//! The answer is the same either way.

use std::collections::BTreeSet;

use crate::conformance::case::{Body, Cx, Failure, List, Outcome, guarded};
use crate::conformance::op::{self, OpCase};
use crate::{BackendError, MemorySpace, NodeCx, NodeView, Tensor, ValueType};

/// Cases per op.
const MOST_CASES: usize = 8;

/// What the caller holds beside what it gives.
#[derive(Clone, Copy, Debug)]
enum Held {
    Nothing,
    /// The same tensor as this input.
    Input(usize),
    /// A view of this input.
    ViewOf(usize),
    Everything,
}

/// What a call gave, and what became of what was held.
struct Given {
    outputs: Vec<Vec<u8>>,
    /// Held inputs by number, with their bytes.
    held: Vec<(usize, Vec<u8>)>,
}

pub(super) fn add(list: &mut List) {
    let mut ops = List::default();
    op::add_all(&mut ops);
    let mut kinds = BTreeSet::new();
    for case in ops.cases.iter().filter(|c| matches!(c.body, Body::Op(_))) {
        if kinds.insert(case.group) {
            let kind = case.group;
            list.check("memory", format!("donated_to_node_{kind}"), move |cx| donated(cx, kind));
        }
    }
}

fn donated(cx: &Cx, kind: &str) -> Outcome {
    let mut ops = List::default();
    op::add_all(&mut ops);
    let cases = ops
        .cases
        .iter()
        .filter(|c| c.group == kind)
        .filter_map(|c| match &c.body {
            Body::Op(case) if case.always_answers() && case.types_are_supported(&*cx.backend) => {
                Some((c.full_name(), case))
            }
            _ => None,
        });
    // More than one element, or there is nothing to write over.
    let some = cases.filter(|(_, case)| case.inputs[0].shape.iter().product::<usize>() > 1);
    let mut n_run = 0;
    for (name, case) in some.take(MOST_CASES) {
        n_run += 1;
        if let Err(what) = one(cx, &name, case) {
            return Outcome::Failed(Failure::new(case.subject(), "execute_node", what));
        }
    }
    match n_run {
        0 => Outcome::Unsupported(format!("{} does not run {kind}", cx.backend.name())),
        _ => Outcome::Passed,
    }
}

fn one(cx: &Cx, name: &str, case: &OpCase) -> Result<(), String> {
    let original = case.tensors(name);
    let mut ways = vec![Held::Everything];
    for i in (0..original.len()).filter(|&i| !case.inputs[i].is_weight) {
        ways.extend([Held::Input(i), Held::ViewOf(i)]);
    }
    check_ways(cx, case, &original, &ways)?;
    // One tensor in the place of two.
    let twice = original.len() > 1
        && !case.inputs[1].is_weight
        && (original[0].dtype(), original[0].shape()) == (original[1].dtype(), original[1].shape());
    if twice {
        let mut same = original.clone();
        same[1] = same[0].clone();
        check_ways(cx, case, &same, &ways).map_err(|what| format!("the same input twice: {what}"))?;
    }
    Ok(())
}

fn check_ways(cx: &Cx, case: &OpCase, original: &[Tensor], ways: &[Held]) -> Result<(), String> {
    let said = |e: BackendError| e.to_string();
    let alone = call(cx, case, original, Held::Nothing).map_err(said)?;
    for &held in ways {
        let given = call(cx, case, original, held).map_err(said)?;
        for (i, bytes) in &given.held {
            if Some(&bytes[..]) != original[*i].bytes().ok() {
                return Err(format!(
                    "input {i}, which the caller still holds, has changed (held: {held:?})"
                ));
            }
        }
        if given.outputs != alone.outputs {
            return Err(format!(
                "the answer depends on whether the caller keeps its inputs (held: {held:?})"
            ));
        }
    }
    Ok(())
}

fn call(cx: &Cx, case: &OpCase, original: &[Tensor], hold: Held) -> Result<Given, BackendError> {
    let backend = &cx.backend;
    let on_host = backend.space() == MemorySpace::HOST;
    let types: Vec<ValueType> = original
        .iter()
        .map(|t| ValueType::fixed(t.dtype(), t.shape()))
        .collect();
    let outputs = case.op.infer(&types)?;
    let is_const: Vec<bool> = case.inputs.iter().map(|i| i.is_weight).collect();
    let view = NodeView::new("donated", &case.op, &types, &outputs, &is_const);
    let (mut inputs, mut packed): (Vec<Tensor>, Vec<_>) = (Vec::new(), Vec::new());
    for (i, tensor) in original.iter().enumerate() {
        // A clone of the one before it is given as a clone.
        let again = (0..i).find(|&j| !is_const[j] && shares(&original[j], tensor));
        packed.push(if is_const[i] {
            backend.pack(&view, i, tensor)?
        } else {
            None
        });
        let fresh = |tensor: &Tensor| -> Result<Tensor, BackendError> {
            let copy = tensor.to_owned_aligned()?;
            if on_host { Ok(copy) } else { backend.upload(&copy) }
        };
        inputs.push(match (&packed[i], again) {
            (Some(_), _) => Tensor::zeros(tensor.dtype(), [0])?,
            (None, Some(j)) => inputs[j].clone(),
            (None, None) => fresh(tensor)?,
        });
    }
    let flat = |t: &Tensor| t.reshaped([t.n_elems()]);
    let mut held = Vec::new();
    for i in (0..inputs.len()).filter(|&i| !is_const[i]) {
        match hold {
            Held::Everything => held.push((i, inputs[i].clone())),
            Held::Input(n) if n == i => held.push((i, inputs[i].clone())),
            Held::ViewOf(n) if n == i && !original[i].dtype().is_quantized() => held.push((i, flat(&inputs[i])?)),
            _ => {}
        }
    }
    let mut made = Vec::new();
    guarded(|| backend.execute_node(&mut NodeCx::new(view, &inputs, &packed, &mut made)))?;
    // What nobody holds is gone before the answer is read.
    drop(inputs);
    let bytes = |t: &Tensor| -> Result<Vec<u8>, BackendError> {
        match t.check_on_host() {
            Ok(()) => Ok(t.bytes()?.to_vec()),
            Err(_) => Ok(backend.download(t)?.bytes()?.to_vec()),
        }
    };
    Ok(Given {
        outputs: made.iter().map(bytes).collect::<Result<_, _>>()?,
        held: held
            .iter()
            .map(|(i, t)| Ok((*i, bytes(t)?)))
            .collect::<Result<_, BackendError>>()?,
    })
}

/// Whether two tensors are clones of one.
fn shares(a: &Tensor, b: &Tensor) -> bool {
    let place = |t: &Tensor| t.bytes().ok().map(|bytes| (bytes.as_ptr(), bytes.len()));
    a.n_elems() > 0 && place(a) == place(b)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, PoisonError};

    use super::*;
    use crate::conformance::cases;
    use crate::{Backend, Op, reference};

    /// A device that writes what a node makes over its input number `over`, when both are of one size.
    struct InPlace {
        over: usize,
        /// Only where nobody else has the handle: what it may do.
        asks: bool,
    }

    type Buffer = Mutex<Vec<u8>>;

    fn buffer(tensor: &Tensor) -> Option<&Buffer> {
        tensor.device_handle()?.downcast_ref::<Buffer>()
    }

    impl Backend for InPlace {
        fn name(&self) -> &str {
            "in-place"
        }

        fn supports(&self, op: &Op) -> bool {
            !op.is_stateful()
        }

        fn execute(&self, op: &Op, inputs: &[&Tensor]) -> Result<Vec<Tensor>, BackendError> {
            reference::execute(op, inputs)
        }

        fn space(&self) -> MemorySpace {
            MemorySpace(3)
        }

        fn upload(&self, host: &Tensor) -> Result<Tensor, BackendError> {
            let bytes: Buffer = Mutex::new(host.bytes()?.to_vec());
            Ok(Tensor::device(host.dtype(), *host.shape(), Arc::new(bytes))?)
        }

        fn download(&self, tensor: &Tensor) -> Result<Tensor, BackendError> {
            let buffer = buffer(tensor).ok_or_else(|| BackendError::invalid("download", "not of this device"))?;
            let bytes = buffer.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(Tensor::from_bytes(tensor.dtype(), *tensor.shape(), &bytes)?)
        }

        fn execute_node(&self, cx: &mut NodeCx<'_>) -> Result<(), BackendError> {
            let inputs: Vec<Tensor> = cx.inputs.iter().map(|t| self.download(t)).collect::<Result<_, _>>()?;
            let made = reference::execute(cx.node.op, &inputs.iter().collect::<Vec<_>>())?;
            *cx.outputs = made.iter().map(|t| self.upload(t)).collect::<Result<_, _>>()?;
            let (Some(target), Some(first)) = (cx.inputs.get(self.over), made.first()) else {
                return Ok(());
            };
            let alone = target.device_handle().is_some_and(|h| Arc::strong_count(h) == 1);
            let reused = !cx.node.is_const[self.over] && (alone || !self.asks);
            if let Some(buffer) = buffer(target).filter(|_| reused && target.size_bytes() == first.size_bytes()) {
                *buffer.lock().unwrap_or_else(PoisonError::into_inner) = first.bytes()?.to_vec();
                let handle = target.device_handle().cloned();
                if let Some(handle) = handle {
                    cx.outputs[0] = Tensor::device(first.dtype(), *first.shape(), handle)?;
                }
            }
            Ok(())
        }
    }

    fn outcome(kind: &str, over: usize, asks: bool) -> Outcome {
        let backend: Arc<dyn Backend> = Arc::new(InPlace { over, asks });
        let name = format!("memory/donated_to_node_{kind}");
        cases().iter().find(|c| c.full_name() == name).unwrap().run(&backend)
    }

    #[test]
    fn inputs_that_are_held_must_not_be_written_over() {
        for (kind, over) in [
            ("silu", 0),
            ("scale", 0),
            ("rms_norm", 0),
            ("softmax", 0),
            ("rope", 0),
            ("cast", 0),
            ("add", 0),
            ("add", 1),
            ("sub", 1),
            ("swiglu", 1),
        ] {
            let Outcome::Failed(failure) = outcome(kind, over, false) else {
                panic!("{kind}: an input that is written over was not found");
            };
            assert!(
                failure.what.contains("which the caller still holds, has changed"),
                "{kind}: {failure}"
            );
            assert_eq!(outcome(kind, over, true), Outcome::Passed, "{kind}");
        }
    }
}
