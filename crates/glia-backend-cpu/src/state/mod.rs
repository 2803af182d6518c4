//! State of sequences: blocks of key and value rows, shared by forks, and the pool that owns them.

mod append;
mod block;
mod layout;
mod pool;
mod read;
mod slab;

pub(crate) use append::append_row;
pub(crate) use block::SeqBlocks;
pub(crate) use layout::{BLOCK_TOKENS, KvLayout, LANES, PartLayout};
pub(crate) use pool::SequencePool;
#[cfg(target_arch = "x86_64")]
pub(crate) use read::stored;
pub(crate) use read::{read_keys, read_values};
