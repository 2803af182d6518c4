//! The work that is timed: each function does it once and returns tokens per second.

use std::time::Instant;

use glia_model::{Model, ModelSession, WantedRows};

use crate::exit::CliError;

/// Token ids that are valid in any vocabulary and not all alike, from a place of their own for each sequence.
pub fn tokens(model: &Model, sequence: usize, n: usize) -> Vec<u32> {
    let vocab = model.n_vocab().max(1) as u64;
    let start = (sequence as u64).wrapping_mul(7919);
    (0..n as u64)
        .map(|i| (start.wrapping_add(i).wrapping_mul(2_654_435_761) % vocab) as u32)
        .collect()
}

/// A prompt of `n` tokens.
pub fn prefill(model: &Model, n: usize) -> Result<f64, CliError> {
    let ids = tokens(model, 0, n);
    let mut session = model.session()?;
    let start = Instant::now();
    session.feed(&ids, &WantedRows::Last)?;
    Ok(n as f64 / start.elapsed().as_secs_f64())
}

/// `n` tokens, one at a time, after `depth`.
pub fn decode(model: &Model, depth: usize, n: usize) -> Result<f64, CliError> {
    let ids = tokens(model, 0, depth + n);
    let (past, rest) = ids.split_at(depth);
    let mut session = model.session()?;
    if !past.is_empty() {
        session.feed(past, &WantedRows::Last)?;
    }
    let start = Instant::now();
    for id in rest {
        session.feed(std::slice::from_ref(id), &WantedRows::Last)?;
    }
    Ok(n as f64 / start.elapsed().as_secs_f64())
}

/// `n` tokens of each of `n_seqs` sequences, all of them a token further in every step, after `depth` tokens each.
pub fn batched(model: &Model, n_seqs: usize, depth: usize, n: usize) -> Result<f64, CliError> {
    let ids: Vec<Vec<u32>> = (0..n_seqs).map(|i| tokens(model, i, depth + n)).collect();
    let mut sessions = Vec::with_capacity(n_seqs);
    for ids in &ids {
        let mut session = model.session()?;
        if depth > 0 {
            session.feed(&ids[..depth], &WantedRows::Last)?;
        }
        sessions.push(session);
    }
    let start = Instant::now();
    for t in depth..depth + n {
        let mut batch: Vec<(&mut ModelSession<'_>, &[u32])> = sessions
            .iter_mut()
            .zip(&ids)
            .map(|(session, ids)| (session, &ids[t..=t]))
            .collect();
        model.feed_batch(&mut batch, &WantedRows::Last)?;
    }
    Ok((n * n_seqs) as f64 / start.elapsed().as_secs_f64())
}
