//! Every method with a default, in both states: left to the default of the trait, and overridden. A backend has one of
//! the two; the other is a wrapper around it. Answers are those of the oracle in both, and the same bits where the
//! wrapper changes nothing that is computed.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{own, without};
use crate::conformance::case::{Body, Case, Cx, Failure, List, Outcome};
use crate::conformance::op;
use crate::conformance::ran::{Programs, Ran};
use crate::conformance::segment::{Built, Check, FAMILIES, Given, Setup, given, support, takes, walk};
use crate::{Backend, DType};

/// A backend around another.
type Around = fn(Arc<dyn Backend>) -> Arc<dyn Backend>;

macro_rules! around {
    ($($name:ident)::*) => {
        |backend| Arc::new($($name)::*(backend))
    };
}

/// A method with a default.
struct Method {
    name: &'static str,
    without: Around,
    own: Around,
    /// Whether [default, override] gives the bits of the backend as it is.
    same_bits: [bool; 2],
    /// Counts only where segments are interpreted.
    interpret: bool,
    /// The default is for segments without states.
    stateless: bool,
    /// Decides how single nodes run.
    of_nodes: bool,
    /// What is missing when the default alone is wrong.
    cure: &'static str,
}

/// A method that changes nothing that is computed.
const SILENT: Method = Method {
    name: "",
    without: |backend| backend,
    own: around!(own::OwnCompile),
    same_bits: [true, true],
    interpret: false,
    stateless: false,
    of_nodes: false,
    cure: "what a backend tells of itself must not change its answers",
};

const METHODS: &[Method] = &[
    Method {
        name: "supports_node",
        without: around!(without::WithoutSupportsNode),
        own: around!(own::OwnSupportsNode),
        same_bits: [true, false],
        of_nodes: true,
        cure: "nodes of F32 and integers are those that the backend takes itself",
        ..SILENT
    },
    Method {
        name: "pack",
        without: around!(without::WithoutPack),
        own: around!(own::OwnPack),
        same_bits: [false, true],
        interpret: true,
        of_nodes: true,
        cure: "`execute_node` must also take weights that were not packed",
        ..SILENT
    },
    Method {
        name: "execute_node",
        without: around!(without::WithoutExecuteNode),
        own: around!(own::OwnExecuteNode),
        same_bits: [false, false],
        interpret: true,
        of_nodes: true,
        cure: "`execute` must give what `execute_node` gives",
        ..SILENT
    },
    Method {
        name: "space",
        without: around!(without::WithoutSpace),
        own: around!(own::OwnSpace),
        same_bits: [false, true],
        of_nodes: true,
        cure: "`execute` takes and returns host tensors, whatever the memory space",
        ..SILENT
    },
    Method {
        name: "memory_hints",
        without: around!(without::WithoutMemoryHints),
        own: around!(own::OwnMemoryHints),
        ..SILENT
    },
    Method {
        name: "compile",
        without: around!(without::WithoutCompile),
        same_bits: [false, true],
        cure: "`execute_node` must give what the compiled program gives",
        ..SILENT
    },
    Method {
        name: "weight_bytes",
        without: around!(without::WithoutWeightBytes),
        ..SILENT
    },
    Method {
        name: "describe",
        without: around!(without::WithoutDescribe),
        ..SILENT
    },
    Method {
        name: "state_bytes",
        without: around!(without::WithoutStateBytes),
        stateless: true,
        ..SILENT
    },
];

/// The two states of a method.
#[derive(Clone, Copy, PartialEq)]
enum State {
    Default,
    Override,
}

/// Segments that run in both states, and the dtype of their matrices.
const SEGMENTS: [(&str, &str, DType); 3] = [
    ("decoder", "decoder", DType::F32),
    ("decoder_q8_0", "decoder", DType::Q8_0),
    ("encoder", "encoder", DType::F32),
];

pub(super) fn add(list: &mut List) {
    for method in METHODS {
        for (state, called) in [(State::Default, "default"), (State::Override, "override")] {
            for (name, family, dtype) in SEGMENTS {
                let has_states = family == "decoder";
                let build = FAMILIES.iter().find(|(f, _)| *f == family).map(|(_, build)| *build);
                let Some(build) = build.filter(|_| !(method.stateless && state == State::Default && has_states)) else {
                    continue;
                };
                list.check("methods", format!("{}_{called}_{name}", method.name), move |cx| {
                    in_segment(cx, method, state, (family, build(dtype), dtype))
                });
            }
            if method.of_nodes {
                list.check("methods", format!("{}_{called}_nodes", method.name), move |cx| {
                    in_nodes(cx, method, state)
                });
            }
        }
    }
}

impl Method {
    fn around(&self, state: State, backend: &Arc<dyn Backend>) -> Arc<dyn Backend> {
        let make = match state {
            State::Default => self.without,
            State::Override => self.own,
        };
        make(backend.clone())
    }

    fn path(&self, state: State, path: &str) -> String {
        let name = self.name;
        match state {
            State::Default => format!("{path}, `{name}` left to the trait's default"),
            State::Override => format!("{path}, `{name}` overridden"),
        }
    }

