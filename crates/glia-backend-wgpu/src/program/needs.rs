//! Which dispatches a step may leave out, because only outputs that nobody reads need them.

use super::{BufDef, Dispatch};

/// A set of outputs: bit `i` for output `i`, the last bit for all from there on.
pub(super) type OutputSet = u64;

/// The set of one output.
pub(super) fn output_bit(output: usize) -> OutputSet {
    1 << output.min(63)
}

/// For each dispatch the outputs that need it; what writes to the cache is needed always. `made_in` says which buffer
/// holds which output.
pub(super) fn of(bufs: &[BufDef], dispatches: &[Dispatch], made_in: &[(usize, usize)]) -> Vec<OutputSet> {
    let mut by_buf: Vec<OutputSet> = vec![0; bufs.len()];
    for &(output, buf) in made_in {
        by_buf[buf] |= output_bit(output);
    }
    let mut needs = vec![0; dispatches.len()];
    for (at, dispatch) in dispatches.iter().enumerate().rev() {
        for bind in &dispatch.binds[dispatch.n_reads..] {
            let buf = bind.buf.index();
            needs[at] |= match bufs[buf] {
                BufDef::Kv { .. } => OutputSet::MAX,
                _ => by_buf[buf],
            };
        }
        for bind in &dispatch.binds {
            by_buf[bind.buf.index()] |= needs[at];
        }
    }
    needs
}
