//! Cuts the runs of one or many sequences into steps that fit.

use super::{ExecError, WantedRows};
use crate::plan::Plan;

/// Rows of one sequence's run that go into one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Index into the batch.
    pub run: usize,
    /// First row, counted from the start of the run.
    pub start: usize,
    /// How many rows.
    pub n_rows: usize,
}

/// Steps in order; a sequence is in a step at most once, and its pieces are in order.
pub(super) fn steps(plan: &Plan, n_tokens: &[usize]) -> Result<Vec<Vec<Piece>>, ExecError> {
    let max = plan.limits.max_step_tokens;
    let too_many = |given: usize, why: &str| ExecError::TooManyRows {
        given,
        max,
        why: why.to_owned(),
    };
    let share = plan.rows.why_not_batch().is_none();
    let mut steps: Vec<Vec<Piece>> = Vec::new();
    let mut room = 0;
    for (run, &n) in n_tokens.iter().enumerate() {
        if let (true, Some(why)) = (n > max, plan.rows.why_not_split()) {
            return Err(too_many(n, why));
        }
        let mut start = 0;
        while start < n {
            let left = n - start;
            let whole = plan.rows.why_not_split().is_some();
            if room == 0 || !share || (whole && left > room) {
                steps.push(Vec::new());
                room = max;
            }
            let n_rows = left.min(room);
            room -= n_rows;
            if let Some(step) = steps.last_mut() {
                step.push(Piece { run, start, n_rows });
            }
            start += n_rows;
        }
    }
    Ok(steps)
}

/// The wanted rows of a run of `n` tokens, as a rising list.
pub(super) fn wanted(wanted: &WantedRows, n: usize) -> Result<Vec<usize>, ExecError> {
    let bad = |reason: String| Err(ExecError::BadWantedRows { reason });
    match wanted {
        WantedRows::All => Ok((0..n).collect()),
        WantedRows::Last => Ok(n.checked_sub(1).into_iter().collect()),
        WantedRows::Rows(rows) => {
            if let Some(row) = rows.iter().find(|&&r| r >= n) {
                return bad(format!("row {row} is outside the run of {n} rows"));
            }
            if !rows.is_sorted_by(|a, b| a < b) {
                return bad(format!("{rows:?} do not rise"));
            }
            Ok(rows.clone())
        }
    }
}
