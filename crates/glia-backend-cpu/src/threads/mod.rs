//! The thread team of a backend: a private pool whose threads walk a whole step together.

mod auto;
mod desk;
mod door;
mod progress;
mod team;

pub(crate) use auto::resolve;
pub(crate) use progress::{Patience, Progress};
pub(crate) use team::Team;
