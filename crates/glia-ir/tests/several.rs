//! Several backends in one graph: what crosses their borders, in which order their programs are called, and that a
//! step on all of them is all or nothing, whichever call of whichever backend fails.

mod toy;

use std::sync::Arc;

use glia_core::testing::{Call, Fault, Journal, NullBackend, RecordingBackend};
use glia_core::{Backend, MemorySpace};
use glia_ir::{ExecConfig, ExecError, GraphExecutor, Session};
use toy::{Toy, floats, ids, model, prepare, weights};

const HOST: Toy = Toy {
    name: "host",
    only: &[],
    space: 0,
};
const DEVICE: Toy = Toy {
    name: "device",
    only: &["sdpa", "add"],
    space: 7,
};

/// Two backends that write into one journal, and an executor on them.
struct Pair {
    journal: Journal,
    device: Arc<RecordingBackend>,
    host: Arc<RecordingBackend>,
    executor: GraphExecutor,
}

impl Pair {
    /// `device` is preferred, `host` runs the rest.
    fn of(layers: usize, journal: Journal, device: RecordingBackend, host: RecordingBackend) -> Pair {
        let (device, host) = (Arc::new(device), Arc::new(host));
        let config = ExecConfig::default().with_max_step_tokens(4).with_max_context(32);
        let executor = prepare(model(layers, true), vec![device.clone(), host.clone()], config);
        Pair {
            journal,
            device,
            host,
            executor,
        }
    }

    /// Two layers that are computed.
    fn toys() -> Pair {
        let journal = Journal::new();
        let recorded = |toy: Toy| {
            let backend = RecordingBackend::new(Arc::new(toy));
            backend.writing_to(&journal).with_programs()
        };
        let (device, host) = (recorded(DEVICE), recorded(HOST));
        Pair::of(2, journal, device, host)
    }

    /// One layer that is not: attention in a memory of its own, everything else on the host.
    fn null() -> Pair {
        let device = NullBackend::new().named("device").in_space(MemorySpace(7));
        let device = device.supporting_kinds(&["sdpa", "kv_cache", "reshape"]);
        let journal = Journal::new();
        let recorded = |backend: NullBackend| recorded(backend.compiling(), &journal);
        let (device, host) = (recorded(device), recorded(NullBackend::new().named("host")));
        Pair::of(1, journal, device, host)
    }
}

fn recorded(backend: NullBackend, journal: &Journal) -> RecordingBackend {
    RecordingBackend::new(Arc::new(backend)).writing_to(journal)
}

fn logits(session: &mut Session, tokens: &[i32]) -> Result<Vec<f32>, ExecError> {
    let outputs = session.run(&[("input_ids", ids(tokens))])?;
    Ok(floats(outputs.get("logits").unwrap()))
}

#[test]
fn the_calls_of_a_step_in_their_order() {
    let pair = Pair::null();
    let mut session = pair.executor.session().unwrap();
    insta::assert_snapshot!("prepared", pair.journal.take().join("\n"));
    logits(&mut session, &[1, 2, 3]).unwrap();
    insta::assert_snapshot!("a_step", pair.journal.take().join("\n"));
    let mut fork = session.fork().unwrap();
    fork.truncate(1);
    drop(fork);
    insta::assert_snapshot!("a_fork", pair.journal.take().join("\n"));
}

#[test]
fn a_value_crosses_a_border_once_and_no_weight_does_in_a_step() {
    let pair = Pair::null();
    let mut session = pair.executor.session().unwrap();
    logits(&mut session, &[1, 2, 3]).unwrap();
    pair.journal.take();
    for tokens in [&[4][..], &[5, 6]] {
        logits(&mut session, tokens).unwrap();
        let heads = format!("device: upload f32[{}, 2, 2]", tokens.len());
        // Queries, keys and values go over. What attention makes of them only the host reads: the program returns it
        // there, without a call of its own.
        assert_eq!(pair.journal.take_only(&[Call::Upload, Call::Download]), vec![heads; 3]);
        assert_eq!(session.stats().n_copies, 4);
    }
}

#[test]
fn weights_are_packed_and_uploaded_once_at_prepare() {
    let journal = Journal::new();
    let device = NullBackend::new().named("device").in_space(MemorySpace(3));
    for (device, call) in [(device.clone(), Call::Upload), (device.packing(), Call::Pack)] {
        let device = Arc::new(recorded(device, &journal));
        let mut ex = prepare(model(2, true), vec![device], ExecConfig::default());
        // Two layers of three matrices, the table of the embedding and the head.
        assert_eq!(journal.count(call), 8);
        journal.take();
        for _ in 0..2 {
            ex.run(&[("input_ids", ids(&[1]))]).unwrap();
            let again: Vec<String> = journal
                .take_only(&[Call::Pack, Call::Upload])
                .into_iter()
                .filter(|line| line.contains("[4, 4]") || line.contains("[16, 4]"))
                .collect();
            assert_eq!(again, [""; 0], "a weight moved in a step");
        }
    }
}

