//! One backend used from four threads at once gives the answers that it gives alone.

use std::thread;

use super::case::{Body, Cx, Failure, List, Outcome};
use super::op;
use super::segment::{Action, Event, Rig, Setup, Wanted, attention_layer, support};
use crate::{BackendError, Tensor};

const N_THREADS: usize = 4;

/// Ops whose cases run at once; the names begin with these.
const OPS: [&str; 8] = [
    "matmul",
    "add",
    "silu",
    "rms_norm",
    "softmax",
    "sdpa",
    "rope",
    "token_embed",
];

pub(super) fn add(list: &mut List) {
    for name in OPS {
        list.check("threads", format!("{name}_from_four"), move |cx| ops(cx, name));
    }
    list.check("threads", "programs_from_four", programs);
}

fn failed(cx: &Cx, path: &str, what: String) -> Outcome {
    let hint = "calls that run at once share memory (a scratch buffer, a pipeline's arguments) without a lock";
    Outcome::Failed(Failure::new(&cx.name, path, what).hint(Some(hint.to_owned())))
}

fn same(a: &[Tensor], b: &[Tensor]) -> bool {
    let bytes = |t: &Tensor| t.bytes().map(<[u8]>::to_vec).ok();
    a.iter().map(bytes).eq(b.iter().map(bytes))
}

fn ops(cx: &Cx, kind: &str) -> Outcome {
    let mut list = List::default();
    op::add_all(&mut list);
    let cases: Vec<_> = list
        .cases
        .iter()
        .filter(|c| c.group == kind)
        .filter_map(|c| match &c.body {
            Body::Op(case) if case.fails.is_none() && case.types_are_supported(&*cx.backend) => {
                Some((c.full_name(), case))
            }
            _ => None,
        })
        .take(40)
        .collect();
    if cases.is_empty() {
        return Outcome::Unsupported(format!("{} does not run {kind}", cx.backend.name()));
    }
    let prepared: Result<Vec<_>, BackendError> = cases.iter().map(|(name, case)| case.prepare(name)).collect();
    let prepared = match prepared {
        Ok(prepared) => prepared,
        Err(e) => return failed(cx, "the oracle", e.to_string()),
    };
    let alone: Vec<_> = prepared.iter().map(|p| p.by_node(cx)).collect();
    let wrong = thread::scope(|scope| {
        let (prepared, alone, cases) = (&prepared, &alone, &cases);
        let threads: Vec<_> = (0..N_THREADS)
            .map(|t| {
                scope.spawn(move || {
                    for round in 0..3 {
                        for i in 0..prepared.len() {
                            // Every thread begins elsewhere, so that different ops meet.
                            let i = (i + t * prepared.len() / N_THREADS + round) % prepared.len();
                            match (&alone[i], prepared[i].by_node(cx)) {
                                (Ok(a), Ok(b)) if same(a, &b) => {}
                                (Err(_), Err(_)) => {}
                                (_, Err(e)) => return Some(format!("{}: {e}", cases[i].1.subject())),
                                _ => return Some(format!("{} gives another answer than alone", cases[i].1.subject())),
                            }
                        }
                    }
                    None
                })
            })
            .collect();
        let ends = threads.into_iter().map(|t| t.join());
        ends.map(|end| end.unwrap_or_else(|p| Some(BackendError::panicked(&*p).to_string())))
            .collect::<Vec<_>>()
    });
    match wrong.into_iter().flatten().next() {
        None => Outcome::Passed,
        Some(what) => failed(cx, "execute_node from four threads", what),
    }
}

/// Four states of one program each, stepping at once.
fn programs(cx: &Cx) -> Outcome {
    let built = attention_layer(None);
    if !support(&*cx.backend, &built).1 {
        return Outcome::Unsupported(format!("{} runs no node of attention", cx.backend.name()));
    }
    let script = |from: i32| -> Vec<Action> {
        let step = |tokens| Action::Step(vec![(1, tokens)], Wanted::All);
        let mut script = vec![Action::Create(1), step(from..from + 70)];
        script.extend((0..12).map(|i| step(from + 70 + i..from + 71 + i)));
        script
    };
    let run = |from: i32| -> Result<Vec<Tensor>, String> {
        let mut rig = Rig::new(&cx.backend, &built, Setup::default()).map_err(|e| e.to_string())?;
        cx.programs.note(&rig.ran);
        let mut all = Vec::new();
        for action in script(from) {
            if let Event::Outputs(outputs) = rig.act(&action)? {
                all.extend(outputs);
            }
        }
        Ok(all)
    };
    let alone: Result<Vec<_>, String> = (0..N_THREADS as i32).map(|t| run(t * 100)).collect();
    let alone = match alone {
        Ok(alone) => alone,
        Err(what) => return failed(cx, "a program", what),
    };
    let at_once = thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..N_THREADS as i32)
            .map(|t| scope.spawn(move || run(t * 100)))
            .collect();
        let ends = threads.into_iter().map(|t| t.join());
        ends.map(|end| end.unwrap_or_else(|p| Err(BackendError::panicked(&*p).to_string())))
            .collect::<Vec<_>>()
    });
    for (t, (alone, at_once)) in alone.iter().zip(at_once).enumerate() {
        match at_once {
            Ok(got) if same(alone, &got) => {}
            Ok(_) => {
                return failed(
                    cx,
                    "programs from four threads",
                    format!("thread {t} got another answer than alone"),
                );
            }
            Err(what) => return failed(cx, "programs from four threads", what),
        }
    }
    Outcome::Passed
}
