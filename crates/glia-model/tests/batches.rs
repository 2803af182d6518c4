//! Several sequences in one step: each gets the bits that it gets alone, and a step that fails changes none.

use glia_core::{CancelToken, Precision, Tensor};
use glia_model::{Model, ModelSession, Options, WantedRows};

fn open(precision: Precision, max_step_tokens: usize) -> Model {
    Model::open_demo_with(Options {
        precision,
        max_context: Some(128),
        max_step_tokens,
        ..Options::default()
    })
    .unwrap()
}

fn bits(logits: &Tensor) -> Vec<u32> {
    logits.as_f32().unwrap().iter().map(|x| x.to_bits()).collect()
}

/// Ids of sequence `i`, each of its own.
fn ids(i: usize, n: usize) -> Vec<u32> {
    (0..n).map(|t| (37 * t + 101 * i + 5) as u32 % 1000).collect()
}

/// The likeliest token.
fn best(logits: &Tensor) -> u32 {
    let row = logits.as_f32().unwrap();
    (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap() as u32
}

/// Prompts of several lengths in one call, then greedy tokens: for each sequence the bits of every step.
fn together(model: &Model, lengths: &[usize], n_steps: usize) -> Vec<Vec<Vec<u32>>> {
    let mut sessions: Vec<ModelSession<'_>> = lengths.iter().map(|_| model.session().unwrap()).collect();
    let mut next: Vec<Vec<u32>> = lengths.iter().enumerate().map(|(i, &n)| ids(i, n)).collect();
    let mut all = vec![Vec::new(); lengths.len()];
    for _ in 0..n_steps {
        let mut batch: Vec<_> = sessions.iter_mut().zip(next.iter().map(Vec::as_slice)).collect();
        let logits = model.feed_batch(&mut batch, &WantedRows::Last).unwrap();
        assert_eq!(logits.len(), lengths.len());
        for ((all, next), logits) in all.iter_mut().zip(&mut next).zip(&logits) {
            assert_eq!(logits.shape()[..], [1, model.n_vocab()]);
            all.push(bits(logits));
            *next = vec![best(logits)];
        }
    }
    for (session, n) in sessions.iter().zip(lengths) {
        assert_eq!(session.pos(), n + n_steps - 1);
    }
    all
}

fn alone(model: &Model, i: usize, n: usize, n_steps: usize) -> Vec<Vec<u32>> {
    let (mut session, mut next) = (model.session().unwrap(), ids(i, n));
    (0..n_steps)
        .map(|_| {
            let logits = session.feed(&next, &WantedRows::Last).unwrap();
            next = vec![best(&logits)];
            bits(&logits)
        })
        .collect()
}

#[test]
fn a_batch_has_the_bits_of_each_sequence_alone() {
    for precision in [Precision::Fast, Precision::Exact] {
        // Steps that hold the batch, and steps that are cut through the middle of it.
        for (max_step_tokens, lengths) in [(512, &[3, 40, 1, 17, 9, 2, 64, 5, 33][..]), (4, &[3, 11, 1, 2, 7])] {
            let model = open(precision, max_step_tokens);
            let batch = together(&model, lengths, 6);
            for (i, &n) in lengths.iter().enumerate() {
                let what = format!("{precision:?}, steps of {max_step_tokens}, sequence {i}");
                assert!(batch[i] == alone(&model, i, n, 6), "{what}");
            }
        }
    }
}

#[test]
fn a_step_that_fails_leaves_every_sequence_as_it_was() {
    let model = open(Precision::Fast, 512);
    let expected = alone(&model, 0, 8, 2);
    let (mut a, mut b) = (model.session().unwrap(), model.session().unwrap());
    let (of_a, of_b) = (ids(0, 8), ids(1, 5));
    a.feed(&of_a, &WantedRows::Last).unwrap();
    b.feed(&of_b, &WantedRows::Last).unwrap();
    // An id beyond the vocabulary, no id.
    for bad in [&[u32::MAX][..], &[]] {
        let mut batch = [(&mut a, &[7][..]), (&mut b, bad)];
        model.feed_batch(&mut batch, &WantedRows::Last).unwrap_err();
    }
    // Cancelled before the step, and within it.
    for cancel in [CancelToken::after_checks(0), CancelToken::after_checks(3)] {
        let mut batch = [(&mut a, &[7][..]), (&mut b, &[9][..])];
        let cancelled = model.feed_batch_with(&mut batch, &WantedRows::Last, Some(&cancel));
        assert!(cancelled.unwrap_err().is_cancelled());
    }
    assert_eq!((a.pos(), b.pos()), (8, 5));
    let next = {
        let mut fresh = model.session().unwrap();
        best(&fresh.feed(&of_a, &WantedRows::Last).unwrap())
    };
    let mut batch = [(&mut b, &[9][..]), (&mut a, &[next][..])];
    let logits = model.feed_batch(&mut batch, &WantedRows::Last).unwrap();
    assert!(bits(&logits[1]) == expected[1]);
}

#[test]
fn sessions_of_other_models_are_refused() {
    let (model, other) = (open(Precision::Fast, 512), open(Precision::Fast, 512));
    let (mut own, mut foreign) = (model.session().unwrap(), other.session().unwrap());
    let mut batch = [(&mut own, &[1][..]), (&mut foreign, &[2][..])];
    let error = model.feed_batch(&mut batch, &WantedRows::Last).unwrap_err().to_string();
    assert!(error.contains("session 1"), "{error}");
    assert_eq!((own.pos(), foreign.pos()), (0, 0));
    assert!(model.feed_batch(&mut [], &WantedRows::Last).unwrap().is_empty());
}
