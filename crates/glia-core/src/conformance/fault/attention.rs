//! Mistakes of rotary embedding and attention.

use super::{Fault, like, list, one, right, shaped, with_input};
use crate::{DType, Op, Rope, RopePairing, Sdpa, Shape, Tensor};

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        says: "wrong head grouping: query head h reads K/V head h % n_kv_heads instead of h / (n_heads / n_kv_heads)",
        wrong: |op, inputs| regrouped(op, inputs, |h, n_kv| h % n_kv),
    },
    Fault {
        says: "wrong head grouping: every query head reads K/V head 0",
        wrong: |op, inputs| regrouped(op, inputs, |_, _| 0),
    },
    Fault {
        says: "wrong head grouping: query head h reads the K/V heads from the last to the first",
        wrong: |op, inputs| regrouped(op, inputs, |h, n_kv| (2 * n_kv - 1 - h % n_kv) % n_kv),
    },
    Fault {
        says: "an off-by-one window: one key too many is seen (i - j <= window instead of i - j < window)",
        wrong: |op, inputs| sdpa(op, inputs, |s| s.window = s.window.map(|w| w + 1)),
    },
    Fault {
        says: "an off-by-one window: one key too few is seen",
        wrong: |op, inputs| sdpa(op, inputs, |s| s.window = s.window.map(|w| w.saturating_sub(1))),
    },
    Fault {
        says: "the window is ignored",
        wrong: |op, inputs| sdpa(op, inputs, |s| s.window = None),
    },
    Fault {
        says: "no causal mask: queries see later keys",
        wrong: |op, inputs| sdpa(op, inputs, |s| s.causal = false),
    },
    Fault {
        says: "a causal mask that forgets the past: query i sees keys 0..=i of the sequence instead of 0..=i + past",
        wrong: |op, inputs| masked(op, inputs, |i, j, _| j <= i),
    },
    Fault {
        says: "an off-by-one causal mask: a query does not see its own key",
        wrong: |op, inputs| masked(op, inputs, |i, j, past| j < i + past),
    },
    Fault {
        says: "an off-by-one causal mask: a query sees the key behind its own",
        wrong: |op, inputs| {
            let Op::Sdpa(causal) = op else { return None };
            let open = Op::Sdpa(Sdpa {
                causal: false,
                ..causal.clone()
            });
            causal
                .causal
                .then(|| masked(&open, inputs, |i, j, past| j <= i + past + 1))?
        },
    },
    Fault {
        says: "a stale KV row, or a missing one: the keys of this step are not seen, only those before it",
        wrong: |op, inputs| masked(op, inputs, |_, j, past| j < past),
    },
    Fault {
        says: "a stale KV row, or a missing one: the last key is not seen",
        wrong: |op, inputs| {
            matches!(op, Op::Sdpa(_)).then_some(())?;
            let (q, k) = (inputs.first()?, inputs.get(1)?);
            let new = q.shape()[0];
            match new {
                0 => None,
                _ => {
                    let mut mask = vec![0.0; new * k.shape()[0]];
                    mask.iter_mut()
                        .skip(k.shape()[0].checked_sub(1)?)
                        .step_by(k.shape()[0])
                        .for_each(|m| *m = f64::NEG_INFINITY);
                    with_mask(op, inputs, &mask)
                }
            }
        },
    },
    Fault {
        says: "a stale KV row: the last row of keys and values is that of the token before",
        wrong: |op, inputs| {
            let n = inputs.get(1)?.shape().first()?.checked_sub(2)?;
            let before = |t: &Tensor| {
                one(
                    Op::Slice {
                        axis: 0,
                        start: n,
                        end: Some(n + 1),
                    },
                    std::slice::from_ref(t),
                )
            };
            last_row(op, inputs, &before)
        },
    },
    Fault {
        says: "a stale KV row, or one that was never written: the last row of keys and values is zero",
        wrong: |op, inputs| {
            let row = |t: &Tensor| {
                one(
                    Op::Slice {
                        axis: 0,
                        start: 0,
                        end: Some(1),
                    },
                    std::slice::from_ref(t),
                )
            };
            let zero = |t: &Tensor| row(t).map(|r| like(&r, &vec![0.0; r.n_elems()]));
            last_row(op, inputs, &zero)
        },
    },
    Fault {
        says: "the first key is not seen",
        wrong: |op, inputs| masked(op, inputs, |_, j, _| j > 0),
    },
    Fault {
        says: "the scale of the scores is ignored",
        wrong: |op, inputs| sdpa(op, inputs, |s| s.scale = 1.0),
    },
    Fault {
        says: "the soft-cap is ignored",
        wrong: |op, inputs| sdpa(op, inputs, |s| s.softcap = None),
    },
    Fault {
        says: "the mask is ignored",
        wrong: |op, inputs| {
            let Op::Sdpa(sdpa) = op else { return None };
            sdpa.mask.then_some(())?;
            let mask = inputs.get(3)?;
            with_input(op, inputs, 3, like(mask, &vec![0.0; mask.n_elems()]))
        },
    },
    Fault {
        says: "the mask of the first head is used for all heads",
        wrong: |op, inputs| {
            let mask = inputs
                .get(3)
                .filter(|m| matches!(op, Op::Sdpa(s) if s.mask) && m.shape().rank() == 3)?;
            let (all, n) = (list(mask)?, mask.shape()[1] * mask.shape()[2]);
            let first: Vec<f64> = all.get(..n)?.iter().copied().cycle().take(all.len()).collect();
            with_input(op, inputs, 3, like(mask, &first))
        },
    },
    Fault {
        says: "the sinks are ignored",
        wrong: |op, inputs| {
            let Op::Sdpa(sdpa) = op else { return None };
            // With one key, a sink that has its value gives the same.
            (sdpa.sinks && inputs.get(1)?.shape()[0] > 1).then_some(())?;
            let without = Op::Sdpa(Sdpa {
                sinks: false,
                ..sdpa.clone()
            });
            right(&without, &inputs[..inputs.len().checked_sub(1)?])
        },
    },
    Fault {
        says: "the sink of the first head is used for all heads",
        wrong: |op, inputs| {
            let sinks = inputs.last().filter(|_| matches!(op, Op::Sdpa(s) if s.sinks))?;
            let first = *list(sinks)?.first()?;
            with_input(op, inputs, inputs.len() - 1, like(sinks, &vec![first; sinks.n_elems()]))
        },
    },
    Fault {
        says: "keys and values are exchanged",
        wrong: |op, inputs| {
            matches!(op, Op::Sdpa(_)).then_some(())?;
            let mut swapped = inputs.to_vec();
            swapped.swap(1, 2);
            right(op, &swapped)
        },
    },
    Fault {
        says: "the other pairing: NeoX and interleaved are exchanged",
        wrong: |op, inputs| {
            rope(op, inputs, |r| {
                r.pairing = match r.pairing {
                    RopePairing::NeoX => RopePairing::Interleaved,
                    RopePairing::Interleaved => RopePairing::NeoX,
                }
            })
        },
    },
    Fault {
        says: "the scale of the rotation is ignored",
        wrong: |op, inputs| rope(op, inputs, |r| r.scale = 1.0),
    },
    Fault {
        says: "the long frequency table is never used",
        wrong: |op, inputs| rope(op, inputs, |r| r.long_from = r.long_from.map(|_| usize::MAX >> 12)),
    },
    Fault {
        says: "the long frequency table is used too early",
        wrong: |op, inputs| rope(op, inputs, |r| r.long_from = r.long_from.map(|_| 0)),
    },
    Fault {
        says: "positions are ignored: nothing is rotated",
        wrong: |op, inputs| moved(op, inputs, |_, _| 0.0),
    },
    Fault {
        says: "positions are ignored: rows are counted from zero",
        wrong: |op, inputs| moved(op, inputs, |i, _| i as f64),
    },
    Fault {
        says: "positions are off by one",
        wrong: |op, inputs| moved(op, inputs, |_, p| p + 1.0),
    },
    Fault {
        says: "every row is rotated by the position of the first",
        wrong: |op, inputs| {
            let first = *list(inputs.get(1).filter(|_| matches!(op, Op::Rope(_)))?)?.first()?;
            let positions = &inputs[1];
            with_input(op, inputs, 1, like(positions, &vec![first; positions.n_elems()]))
        },
    },
    Fault {
        says: "the rotation goes the other way round",
        wrong: |op, inputs| {
            let freqs = inputs.get(2).filter(|_| matches!(op, Op::Rope(_)))?;
            let turned: Vec<f64> = list(freqs)?.iter().map(|f| -f).collect();
            with_input(op, inputs, 2, like(freqs, &turned))
        },
    },
    Fault {
        says: "elements beyond the rotated ones are zero instead of passing through",
        wrong: |op, inputs| {
            let rot = 2 * inputs.get(2).filter(|_| matches!(op, Op::Rope(_)))?.n_elems();
            let y = right(op, inputs)?.into_iter().next()?;
            let (mut all, d) = (list(&y)?, y.shape().last_dim());
            all.iter_mut()
                .enumerate()
                .filter(|(i, _)| i % d >= rot)
                .for_each(|(_, v)| *v = 0.0);
            Some(vec![like(&y, &all)])
        },
    },
];

