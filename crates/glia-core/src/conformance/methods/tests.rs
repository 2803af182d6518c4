//! Methods whose override and default disagree, planted: found, and the method is named.

use std::sync::Arc;

use super::own::OwnSpace;
use super::without::{WithoutWeightBytes, backend_around, handed_on};
use crate::conformance::case::Outcome;
use crate::conformance::fault::{FaultyBackend, StateFault, all};
use crate::conformance::{ReferenceBackend, cases};
use crate::{
    Backend, BackendError, CompileOptions, DType, MemoryHints, MemorySpace, NodeCx, NodeView, Op, Packed, Program,
    ProgramState, Segment, StateOptions, Tensor, reference,
};

fn oracle() -> Arc<dyn Backend> {
    Arc::new(ReferenceBackend)
}

fn scaled(tensor: &Tensor, factor: f32) -> Result<Tensor, BackendError> {
    Ok(reference::execute(&Op::Scale { factor }, &[tensor])?.remove(0))
}

fn packed(tensor: Tensor) -> Option<Packed> {
    let size_bytes = tensor.size_bytes();
    let data = Arc::new(tensor);
    Some(Packed { data, size_bytes })
}

/// The node on its inputs, packed ones in their places.
fn run_packed(cx: &mut NodeCx<'_>) -> Result<(), BackendError> {
    let unpacked = |(input, packed): (&Tensor, &Option<Packed>)| {
        let form = packed.as_ref().and_then(|p| p.data.downcast_ref::<Tensor>());
        form.unwrap_or(input).clone()
    };
    let inputs: Vec<Tensor> = cx.inputs.iter().zip(cx.packed).map(unpacked).collect();
    *cx.outputs = reference::execute(cx.node.op, &inputs.iter().collect::<Vec<_>>())?;
    Ok(())
}

backend_around! {
    /// Packs matrices with the wrong sign.
    PacksWrongly: [supports_node]

    fn pack(&self, node: &NodeView<'_>, input: usize, weight: &Tensor) -> Result<Option<Packed>, BackendError> {
        let matrix = *node.op == Op::MatMul && input == 1 && weight.dtype() == DType::F32;
        Ok(if matrix { packed(scaled(weight, -1.0)?) } else { None })
    }

    fn execute_node(&self, cx: &mut NodeCx<'_>) -> Result<(), BackendError> {
        run_packed(cx)
    }
}

backend_around! {
    /// Runs products of packed weights only.
    NeedsPacked: [supports_node]

    fn pack(&self, _: &NodeView<'_>, _: usize, weight: &Tensor) -> Result<Option<Packed>, BackendError> {
        Ok(packed(weight.clone()))
    }

    fn execute_node(&self, cx: &mut NodeCx<'_>) -> Result<(), BackendError> {
        if *cx.node.op == Op::MatMul && cx.node.is_const[1] && cx.packed[1].is_none() {
            return Err(BackendError::invalid("matmul", "the weight is not packed"));
        }
        run_packed(cx)
    }
}

backend_around! {
    /// Rows that are normed come out doubled, but from `execute`.
    NodesWrong: [supports_node]

    fn execute_node(&self, cx: &mut NodeCx<'_>) -> Result<(), BackendError> {
        run_packed(cx)?;
        if matches!(cx.node.op, Op::RmsNorm { .. } | Op::LayerNorm { .. }) {
            cx.outputs[0] = scaled(&cx.outputs[0], 2.0)?;
        }
        Ok(())
    }
}

backend_around! {
    /// Nodes are right, whatever `execute` gives.
    NodesRight: [supports_node]

    fn execute_node(&self, cx: &mut NodeCx<'_>) -> Result<(), BackendError> {
        run_packed(cx)
    }
}

backend_around! {
    /// Programs are right, whatever `execute` gives.
    ProgramsRight: [supports_node]

    fn compile(&self, segment: &Segment, options: &CompileOptions<'_>) -> Result<Option<Arc<dyn Program>>, BackendError> {
        FaultyBackend::default().compile(segment, options)
    }
}

/// The handle of [`Device`].
fn on_device(tensor: Tensor) -> Result<Tensor, BackendError> {
    Ok(Tensor::device(tensor.dtype(), *tensor.shape(), Arc::new(tensor))?)
}

/// A device, right but for one thing.
struct Device {
    keeps_halves: bool,
    takes_device_tensors_only: bool,
}

const RIGHT: Device = Device {
    keeps_halves: false,
    takes_device_tensors_only: false,
};

impl Backend for Device {
    fn name(&self) -> &str {
        "device"
    }

    fn supports(&self, op: &Op) -> bool {
        !op.is_stateful()
    }

    fn execute(&self, op: &Op, inputs: &[&Tensor]) -> Result<Vec<Tensor>, BackendError> {
        match self.takes_device_tensors_only {
            true => Err(BackendError::invalid("execute", "an input is not on the device")),
            false => reference::execute(op, inputs),
        }
    }

    fn space(&self) -> MemorySpace {
        MemorySpace(9)
    }

    fn upload(&self, host: &Tensor) -> Result<Tensor, BackendError> {
        if !self.keeps_halves || host.dtype() != DType::F32 {
            return on_device(host.clone());
        }
        let half = reference::execute(&Op::Cast { to: DType::F16 }, &[host])?;
        on_device(reference::execute(&Op::Cast { to: DType::F32 }, &[&half[0]])?.remove(0))
    }

