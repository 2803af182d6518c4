//! Mistakes in states and memory, which no single op shows.

/// A mistake in states or memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::conformance) enum StateFault {
    /// A row that a truncate or fork left behind is never written again.
    StaleRows,
    /// The last row of a step is not written over an older one.
    StaleLastRow,
    /// Rollback keeps what it should drop, under rows that come later.
    RollbackKeepsRows,
    /// A fork and its parent write to the same rows.
    ForkSharesRows,
    /// In a step of several sequences, all read the rows of the first.
    OthersRows,
    /// Positions of rows begin at zero in every step.
    PositionsFromZero,
    /// The first wanted rows are rows 0, 1, ..
    WantedRowsIgnored,
    /// Every op writes one element past the end of its output.
    WritesPastEnd,
    /// A slot that is freed while it has readers left.
    ReusesLiveSlot,
}

impl StateFault {
    pub const ALL: [StateFault; 9] = [
        StateFault::StaleRows,
        StateFault::StaleLastRow,
        StateFault::RollbackKeepsRows,
        StateFault::ForkSharesRows,
        StateFault::OthersRows,
        StateFault::PositionsFromZero,
        StateFault::WantedRowsIgnored,
        StateFault::WritesPastEnd,
        StateFault::ReusesLiveSlot,
    ];

    pub fn says(self) -> &'static str {
        match self {
            StateFault::StaleRows => "a stale KV row: rows of the old past, behind a truncate or fork, are still read",
            StateFault::StaleLastRow => {
                "a stale KV row: the last row of a step does not replace the row of an old past"
            }
            StateFault::RollbackKeepsRows => {
                "rollback forgets nothing: a stale KV row of the step that failed is still read"
            }
            StateFault::ForkSharesRows => "a fork shares rows that its parent, or it, writes to: copy them on write",
            StateFault::OthersRows => "in a step of several sequences, all read the rows of the first",
            StateFault::PositionsFromZero => "positions begin at zero in every step: the past is forgotten",
            StateFault::WantedRowsIgnored => "wanted rows are ignored: the first rows of the step are taken",
            StateFault::WritesPastEnd => "a write past the end of an output: the value behind it in memory changes",
            StateFault::ReusesLiveSlot => "a slot is used again while its value has readers left",
        }
    }
}