    /// The failure that two runs make, of the wrapper and of the backend as it is.
    fn judge<T, U>(
        &self,
        state: State,
        wrapped: Result<T, Failure>,
        as_is: impl FnOnce() -> Result<U, Failure>,
    ) -> Result<(T, U), Failure> {
        let (name, cure) = (self.name, self.cure);
        let also = |failure: &Failure| failure.hint.as_ref().map_or(String::new(), |h| format!("; {h}"));
        match (wrapped, as_is()) {
            (Ok(wrapped), Ok(as_is)) => Ok((wrapped, as_is)),
            (Ok(_), Err(failure)) => {
                let hint = match state {
                    State::Default => {
                        format!("right with the trait's default of `{name}`, wrong with the backend's own")
                    }
                    State::Override => format!("right with another `{name}`, wrong with the backend's own"),
                };
                let hint = hint + &also(&failure);
                Err(failure.hint(Some(hint)))
            }
            (Err(failure), Ok(_)) => {
                let hint = match state {
                    State::Default => {
                        format!("right with the backend's own `{name}`, wrong with the trait's default: {cure}")
                    }
                    State::Override => format!("right as the backend is, wrong with another `{name}` around it"),
                };
                let (path, hint) = (self.path(state, &failure.path), hint + &also(&failure));
                Err(Failure { path, ..failure }.hint(Some(hint)))
            }
            (Err(failure), Err(_)) => {
                let path = self.path(state, &failure.path);
                Err(Failure { path, ..failure })
            }
        }
    }
}

fn with(cx: &Cx, backend: Arc<dyn Backend>) -> Cx {
    Cx {
        backend,
        name: cx.name.clone(),
        programs: Programs::default(),
    }
}

/// A segment through programs of the wrapper and of the backend.
fn in_segment(cx: &Cx, method: &Method, state: State, (family, built, dtype): (&str, Built, DType)) -> Outcome {
    let wrapped = with(cx, method.around(state, &cx.backend));
    if !support(&*cx.backend, &built).1 || !support(&*wrapped.backend, &built).1 {
        return Outcome::Unsupported(format!("{} runs no node of {family}", cx.backend.name()));
    }
    if let Some(node) = only_wrapped_takes(&wrapped, cx, &built) {
        let name = cx.backend.name();
        return Outcome::Unsupported(format!(
            "{name} runs no {node}, which the default of `supports_node` takes"
        ));
    }
    let setup = Setup {
        interpret: method.interpret,
        ..Setup::default()
    };
    let check = Check::new(family, built, setup, walk(family)).weights(dtype);
    let run = |cx: &Cx| given(cx, &check);
    let pair = method.judge(state, run(&wrapped), || run(cx));
    let (a, b) = match pair {
        Ok(pair) => pair,
        Err(failure) => return Outcome::Failed(failure),
    };
    let asked = |given: &Given| !matches!(given.ran, Ran::NotAsked(_));
    let same = a.bytes == b.bytes || !method.same_bits[state as usize] || asked(&a) != asked(&b);
    match same {
        true => Outcome::Passed,
        false => {
            let what = "the answers are within limits, but not the bits of the backend as it is";
            Outcome::Failed(Failure::new(family, method.path(state, "a program"), what))
        }
    }
}

/// A node that the wrapper takes and the backend refuses: an op that runs for some shapes and not for these.
fn only_wrapped_takes(wrapped: &Cx, cx: &Cx, built: &Built) -> Option<String> {
    let instrs = built
        .segment
        .instrs
        .iter()
        .filter(|i| !i.op.is_view() && !i.op.is_stateful());
    let taken = |backend: &dyn Backend, i| takes(backend, built, i);
    let mut refused = instrs.filter(|i| taken(&*wrapped.backend, i) && !taken(&*cx.backend, i));
    refused.next().map(|i| format!("`{}` ({})", i.node, i.op.kind()))
}

/// A case of every op and dtype, as a node of the wrapper and of the backend.
fn in_nodes(cx: &Cx, method: &Method, state: State) -> Outcome {
    let mut list = List::default();
    op::add_all(&mut list);
    let wrapped = with(cx, method.around(state, &cx.backend));
    let (mut seen, mut n_run) = (BTreeSet::new(), 0);
    for case @ Case { covers, body, .. } in &list.cases {
        let Body::Op(op) = body else { continue };
        let taken = |cx: &Cx| op.types_are_supported(&*cx.backend);
        if covers.is_none() || op.fails.is_some() || !taken(cx) || !taken(&wrapped) || !seen.insert(*covers) {
            continue;
        }
        let prepared = match op.prepare(&case.full_name()) {
            Ok(prepared) => prepared,
            Err(e) => return Outcome::Failed(Failure::new(op.subject(), "the oracle", e.to_string())),
        };
        n_run += 1;
        let run = |cx: &Cx| prepared.node_is_right(cx);
        if let Err(failure) = method.judge(state, run(&wrapped), || run(cx)) {
            return Outcome::Failed(failure);
        }
    }
    match n_run {
        0 => Outcome::Unsupported(format!("{} runs no node in this state", cx.backend.name())),
        _ => Outcome::Passed,
    }
}