    fn download(&self, tensor: &Tensor) -> Result<Tensor, BackendError> {
        let handle = tensor.device_handle().and_then(|h| h.downcast_ref::<Tensor>());
        let inner = handle.ok_or_else(|| BackendError::invalid("download", "a tensor of another device"))?;
        Ok(inner.reshaped(*tensor.shape())?)
    }

    fn execute_node(&self, cx: &mut NodeCx<'_>) -> Result<(), BackendError> {
        let inputs: Vec<Tensor> = cx.inputs.iter().map(|t| self.download(t)).collect::<Result<_, _>>()?;
        let made = reference::execute(cx.node.op, &inputs.iter().collect::<Vec<_>>())?;
        *cx.outputs = made.into_iter().map(on_device).collect::<Result<_, _>>()?;
        Ok(())
    }
}

backend_around! {
    /// One allocation is larger than all memory.
    HintsWrong: [supports_node]

    fn memory_hints(&self) -> MemoryHints {
        MemoryHints { limit_bytes: 10, max_alloc_bytes: 20 }
    }
}

backend_around! {
    /// Describes its programs on two lines.
    TwoLines: [supports_node]

    fn compile(&self, segment: &Segment, options: &CompileOptions<'_>) -> Result<Option<Arc<dyn Program>>, BackendError> {
        let program = FaultyBackend::default().compile(segment, options)?;
        Ok(program.map(|p| Arc::new(Described(p)) as Arc<dyn Program>))
    }
}

struct Described(Arc<dyn Program>);

impl Program for Described {
    fn open(self: Arc<Self>, options: &StateOptions) -> Result<Box<dyn ProgramState>, BackendError> {
        self.0.clone().open(options)
    }

    fn describe(&self) -> String {
        "compiled\nfor two lines".to_owned()
    }
}

fn check(case: &str, backend: impl Backend + 'static, says: &str) {
    let found = cases().into_iter().find(|c| c.full_name() == case).unwrap();
    let backend: Arc<dyn Backend> = Arc::new(backend);
    match found.run(&backend) {
        Outcome::Failed(failure) => {
            let said = failure.to_string();
            assert!(said.contains(says), "{case}: {said}");
        }
        other => panic!("{case}: {other:?}"),
    }
}

#[test]
fn a_default_and_an_override_that_disagree_are_found_and_named() {
    let norms = all().into_iter().find(|f| f.says.starts_with("plus_one is ignored"));
    let transposed = || all().into_iter().find(|f| f.says.starts_with("a transposed weight"));
    let faulty = |fault, state| -> Arc<dyn Backend> { Arc::new(FaultyBackend { fault, state }) };
    assert!(norms.is_some() && transposed().is_some());
    for segment in ["decoder", "nodes"] {
        let case = |method: &str| format!("methods/{method}_default_{segment}");
        check(
            &case("pack"),
            PacksWrongly(oracle()),
            "right with the trait's default of `pack`, wrong with the backend's own",
        );
        check(
            &case("pack"),
            NeedsPacked(oracle()),
            "right with the backend's own `pack`, wrong with the trait's default: `execute_node` must also take",
        );
        check(
            &case("execute_node"),
            NodesWrong(oracle()),
            "right with the trait's default of `execute_node`, wrong with the backend's own",
        );
        check(
            &case("execute_node"),
            NodesRight(faulty(transposed(), None)),
            "wrong with the trait's default: `execute` must give what `execute_node` gives",
        );
        check(
            &case("space"),
            Device {
                keeps_halves: true,
                ..RIGHT
            },
            "right with the trait's default of `space`, wrong with the backend's own",
        );
        check(
            &case("space"),
            Device {
                takes_device_tensors_only: true,
                ..RIGHT
            },
            "wrong with the trait's default: `execute` takes and returns host tensors",
        );
    }
    let case = "methods/compile_default_decoder";
    check(
        case,
        FaultyBackend {
            fault: None,
            state: Some(StateFault::PositionsFromZero),
        },
        "right with the trait's default of `compile`, wrong with the backend's own",
    );
    check(
        case,
        ProgramsRight(faulty(transposed(), None)),
        "wrong with the trait's default: `execute_node` must give what the compiled program gives",
    );
}

#[test]
fn what_a_backend_says_of_itself_is_checked_in_both_states() {
    check(
        "methods/memory_hints",
        HintsWrong(oracle()),
        "one allocation is larger than the limit",
    );
    check(
        "methods/programs_describe_themselves",
        TwoLines(Arc::new(FaultyBackend::default())),
        "is no line of text",
    );
    let device = || -> Arc<dyn Backend> { Arc::new(OwnSpace(Arc::new(FaultyBackend::default()))) };
    check(
        "methods/weight_bytes_count_copies",
        WithoutWeightBytes(device()),
        "`weight_bytes` says 0",
    );
}

/// A device that is right passes in both states, and so does one that compiles.
#[test]
fn right_backends_pass_in_both_states() {
    let backends: [Arc<dyn Backend>; 2] = [Arc::new(RIGHT), Arc::new(OwnSpace(Arc::new(FaultyBackend::default())))];
    for backend in backends {
        for case in cases() {
            let both = ["_default_", "_override_"].iter().any(|s| case.name.contains(s));
            if case.group == "methods" && both {
                let outcome = case.run(&backend);
                assert!(!matches!(outcome, Outcome::Failed(_)), "{}: {outcome:?}", case.name);
            }
        }
    }
}
