//! Mistakes in states and memory, which no single op shows.

/// A mistake in states or memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::conformance) enum StateFault {
    /// A row that a truncate or fork left behind is never written again.
    StaleRows,
    /// The last row of a step is not written over an older one.
    StaleLastRow,
    /// The first step behind a truncate is not written.
    StaleOnce,
    /// New rows take the place of the last old one.
    AppendsEarly,
    /// New rows leave one row free behind the old ones.
    AppendsLate,
    /// All KV caches of a segment are one.
    OneStateForAll,
    /// Rollback keeps what it should drop, under rows that come later.
    RollbackKeepsRows,
    /// A fork and its parent write to the same rows.
    ForkSharesRows,
    /// In a step of several sequences, all read the rows of the first.
    OthersRows,
    /// In a step of several sequences, attention gives nothing for the rows of the later ones.
    LaterRowsSkipped,
    /// In a step of several sequences, keys and values of the later ones are not kept.
    LaterRowsNotKept,
    /// In a step of several sequences, the rows are given to the sequences in the order of their ids.
    SortsSequences,
    /// Without states, attention sees the rows of all sequences.
    AttendsAcross,
    /// Positions of rows begin at zero in every step.
    PositionsFromZero,
    /// The first wanted rows are rows 0, 1, ..
    WantedRowsIgnored,
    /// Every op writes one element past the end of its output.
    WritesPastEnd,
    /// A slot that is freed while it has readers left.
    ReusesLiveSlot,
    /// The output takes the place of the first input, whoever reads that later.
    ReusesInputs,
    /// The output takes the place of the second input.
    ReusesSecondInputs,
    /// The output takes the place of an input that is not read again itself, while views of it are.
    ReusesUnderViews,
    /// The rows of every sequence begin at row 0 of the step.
    FirstRowIgnored,
    /// A step panics, behind a few tokens.
    Panics,
    /// `fork` returns the length that it was asked for.
    ForkSaysLen,
    /// `truncate` does nothing.
    TruncateIgnored,
    /// A step never asks whether it is cancelled.
    NeverCancelled,
    /// `state_bytes` is 0.
    CountsNoBytes,
}

impl StateFault {
    /// Those with a name of their own.
    pub const ALL: [StateFault; 20] = [
        StateFault::StaleRows,
        StateFault::StaleLastRow,
        StateFault::StaleOnce,
        StateFault::AppendsEarly,
        StateFault::AppendsLate,
        StateFault::OneStateForAll,
        StateFault::RollbackKeepsRows,
        StateFault::ForkSharesRows,
        StateFault::OthersRows,
        StateFault::LaterRowsSkipped,
        StateFault::LaterRowsNotKept,
        StateFault::SortsSequences,
        StateFault::AttendsAcross,
        StateFault::PositionsFromZero,
        StateFault::WantedRowsIgnored,
        StateFault::WritesPastEnd,
        StateFault::ReusesLiveSlot,
        StateFault::ReusesUnderViews,
        StateFault::ReusesInputs,
        StateFault::ReusesSecondInputs,
    ];

    pub fn says(self) -> &'static str {
        match self {
            StateFault::StaleRows => "a stale KV row: rows of the old past, behind a truncate or fork, are still read",
            StateFault::StaleLastRow => {
                "a stale KV row: the last row of a step does not replace the row of an old past"
            }
            StateFault::StaleOnce => "a stale KV row: behind a truncate, rows of the old past are still read",
            StateFault::AppendsEarly => {
                "KV rows at a wrong position: the first new row takes the place of the last old one"
            }
            StateFault::AppendsLate => "KV rows at a wrong position: one row is left free before the new ones",
            StateFault::OneStateForAll => "all caches of the segment are one: each `kv_cache` has a state of its own",
            StateFault::RollbackKeepsRows => {
                "rollback forgets nothing: a stale KV row of the step that failed is still read"
            }
            StateFault::ForkSharesRows => "a fork shares rows that its parent, or it, writes to: copy them on write",
            StateFault::OthersRows => "in a step of several sequences, all read the rows of the first",
            StateFault::LaterRowsSkipped => {
                "in a step of several sequences, attention computes the rows of the first only"
            }
            StateFault::LaterRowsNotKept => {
                "in a step of several sequences, keys and values of the first only are written"
            }
            StateFault::SortsSequences => {
                "in a step of several sequences, rows go to the sequences in the order of their ids, not of `Step::rows`"
            }
            StateFault::AttendsAcross => {
                "in a step of several sequences, attention without a cache sees the rows of the other sequences"
            }
            StateFault::PositionsFromZero => "positions begin at zero in every step: the past is forgotten",
            StateFault::WantedRowsIgnored => "wanted rows are ignored: the first rows of the step are taken",
            StateFault::WritesPastEnd => "a write past the end of an output: the value behind it in memory changes",
            StateFault::FirstRowIgnored
            | StateFault::Panics
            | StateFault::ForkSaysLen
            | StateFault::TruncateIgnored
            | StateFault::NeverCancelled
            | StateFault::CountsNoBytes => "what is wrong says it all",
            StateFault::ReusesInputs => "the output is written over the first input, which is read again later",
            StateFault::ReusesSecondInputs => "the output is written over the second input, which is read again later",
            StateFault::ReusesUnderViews => "the output is written over an input of which a view is still read",
            StateFault::ReusesLiveSlot => "a slot is used again while its value has readers left",
        }
    }
}
