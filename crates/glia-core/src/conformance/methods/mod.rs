//! The defaulted methods of the trait, overridden or not: what each promises beside the answers of ops.

mod both;
mod own;
#[cfg(test)]
mod tests;
mod without;

use super::case::{Body, Case, Cx, Failure, List, Outcome, guarded};
use super::data::{Random, noise};
use super::op;
use super::segment::{self, Check, Setup, check};
use crate::{DType, MemorySpace, Tensor};

pub(super) fn add(list: &mut List) {
    both::add(list);
    list.check("methods", "name", |cx| {
        let name = cx.backend.name();
        let fine = !name.is_empty() && !name.contains(char::is_whitespace);
        outcome(cx, "name", fine, || format!("`{name}` is no short name without blanks"))
    });
    list.check("methods", "support_is_consistent", support_is_consistent);
    list.check("methods", "unsupported_ops_are_errors", unsupported_ops);
    list.check("methods", "memory_hints", |cx| {
        let hints = cx.backend.memory_hints();
        let fine = hints.limit_bytes == 0 || hints.max_alloc_bytes <= hints.limit_bytes;
        outcome(cx, "memory_hints", fine, || {
            format!("{hints:?}: one allocation is larger than the limit")
        })
    });
    list.check("methods", "space_is_constant", |cx| {
        let fine = (0..3).all(|_| cx.backend.space() == cx.backend.space());
        outcome(cx, "space", fine, || {
            "the memory space changes from call to call".to_owned()
        })
    });
    for &(family, build) in segment::FAMILIES {
        list.check("methods", format!("interpreted_{family}"), move |cx| {
            let setup = Setup {
                interpret: true,
                ..Setup::default()
            };
            check(cx, &Check::new(family, build(DType::F32), setup, segment::walk(family)))
        });
    }
    for &dtype in DType::ALL {
        list.check("methods", format!("round_trip_{dtype}"), move |cx| {
            round_trip(cx, dtype)
        });
    }
}

pub(super) fn outcome(cx: &Cx, method: &str, fine: bool, what: impl FnOnce() -> String) -> Outcome {
    match fine {
        true => Outcome::Passed,
        false => Outcome::Failed(Failure::new(&cx.name, method, what())),
    }
}

/// A node that is supported has an op that is.
fn support_is_consistent(cx: &Cx) -> Outcome {
    let mut list = List::default();
    op::add_all(&mut list);
    let mut wrong = None;
    for Case { body, .. } in &list.cases {
        let Body::Op(case) = body else { continue };
        if !cx.backend.supports(&case.op) && case.types_are_supported(&*cx.backend) {
            wrong = Some(case.subject());
        }
    }
    let fine = wrong.is_none();
    outcome(cx, "supports", fine, || {
        let subject = wrong.unwrap_or_default();
        format!("`supports` says no where `supports_node` says yes: {subject}")
    })
}

/// Bytes come back from the backend's memory as they went there.
fn round_trip(cx: &Cx, dtype: DType) -> Outcome {
    let mut random = Random::of(&cx.name);
    let k = dtype.block_elems().max(3);
    for shape in [vec![2, k], vec![0, k], vec![1], vec![]] {
        if dtype.is_quantized() && shape.len() < 2 {
            continue;
        }
        let host = noise(dtype, &shape, 1.0, &mut random);
        let back = guarded(|| cx.backend.download(&cx.backend.upload(&host)?));
        let what = match back {
            Ok(back) => {
                let same = (back.dtype(), back.shape()) == (host.dtype(), host.shape());
                if same && back.bytes().ok() == host.bytes().ok() {
                    continue;
                }
                format!(
                    "{} {} comes back as {} {}, or with other bytes",
                    dtype,
                    host.shape(),
                    back.dtype(),
                    back.shape()
                )
            }
            Err(e) if cx.backend.space() != MemorySpace::HOST && dtype.is_quantized() => {
                return Outcome::Unsupported(format!("{dtype} on the device: {e}"));
            }
            Err(e) => format!("{} {}: {e}", dtype, host.shape()),
        };
        return Outcome::Failed(Failure::new(&cx.name, "upload and download", what));
    }
    Outcome::Passed
}

/// `execute` of an op that `supports` refuses is an error, not an answer.
fn unsupported_ops(cx: &Cx) -> Outcome {
    let mut list = List::default();
    op::add_all(&mut list);
    for case in &list.cases {
        let Body::Op(op) = &case.body else { continue };
        if cx.backend.supports(&op.op) {
            continue;
        }
        let Ok(prepared) = op.prepare(&case.full_name()) else {
            continue;
        };
        let inputs: Vec<&Tensor> = prepared.inputs.iter().collect();
        match guarded(|| cx.backend.execute(&op.op, &inputs)) {
            Err(e) if !matches!(e.root(), crate::BackendError::Panicked { .. }) => {}
            Err(e) => return Outcome::Failed(Failure::new(op.subject(), "execute", e.to_string())),
            Ok(_) => {
                let what = "gave an answer to an op that `supports` refuses: return BackendError::unsupported";
                return Outcome::Failed(Failure::new(op.subject(), "execute", what));
            }
        }
    }
    Outcome::Passed
}
