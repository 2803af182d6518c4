//! Mistakes of ops that move elements, of conversions, and of anything that writes its output.

use super::{Fault, like, list, one, right, with_input};
use crate::{DType, Op, Tensor};

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        says: "tiled instead of repeated: [a, b] gives [a, b, a, b] instead of [a, a, b, b]",
        wrong: |op, inputs| {
            let (Op::Repeat { axis, n }, [x]) = (op, inputs) else {
                return None;
            };
            right(&Op::Concat { axis: *axis }, &vec![x.clone(); *n])
        },
    },
    Fault {
        says: "the inverse permutation",
        wrong: |op, inputs| {
            let Op::Permute { perm } = op else { return None };
            let mut inverse = vec![0; perm.len()];
            perm.iter().enumerate().for_each(|(i, &p)| inverse[p] = i);
            right(&Op::Permute { perm: inverse }, inputs)
        },
    },
    Fault {
        says: "nothing is moved: the elements are in the order of the input",
        wrong: |op, inputs| {
            let moves = matches!(
                op,
                Op::Transpose { .. } | Op::Permute { .. } | Op::Concat { .. } | Op::Slice { .. } | Op::Split { .. }
            );
            let bytes: Vec<u8> = inputs
                .iter()
                .filter(|_| moves)
                .flat_map(|t| t.bytes().unwrap_or_default())
                .copied()
                .collect();
            let mut at = 0;
            let place = |t: Tensor| {
                let piece = bytes.get(at..at + t.size_bytes())?;
                at += t.size_bytes();
                Tensor::from_bytes(t.dtype(), *t.shape(), piece).ok()
            };
            right(op, inputs).filter(|_| moves)?.into_iter().map(place).collect()
        },
    },
    Fault {
        says: "the start of the slice is ignored",
        wrong: |op, inputs| slice(op, inputs, |start| start.checked_sub(start)),
    },
    Fault {
        says: "the start of the slice is off by one",
        wrong: |op, inputs| slice(op, inputs, |start| start.checked_sub(1)),
    },
    Fault {
        says: "the pieces are joined in reverse order",
        wrong: |op, inputs| {
            let Op::Concat { .. } = op else { return None };
            right(op, &inputs.iter().rev().cloned().collect::<Vec<_>>())
        },
    },
    Fault {
        says: "every piece is cut from the start",
        wrong: |op, inputs| {
            let (Op::Split { axis, sizes }, [x]) = (op, inputs) else {
                return None;
            };
            let piece = |&size: &usize| {
                let cut = Op::Slice {
                    axis: *axis,
                    start: 0,
                    end: Some(size),
                };
                one(cut, std::slice::from_ref(x))
            };
            sizes.iter().map(piece).collect()
        },
    },
    Fault {
        says: "ids are ignored: row 0 is taken for all",
        wrong: |op, inputs| picked(op, inputs, |_, _, _| 0.0),
    },
    Fault {
        says: "ids are ignored: the rows are taken from the start",
        wrong: |op, inputs| picked(op, inputs, |i, _, n| (i % n) as f64),
    },
    Fault {
        says: "ids are off by one",
        wrong: |op, inputs| picked(op, inputs, |_, id, n| (id + 1.0) % n as f64),
    },
    Fault {
        says: "truncation: numbers are rounded towards zero instead of to nearest even",
        wrong: |op, inputs| cast(op, inputs, f64::trunc),
    },
    Fault {
        says: "ties are rounded away from zero instead of to even",
        wrong: |op, inputs| cast(op, inputs, f64::round),
    },
];

/// Guesses that any op's output may fit: taken last, and only where several elements are wrong.
pub(super) const GUESSES: &[Fault] = &[
    Fault {
        says: "the output holds zeros: it is not written, or not completely",
        wrong: |op, inputs| {
            let zeros = |t: &Tensor| Tensor::zeros(t.dtype(), *t.shape()).ok();
            right(op, inputs)?.iter().map(zeros).collect()
        },
    },
    Fault {
        says: "the output is the first input, unchanged",
        wrong: |op, inputs| {
            let (want, x) = (right(op, inputs)?, inputs.first()?);
            let same = want.len() == 1 && (want[0].dtype(), want[0].shape()) == (x.dtype(), x.shape());
            same.then(|| vec![x.clone()])
        },
    },
    Fault {
        says: "everything is one element too early",
        wrong: |op, inputs| shifted(op, inputs, |all| all.rotate_left(1)),
    },
    Fault {
        says: "everything is one element too late",
        wrong: |op, inputs| shifted(op, inputs, |all| all.rotate_right(1)),
    },
    Fault {
        says: "the wrong sign",
        wrong: |op, inputs| shifted(op, inputs, |all| all.iter_mut().for_each(|v| *v = -*v)),
    },
    Fault {
        says: "every row is the first row",
        wrong: |op, inputs| {
            let last = right(op, inputs)?.first()?.shape().last_dim();
            let want = right(op, inputs)?.into_iter().next()?;
            let all = list(&want)?;
            let first: Vec<f64> = all.get(..last)?.iter().copied().cycle().take(all.len()).collect();
            (!want.dtype().is_quantized()).then(|| vec![like(&want, &first)])
        },
    },
];

fn slice(op: &Op, inputs: &[Tensor], begin: fn(usize) -> Option<usize>) -> Option<Vec<Tensor>> {
    let (Op::Slice { axis, start, end }, [x]) = (op, inputs) else {
        return None;
    };
    let size = end.unwrap_or(x.shape()[*axis]).checked_sub(*start)?;
    let start = begin(*start).filter(|s| s != start)?;
    right(
        &Op::Slice {
            axis: *axis,
            start,
            end: Some(start + size),
        },
        inputs,
    )
}

/// Other ids, by (place, id, rows).
fn picked(op: &Op, inputs: &[Tensor], pick: fn(usize, f64, usize) -> f64) -> Option<Vec<Tensor>> {
    let (at, n) = match (op, inputs) {
        (Op::TokenEmbed, [_, table]) => (0, *table.shape().first()?),
        (Op::Gather { axis }, [x, _]) => (1, *x.shape().get(*axis)?),
        _ => return None,
    };
    let ids: Vec<f64> = list(&inputs[at])?
        .iter()
        .enumerate()
        .map(|(i, &id)| pick(i, id, n.max(1)))
        .collect();
    with_input(op, inputs, at, like(&inputs[at], &ids))
}

fn cast(op: &Op, inputs: &[Tensor], round: fn(f64) -> f64) -> Option<Vec<Tensor>> {
    let (Op::Cast { to }, [x]) = (op, inputs) else {
        return None;
    };
    let whole: Vec<f64> = list(x).filter(|_| to.is_int())?.into_iter().map(round).collect();
    right(op, &[super::shaped(DType::F64, x.shape(), &whole)])
}

/// The right answer with its floats changed.
fn shifted(op: &Op, inputs: &[Tensor], change: fn(&mut [f64])) -> Option<Vec<Tensor>> {
    let change = |t: Tensor| {
        let mut all = list(&t)?;
        change(&mut all);
        (t.dtype().is_float()).then(|| like(&t, &all)).or(Some(t))
    };
    right(op, inputs)?.into_iter().map(change).collect()
}
