//! The cache op by itself: all rows so far come back, in order, as the dtype of the cache keeps them.

use super::case::{Cx, List, Outcome};
use super::segment::{Action, Check, SegmentBuilder, Setup, Slots, Wanted, check};
use crate::{DType, Dim, NodeView, Op, ValueType};

/// Rows of keys and of values.
type Rows = (&'static [usize], &'static [usize]);

pub(super) fn add(list: &mut List) {
    let shapes: [(&str, Rows); 5] = [
        ("heads", (&[2, 32], &[2, 32])),
        ("one_head", (&[1, 8], &[1, 8])),
        ("odd", (&[3, 5], &[3, 7])),
        ("large", (&[8, 128], &[8, 64])),
        ("flat", (&[6], &[6])),
    ];
    for (name, rows) in shapes {
        for dtype in [DType::F32, DType::F16] {
            let covers = ("kv_cache", dtype);
            list.check_for(covers, format!("{name}_{dtype}"), move |cx| {
                all_rows(cx, dtype, DType::F32, rows)
            });
        }
    }
    for kv in [DType::F16, DType::Q8_0] {
        let rows = shapes[0].1;
        list.check_for(("kv_cache", DType::F32), format!("kept_as_{kv}"), move |cx| {
            all_rows(cx, DType::F32, kv, rows)
        });
    }
}

fn all_rows(cx: &Cx, dtype: DType, kv: DType, (k, v): Rows) -> Outcome {
    let mut b = SegmentBuilder::default();
    let row = |row: &[usize]| {
        [Dim::T]
            .into_iter()
            .chain(row.iter().map(|&d| d.into()))
            .collect::<Vec<Dim>>()
    };
    let types = [ValueType::new(dtype, row(k)), ValueType::new(dtype, row(v))];
    let outputs = Op::KvCache.infer(&types).unwrap_or_default();
    let node = NodeView::new("cache", &Op::KvCache, &types, &outputs, &[false; 2]);
    if !cx.backend.supports_node(&node) {
        return Outcome::Unsupported(format!(
            "{} leaves caches of {} to the interpreter",
            cx.backend.name(),
            types[0]
        ));
    }
    let inputs = [b.input("k", dtype, row(k)), b.input("v", dtype, row(v))];
    let cache = b.node("cache", Op::KvCache, &inputs);
    let built = b.finish(&cache, Slots::Shared);
    let setup = Setup { kv, ..Setup::default() };
    let step = |tokens| Action::Step(vec![(1, tokens)], Wanted::All);
    let script = vec![
        Action::Create(1),
        step(0..3),
        step(3..4),
        step(4..70),
        Action::Truncate(1, 5),
        step(100..130),
        Action::Fork(1, 2, 20),
        Action::Step(vec![(2, 200..201)], Wanted::All),
        step(130..131),
    ];
    let says = "rows of a cache come back old first, then new, as they were written";
    check(
        cx,
        &Check::new("kv_cache", built, setup, script).symptom(says).any_node(),
    )
}
