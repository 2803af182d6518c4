//! A backend with one of its methods hidden, so that the trait's default stands in its place: the body that a backend
//! without this override has.

use std::sync::Arc;

use crate::{
    Backend, BackendError, CompileOptions, InterpretedProgram, MemoryHints, MemorySpace, NodeCx, NodeView, Op, Packed,
    Program, ProgramState, Segment, SeqId, StateOptions, Step, Tensor,
};

/// One method that hands on to the backend inside.
macro_rules! handed_on {
    (supports_node) => {
        fn supports_node(&self, node: &NodeView<'_>) -> bool {
            self.0.supports_node(node)
        }
    };
    (supports_plain_node) => {
        // Level 0 knows no weights: it is asked about plain inputs too.
        fn supports_node(&self, node: &NodeView<'_>) -> bool {
            let plain = vec![false; node.is_const.len()];
            let plain = NodeView::new(node.name, node.op, node.inputs, node.outputs, &plain);
            self.0.supports_node(node) && self.0.supports_node(&plain)
        }
    };
    (pack) => {
        fn pack(&self, node: &NodeView<'_>, input: usize, weight: &Tensor) -> Result<Option<Packed>, BackendError> {
            self.0.pack(node, input, weight)
        }
    };
    (execute_node) => {
        fn execute_node(&self, cx: &mut NodeCx<'_>) -> Result<(), BackendError> {
            self.0.execute_node(cx)
        }
    };
    (space) => {
        fn space(&self) -> MemorySpace {
            self.0.space()
        }

        fn upload(&self, host: &Tensor) -> Result<Tensor, BackendError> {
            self.0.upload(host)
        }

        fn download(&self, tensor: &Tensor) -> Result<Tensor, BackendError> {
            self.0.download(tensor)
        }
    };
    (memory_hints) => {
        fn memory_hints(&self) -> MemoryHints {
            self.0.memory_hints()
        }
    };
    (compile) => {
        fn compile(
            &self,
            segment: &Segment,
            options: &CompileOptions<'_>,
        ) -> Result<Option<Arc<dyn Program>>, BackendError> {
            self.0.compile(segment, options)
        }
    };
    ((compile as $program:ident)) => {
        fn compile(
            &self,
            segment: &Segment,
            options: &CompileOptions<'_>,
        ) -> Result<Option<Arc<dyn Program>>, BackendError> {
            Ok(Some(Arc::new($program(compiled(&self.0, segment, options)?))))
        }
    };
}
pub(super) use handed_on;

/// A backend around another: the required methods and those that are named are handed on, others may be written out.
macro_rules! backend_around {
    ($(#[$doc:meta])* $name:ident: [$($method:tt)*] $($body:tt)*) => {
        $(#[$doc])*
        pub(super) struct $name(pub Arc<dyn Backend>);

        impl Backend for $name {
            fn name(&self) -> &str {
                self.0.name()
            }

            fn supports(&self, op: &Op) -> bool {
                self.0.supports(op)
            }

            fn execute(&self, op: &Op, inputs: &[&Tensor]) -> Result<Vec<Tensor>, BackendError> {
                self.0.execute(op, inputs)
            }

            $(handed_on!($method);)*
            $($body)*
        }
    };
}
pub(super) use backend_around;

backend_around! {
    /// Takes every node of F32 and integers whose op runs.
    WithoutSupportsNode: [pack execute_node space memory_hints compile]
}
backend_around! {
    /// Weights stay tensors, uploaded once on a device.
    WithoutPack: [supports_node execute_node space memory_hints]
}
backend_around! {
    /// Nodes run by `execute`, between downloads and uploads on a device. What is packed would not be understood.
    WithoutExecuteNode: [supports_plain_node space memory_hints]
}
backend_around! {
    /// On the host, which leaves level 0.
    WithoutSpace: [supports_plain_node memory_hints]
}
backend_around! {
    /// Knows nothing of its memory.
    WithoutMemoryHints: [supports_node pack execute_node space compile]
}
backend_around! {
    /// Interpreted.
    WithoutCompile: [supports_node pack execute_node space memory_hints]
}
backend_around! {
    /// Programs that say nothing of their weights.
    WithoutWeightBytes: [supports_node pack execute_node space memory_hints (compile as SilentOnWeights)]
}
backend_around! {
    /// Programs without a line about themselves.
    WithoutDescribe: [supports_node pack execute_node space memory_hints (compile as Nameless)]
}
backend_around! {
    /// Programs whose states count no bytes: those of segments without states.
    WithoutStateBytes: [supports_node pack execute_node space memory_hints (compile as Stateless)]
}

/// What the backend compiles, else the interpreter's program of it.
pub(super) fn compiled(
    backend: &Arc<dyn Backend>,
    segment: &Segment,
    options: &CompileOptions<'_>,
) -> Result<Arc<dyn Program>, BackendError> {
    match backend.compile(segment, options)? {
        Some(program) => Ok(program),
        None => InterpretedProgram::new(backend.clone(), Arc::new(segment.clone()), options),
    }
}

struct SilentOnWeights(Arc<dyn Program>);

impl Program for SilentOnWeights {
    fn open(self: Arc<Self>, options: &StateOptions) -> Result<Box<dyn ProgramState>, BackendError> {
        self.0.clone().open(options)
    }

    fn describe(&self) -> String {
        self.0.describe()
    }
}

struct Nameless(Arc<dyn Program>);

impl Program for Nameless {
    fn open(self: Arc<Self>, options: &StateOptions) -> Result<Box<dyn ProgramState>, BackendError> {
        self.0.clone().open(options)
    }

    fn weight_bytes(&self) -> usize {
        self.0.weight_bytes()
    }
}

struct Stateless(Arc<dyn Program>);

impl Program for Stateless {
    fn open(self: Arc<Self>, options: &StateOptions) -> Result<Box<dyn ProgramState>, BackendError> {
        Ok(Box::new(StatelessState(self.0.clone().open(options)?)))
    }

    fn weight_bytes(&self) -> usize {
        self.0.weight_bytes()
    }

    fn describe(&self) -> String {
        self.0.describe()
    }
}

struct StatelessState(Box<dyn ProgramState>);

impl ProgramState for StatelessState {
    fn run(&mut self, step: &Step<'_>) -> Result<Vec<Tensor>, BackendError> {
        self.0.run(step)
    }

    fn commit(&mut self) {
        self.0.commit();
    }

    fn rollback(&mut self) {
        self.0.rollback();
    }

    fn create(&mut self, seq: SeqId) -> Result<(), BackendError> {
        self.0.create(seq)
    }

    fn fork(&mut self, from: SeqId, to: SeqId, len: usize) -> Result<usize, BackendError> {
        self.0.fork(from, to, len)
    }

    fn truncate(&mut self, seq: SeqId, len: usize) -> usize {
        self.0.truncate(seq, len)
    }

    fn free(&mut self, seq: SeqId) {
        self.0.free(seq);
    }
}
