//! States: append, truncate, fork, rollback, cancel, limits, each a script whose every output is compared.

use std::ops::Range;

use super::case::List;
use super::segment::{Action, Bad, Check, Setup, Wanted, attention_layer, check};
use crate::{DType, SeqId, SeqRows};

use Action::{CancelEverywhere, Create, Fork, Free, Refused, RolledBack, Truncate};

const STALE: &str = "a stale KV row, it seems: rows of an old past are still read";
const FORKED: &str = "a stale KV row, it seems: rows of an old past are still read, or a fork and its parent share rows that one of \
                      them writes to";
pub(super) const TENTATIVE: &str = "a step is tentative until commit: what it wrote must not be seen after a rollback";
const NEIGHBOURS: &str = "sequences of one step seem to read each other's rows";

pub(super) fn add(list: &mut List) {
    append(list);
    truncate(list);
    fork(list);
    tentative(list);
    limits(list);
}

fn step(seqs: &[(u64, Range<i32>)]) -> Action {
    Action::Step(seqs.to_vec(), Wanted::All)
}

fn case(list: &mut List, name: impl Into<String>, symptom: &'static str, script: Vec<Action>) {
    with(list, name, symptom, Setup::default(), script);
}

fn with(list: &mut List, name: impl Into<String>, symptom: &'static str, setup: Setup, script: Vec<Action>) {
    list.check("state", name, move |cx| {
        let built = attention_layer(None);
        check(
            cx,
            &Check::new("a layer of attention", built, setup, script.clone()).symptom(symptom),
        )
    });
}

fn append(list: &mut List) {
    let past = "a stale or lost KV row: rows of the past are not those that were appended";
    for (name, cuts) in [
        ("append_one_by_one", (1..40).collect::<Vec<i32>>()),
        (
            "append_in_chunks",
            vec![1, 8, 15, 16, 31, 33, 63, 64, 65, 127, 129, 200, 256, 258],
        ),
        ("append_long", vec![300, 301, 513, 514, 600]),
    ] {
        let mut script = vec![Create(1)];
        let mut from = 0;
        for to in cuts {
            script.push(step(&[(1, from..to)]));
            from = to;
        }
        case(list, name, past, script);
    }
    for (name, kv) in [("f16", DType::F16), ("f32", DType::F32)] {
        let setup = Setup {
            kv,
            precision: if kv == DType::F16 {
                crate::Precision::Fast
            } else {
                crate::Precision::Exact
            },
            ..Setup::default()
        };
        let script = vec![
            Create(1),
            step(&[(1, 0..70)]),
            step(&[(1, 70..71)]),
            step(&[(1, 71..90)]),
        ];
        with(list, format!("cache_of_{name}"), past, setup, script);
    }
    let script = vec![
        Create(1),
        Create(2),
        Create(3),
        step(&[(2, 0..5)]),
        step(&[(1, 10..80), (2, 5..6)]),
        step(&[(2, 6..9), (3, 100..101), (1, 80..81)]),
        step(&[(1, 81..82), (2, 9..10), (3, 101..102)]),
        step(&[(3, 102..170), (2, 10..11)]),
        step(&[(3, 170..171), (1, 82..83)]),
    ];
    case(list, "several_sequences", NEIGHBOURS, script);
    list.check("state", "window", |cx| {
        let script = vec![
            Create(1),
            step(&[(1, 0..20)]),
            step(&[(1, 20..21)]),
            Truncate(1, 9),
            step(&[(1, 50..70)]),
        ];
        check(
            cx,
            &Check::new(
                "a layer of windowed attention",
                attention_layer(Some(6)),
                Setup::default(),
                script,
            ),
        )
    });
}

fn truncate(list: &mut List) {
    // Around the sizes that blocks of rows have.
    for len in [1, 5, 15, 16, 17, 31, 32, 63, 64, 65, 99] {
        let more = 1000 + len as i32;
        let script = vec![
            Create(1),
            step(&[(1, 0..100)]),
            Truncate(1, len),
            step(&[(1, more..more + 1)]),
            step(&[(1, more + 1..more + 4)]),
            step(&[(1, more + 4..more + 80)]),
        ];
        case(list, format!("truncate_to_{len}"), STALE, script);
    }
    let script = vec![
        Create(1),
        step(&[(1, 0..70)]),
        Truncate(1, 0),
        step(&[(1, 200..203)]),
        step(&[(1, 203..280)]),
    ];
    case(list, "truncate_to_nothing", STALE, script);
    let script = vec![
        Create(1),
        step(&[(1, 0..10)]),
        Truncate(1, 11),
        Truncate(1, 10),
        Truncate(9, 3),
        step(&[(1, 10..12)]),
    ];
    case(
        list,
        "truncate_beyond",
        "truncate lengthens nothing and returns the length reached",
        script,
    );
    let mut script = vec![Create(1), step(&[(1, 0..30)])];
    for round in 0..12 {
        script.push(Truncate(1, 29 - round));
        script.push(step(&[(1, 500 + 10 * round as i32..502 + 10 * round as i32)]));
        script.push(Truncate(1, 30 - round));
    }
    case(list, "truncate_again_and_again", STALE, script);
    // The rows of the neighbour stay as they are.
    let script = vec![
        Create(1),
        Create(2),
        step(&[(1, 0..66), (2, 100..167)]),
        Truncate(1, 3),
        step(&[(1, 300..301), (2, 167..168)]),
        Truncate(2, 65),
        step(&[(1, 301..303), (2, 400..404)]),
    ];
    case(list, "truncate_beside_others", STALE, script);
}