/// Every recorded call of a run, on either backend, fails in turn; each time the session is as before, every program
/// was rolled back in the order of the plan, and the same call then gives the bits of an undisturbed run.
#[test]
fn a_step_that_fails_on_any_backend_changes_nothing_on_the_others() {
    let pair = Pair::toys();
    let mut session = pair.executor.session().unwrap();
    logits(&mut session, &[3, 1]).unwrap();
    let mut other = session.fork().unwrap();
    pair.journal.take();
    let expected = logits(&mut other, &[4, 1, 5]).unwrap();
    let entries = pair.journal.take_entries();
    let n_programs = entries.iter().filter(|e| e.call == Call::Commit).count();
    assert!(n_programs >= 4, "attention of two layers, and what lies around it");
    let mut n_faults = 0;
    for (backend, name) in [(&pair.device, "device"), (&pair.host, "host")] {
        for call in [Call::Upload, Call::Download, Call::Execute, Call::Run] {
            let of_backend = |e: &&glia_core::testing::Entry| e.call == call && e.who.split('.').next() == Some(name);
            for n in 1..=entries.iter().filter(of_backend).count() {
                for fault in [Fault::Fails, Fault::Panics] {
                    backend.arm(call, n, fault);
                    let err = logits(&mut session, &[4, 1, 5]).unwrap_err();
                    assert!(err.to_string().contains("told to"), "{err}");
                    assert_eq!(session.pos(), 2);
                    let undone = pair.journal.take_entries();
                    let rolled: Vec<&str> = undone
                        .iter()
                        .filter(|e| e.call == Call::Rollback)
                        .map(|e| e.who.as_str())
                        .collect();
                    let mut once = rolled.clone();
                    once.dedup();
                    assert_eq!(
                        (rolled.len(), once.len()),
                        (n_programs, n_programs),
                        "{name} {call:?} {n}"
                    );
                    assert!(undone.iter().all(|e| e.call != Call::Commit), "{name} {call:?} {n}");
                    n_faults += 1;
                }
            }
        }
        backend.disarm();
        assert_eq!(logits(&mut session.fork().unwrap(), &[4, 1, 5]).unwrap(), expected);
        pair.journal.take();
    }
    assert!(n_faults > 60, "only {n_faults} calls could fail");
}

#[test]
fn a_run_of_several_steps_is_undone_on_every_backend() {
    let pair = Pair::toys();
    let mut session = pair.executor.session().unwrap();
    let prompt = [3, 1, 4, 1, 5, 9];
    let cold = logits(&mut session.fork().unwrap(), &prompt).unwrap();
    // Steps of four tokens: the second one fails, on the program that runs last.
    let n_runs = 2 * pair.executor.plan().regions.len();
    let last = &pair.executor.plan().regions[n_runs / 2 - 1].backend_name;
    let backend = if *last == "device" { &pair.device } else { &pair.host };
    let of_last = pair.executor.plan().regions.iter().filter(|r| r.backend_name == *last);
    backend.arm(Call::Run, 2 * of_last.count(), Fault::Fails);
    pair.journal.take();
    logits(&mut session, &prompt).unwrap_err();
    let calls = [Call::Commit, Call::Rollback, Call::Truncate];
    let said = pair.journal.take_only(&calls);
    let count = |what: &str| said.iter().filter(|l| l.contains(what)).count();
    let n_programs = n_runs / 2;
    assert_eq!(count("commit"), n_programs, "the first step");
    assert_eq!(count("rollback"), n_programs, "the second");
    assert!(
        count("truncate") >= n_programs && count(" to 0") == count("truncate"),
        "{said:?}"
    );
    backend.disarm();
    assert_eq!(logits(&mut session, &prompt).unwrap(), cold);
}

#[test]
fn sequences_are_made_and_forked_in_every_program_or_in_none() {
    for call in [Call::Create, Call::Fork] {
        let pair = Pair::null();
        let session = pair.executor.session().unwrap();
        pair.journal.take();
        // The second program of the host is the last of three.
        pair.host.arm(call, 2, Fault::Fails);
        let err = match call {
            Call::Create => pair.executor.session().unwrap_err(),
            _ => session.fork().unwrap_err(),
        };
        assert!(err.to_string().contains("told to"), "{err}");
        let freed = pair.journal.take_only(&[Call::Free]);
        assert_eq!(
            freed,
            ["host.0: free 2", "device.0: free 2", "host.1: free 2"],
            "{call:?}"
        );
        pair.host.disarm();
        session.fork().unwrap();
    }
}

#[test]
fn a_node_that_one_backend_refuses_by_its_types_goes_to_the_next() {
    let picky = NullBackend::new().named("picky").supporting_nodes(|node| {
        // Matrices of 16 rows only: the head.
        node.op.kind() == "matmul" && node.inputs[1].dims[0].as_fixed() == Some(16)
    });
    let rest = NullBackend::new().named("rest");
    let graph = model(1, true);
    let all = weights(&graph);
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(picky.clone()), Arc::new(rest)];
    let ex = GraphExecutor::prepare(graph.clone(), all, backends, ExecConfig::default()).unwrap();
    let names: Vec<&str> = ex.plan().regions.iter().map(|r| r.backend_name.as_str()).collect();
    assert_eq!(names, ["rest", "picky"]);
    let alone = GraphExecutor::prepare(
        graph.clone(),
        weights(&graph),
        vec![Arc::new(picky)],
        ExecConfig::default(),
    );
    let said = alone.unwrap_err().to_string();
    assert!(said.contains("picky") && said.contains("layers.0.q"), "{said}");
}
