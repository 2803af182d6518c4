//! Attention behind 2048 tokens: one query as in decoding, 64 as in prefill, over caches of each dtype.

mod common;

use std::collections::HashMap;

use common::{Lab, Work};
use criterion::Criterion;
use glia_core::{DType, Dim, Op, Sdpa, Sizes, ValueType};
use glia_ir::{GraphExecutor, Session};

const DEPTH: usize = 2048;

/// Query heads, K/V heads, elements of a head.
#[derive(Clone, Copy)]
struct Heads(usize, usize, usize);

fn make(lab: &Lab, Heads(h, kv, d): Heads, dtype: DType) -> GraphExecutor {
    lab.executor(dtype, HashMap::new(), |b| {
        let heads = |n: usize| ValueType::new(DType::F32, [Dim::T, n.into(), d.into()]);
        let (q, k, v) = (
            b.input("q", heads(h))?,
            b.input("k", heads(kv))?,
            b.input("v", heads(kv))?,
        );
        let (k, v) = b.kv_cache("cache", k, v)?;
        let sdpa = Sdpa {
            scale: 1.0 / (d as f32).sqrt(),
            causal: true,
            window: None,
            softcap: None,
            mask: false,
            sinks: false,
        };
        b.sdpa("sdpa", [q, k, v], &[], sdpa)
    })
}

/// What the append and the attention of `n_rows` cost.
fn work(executor: &GraphExecutor, n_rows: usize) -> Work {
    let sizes = Sizes {
        t: n_rows,
        p: DEPTH,
        r: n_rows,
        n: 1,
        s: 0,
    };
    let (mut bytes, mut ops) = (0, 0);
    for region in &executor.plan().regions {
        for instr in region
            .segment
            .instrs
            .iter()
            .filter(|i| !matches!(i.op, Op::Slice { .. }))
        {
            let kv = executor.config().kv_dtypes;
            let cost = region.segment.cost(instr, &sizes, &[sizes], kv).expect("a small step");
            bytes += cost.bytes();
            ops += cost.ops;
        }
    }
    Work {
        bytes,
        ops,
        int8: false,
    }
}

fn attention(c: &mut Criterion, lab: &Lab) {
    for heads in [Heads(9, 3, 64), Heads(32, 8, 64), Heads(12, 2, 128)] {
        let Heads(h, kv, d) = heads;
        let mut group = c.benchmark_group(format!("attention-{h}x{d}-over-{kv}"));
        for dtype in [DType::F16, DType::F32, DType::Q8_0] {
            let executor = make(lab, heads, dtype);
            for n_rows in [1, 64] {
                let rows = |n: usize| {
                    let of = |name, heads: usize| (name, common::tensor(&[n, heads, d]));
                    [of("q", h), of("k", kv), of("v", kv)]
                };
                let step = rows(n_rows);
                let mut session: Option<Session> = None;
                let name = format!("{dtype}-rows-{n_rows}");
                lab.measure(&mut group, &name, work(&executor, n_rows), || {
                    let session = session.get_or_insert_with(|| {
                        let mut session = executor.session().expect("a sequence");
                        for _ in 0..DEPTH / common::MAX_ROWS {
                            session.run(&rows(common::MAX_ROWS)).expect("a step");
                        }
                        session
                    });
                    session.run(&step).expect("a step");
                    session.truncate(DEPTH);
                });
            }
        }
        group.finish();
    }
}

fn main() {
    let mut criterion = Lab::criterion();
    attention(&mut criterion, &Lab::new(0));
    criterion.final_summary();
}