fn sdpa(op: &Op, inputs: &[Tensor], change: fn(&mut Sdpa)) -> Option<Vec<Tensor>> {
    let Op::Sdpa(sdpa) = op else { return None };
    let mut changed = sdpa.clone();
    change(&mut changed);
    (changed != *sdpa).then(|| right(&Op::Sdpa(changed), inputs))?
}

fn rope(op: &Op, inputs: &[Tensor], change: fn(&mut Rope)) -> Option<Vec<Tensor>> {
    let Op::Rope(rope) = op else { return None };
    let mut changed = rope.clone();
    change(&mut changed);
    (changed != *rope).then(|| right(&Op::Rope(changed), inputs))?
}

/// Other positions, by row and position.
fn moved(op: &Op, inputs: &[Tensor], change: fn(usize, f64) -> f64) -> Option<Vec<Tensor>> {
    let positions = inputs.get(1).filter(|_| matches!(op, Op::Rope(_)))?;
    let all: Vec<f64> = list(positions)?
        .iter()
        .enumerate()
        .map(|(i, &p)| change(i, p))
        .collect();
    with_input(op, inputs, 1, like(positions, &all))
}

/// Attention whose last row of keys and values is another.
fn last_row(op: &Op, inputs: &[Tensor], other: &dyn Fn(&Tensor) -> Option<Tensor>) -> Option<Vec<Tensor>> {
    let (Op::Sdpa(_), [q, k, v, ..]) = (op, inputs) else {
        return None;
    };
    let n = k.shape()[0].checked_sub(1).filter(|n| *n > 0 && q.shape()[0] > 0)?;
    let mut all = inputs.to_vec();
    for (i, x) in [(1, k), (2, v)] {
        let before = one(
            Op::Slice {
                axis: 0,
                start: 0,
                end: Some(n),
            },
            std::slice::from_ref(x),
        )?;
        all[i] = one(Op::Concat { axis: 0 }, &[before, other(x)?])?;
    }
    right(op, &all)
}

