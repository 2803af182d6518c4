//! Programs: a segment lowered to dispatches over device buffers, and the state that steps change.

mod apart;
mod compiled;
mod fuse;
mod input;
mod lower;
mod needs;
mod output;
mod resources;
mod run;
mod seqs;
mod slots;
mod state;
mod step;

pub(crate) use compiled::compile;
pub(crate) use fuse::{Chain, HeadsItem, Item};
pub(crate) use lower::Lower;
pub(crate) use output::{download, upload};
pub(crate) use resources::{Bind, BufDef, BufId, Dispatch, Trig};
pub(crate) use seqs::BLOCK_TOKENS;
pub(crate) use step::{StepInfo, TableHeader};
