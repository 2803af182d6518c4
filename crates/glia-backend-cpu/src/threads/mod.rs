//! The thread team of a backend: a private pool whose threads walk a whole step together.

mod auto;
mod barrier;
mod team;

pub(crate) use auto::resolve;
pub(crate) use barrier::Barrier;
pub(crate) use team::Team;