fn fork(list: &mut List) {
    for len in [0, 1, 16, 40, 63, 64, 65, 70] {
        let script = vec![
            Create(1),
            step(&[(1, 0..70)]),
            Fork(1, 2, len),
            step(&[(2, 200..203)]),
            step(&[(1, 70..72)]),
            step(&[(1, 72..73), (2, 203..205)]),
            Truncate(2, len),
            step(&[(2, 300..301), (1, 73..74)]),
            Truncate(1, len.min(60)),
            step(&[(1, 400..402), (2, 301..302)]),
        ];
        case(list, format!("fork_at_{len}"), FORKED, script);
    }
    let script = vec![
        Create(1),
        step(&[(1, 0..50)]),
        Fork(1, 2, 50),
        Fork(2, 3, 30),
        Fork(1, 4, 99),
        step(&[(1, 50..51), (2, 60..61), (3, 70..71), (4, 80..81)]),
        Free(1),
        step(&[(4, 81..90), (2, 61..62), (3, 71..72)]),
        Free(2),
        Create(1),
        step(&[(1, 100..130), (3, 72..73)]),
        step(&[(4, 90..91), (1, 130..131)]),
    ];
    case(list, "fork_of_forks", FORKED, script);
    let script = vec![
        Create(1),
        step(&[(1, 0..20)]),
        Fork(1, 2, 20),
        RolledBack(vec![(2, 40..50)]),
        step(&[(1, 20..25)]),
        step(&[(2, 60..61)]),
        RolledBack(vec![(1, 70..80), (2, 80..81)]),
        step(&[(1, 25..26), (2, 61..62)]),
    ];
    case(list, "fork_then_roll_back", FORKED, script);
}

fn tentative(list: &mut List) {
    let script = vec![
        Create(1),
        RolledBack(vec![(1, 50..60)]),
        step(&[(1, 0..10)]),
        RolledBack(vec![(1, 60..61)]),
        step(&[(1, 10..11)]),
        RolledBack(vec![(1, 70..150)]),
        step(&[(1, 11..13)]),
        RolledBack(vec![(1, 80..83)]),
        RolledBack(vec![(1, 90..93)]),
        step(&[(1, 13..80)]),
    ];
    case(list, "rollback", TENTATIVE, script);
    let script = vec![
        Create(1),
        Create(2),
        step(&[(1, 0..62), (2, 100..104)]),
        RolledBack(vec![(2, 200..210), (1, 210..215)]),
        step(&[(1, 62..63)]),
        step(&[(2, 104..106), (1, 63..66)]),
    ];
    case(list, "rollback_of_several", TENTATIVE, script);
    let script = vec![
        Create(1),
        step(&[(1, 0..60)]),
        CancelEverywhere(vec![(1, 60..70)]),
        step(&[(1, 70..71)]),
        Create(2),
        CancelEverywhere(vec![(2, 0..5), (1, 71..72)]),
        step(&[(1, 72..73), (2, 5..6)]),
    ];
    case(list, "cancel_anywhere", TENTATIVE, script);
    let row = |seq, first_row, n_rows, pos| SeqRows {
        seq: SeqId(seq),
        first_row,
        n_rows,
        pos,
    };
    let bad = |rows: &[SeqRows], says| Refused(Bad::Rows(rows.to_vec()), says);
    let script = vec![
        Create(1),
        Create(2),
        step(&[(1, 0..10)]),
        bad(&[row(9, 0, 1, 0)], "9"),
        step(&[(1, 10..11)]),
        bad(&[row(1, 0, 1, 10)], ""),
        bad(&[row(1, 0, 1, 12)], ""),
        bad(&[row(1, 0, 1, 11), row(1, 1, 1, 12)], ""),
        bad(&[row(1, 0, 1, 11), row(2, 2, 1, 0)], ""),
        Refused(Bad::Inputs(1, 20..24), "x"),
        step(&[(1, 11..12), (2, 50..52)]),
        Action::RefusedCreate(1),
        Action::RefusedFork(1, 2),
        Action::RefusedFork(77, 3),
        step(&[(1, 12..13), (2, 52..53)]),
    ];
    case(
        list,
        "refused_steps",
        "a step that is refused leaves everything as it was",
        script,
    );
}

fn limits(list: &mut List) {
    let setup = Setup {
        max_context: 20,
        ..Setup::default()
    };
    let script = vec![
        Create(1),
        Create(2),
        step(&[(1, 0..18)]),
        Refused(Bad::Tokens(1, 18..21), "21"),
        step(&[(1, 18..19)]),
        Refused(Bad::Tokens(1, 19..30), "20"),
        step(&[(1, 19..20), (2, 30..50)]),
        Refused(Bad::Tokens(1, 50..51), "21"),
        Truncate(1, 5),
        step(&[(1, 60..75)]),
    ];
    with(
        list,
        "max_context",
        "the context is a limit that is checked before any work",
        setup,
        script,
    );
    let setup = Setup {
        max_state_bytes: 1,
        ..Setup::default()
    };
    let script = vec![
        Create(1),
        Refused(Bad::Tokens(1, 0..3), "memory"),
        Refused(Bad::Tokens(1, 0..1), "memory"),
    ];
    with(
        list,
        "max_state_bytes",
        "states may not take more than max_state_bytes",
        setup,
        script,
    );
    let script = vec![
        Create(1),
        step(&[(1, 0..70)]),
        Free(1),
        Free(1),
        Action::Empty,
        Create(1),
        step(&[(1, 200..203)]),
        Create(5),
        step(&[(5, 0..2), (1, 203..204)]),
        Free(1),
        step(&[(5, 2..3)]),
        Free(5),
        Free(99),
        Action::Empty,
    ];
    case(list, "free_and_reuse", STALE, script);
}
