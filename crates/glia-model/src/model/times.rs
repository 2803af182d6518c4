//! Where the time of opening a model goes.

use std::time::{Duration, Instant};

/// How long the parts of [`Model::load`](super::Model::load) took: wall time. The vocabulary is built beside the packing
/// of the weights, so that the parts may be longer than the whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadTimes {
    /// The tokenizer, from the vocabulary of the files.
    pub vocabulary: Duration,
    /// Planning the graph, packing the weights and compiling.
    pub packing: Duration,
    /// All of it.
    pub total: Duration,
}

/// What a piece of work gives, and how long it took.
pub(super) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}