/// K and V with a head per query head, picked by (query head, K/V heads).
fn regrouped(op: &Op, inputs: &[Tensor], pick: fn(usize, usize) -> usize) -> Option<Vec<Tensor>> {
    let (Op::Sdpa(_), [q, k, v, ..]) = (op, inputs) else {
        return None;
    };
    let (n_heads, n_kv) = (q.shape()[1], k.shape()[1]);
    let heads: Vec<i32> = (0..n_heads).map(|h| pick(h, n_kv) as i32).collect();
    let heads = Tensor::from_i32([n_heads], &heads).ok()?;
    let mut all = inputs.to_vec();
    for (i, x) in [(1, k), (2, v)] {
        all[i] = one(Op::Gather { axis: 1 }, &[x.clone(), heads.clone()])?;
    }
    right(op, &all)
}

/// Attention under one rule more: (query, key, past) are seen. A causal op stays causal.
fn masked(op: &Op, inputs: &[Tensor], seen: fn(usize, usize, usize) -> bool) -> Option<Vec<Tensor>> {
    let (Op::Sdpa(_), [q, k, ..]) = (op, inputs) else {
        return None;
    };
    let (tq, tk) = (q.shape()[0], k.shape()[0]);
    let past = tk.checked_sub(tq)?;
    let rule = |n: usize| {
        if seen(n / tk, n % tk, past) {
            0.0
        } else {
            f64::NEG_INFINITY
        }
    };
    with_mask(op, inputs, &(0..tq * tk).map(rule).collect::<Vec<f64>>())
}

/// Attention with a mask `[Tq, Tk]` more.
fn with_mask(op: &Op, inputs: &[Tensor], more: &[f64]) -> Option<Vec<Tensor>> {
    let (Op::Sdpa(sdpa), [q, k, ..]) = (op, inputs) else {
        return None;
    };
    let (tq, tk) = (q.shape()[0], k.shape()[0]);
    let heads = if sdpa.mask && inputs.get(3)?.shape().rank() == 3 {
        q.shape()[1]
    } else {
        1
    };
    let old = if sdpa.mask {
        list(inputs.get(3)?)?
    } else {
        vec![0.0; tq * tk]
    };
    let mask: Vec<f64> = old.iter().zip(more.iter().cycle()).map(|(a, b)| a + b).collect();
    let shape = if heads > 1 {
        Shape::new(&[heads, tq, tk])
    } else {
        Shape::new(&[tq, tk])
    };
    let mask = shaped(DType::F32, &shape, &mask);
    let mut all = inputs.to_vec();
    match sdpa.mask {
        true => all[3] = mask,
        false => all.insert(3, mask),
    }
    right(
        &Op::Sdpa(Sdpa {
            mask: true,
            ..sdpa.clone()
        }),
        &all,
    )
}
