//! Which intermediates share memory: those whose lives do not meet, of the closest size. Lives are those of the lowered
//! dispatches, since fusion moves and drops instructions of the planned order.

use super::{BufDef, Dispatch};

/// For each buffer that is an intermediate or scratch, its slot; and how many slots there are.
pub(super) struct Slots {
    pub of_buf: Vec<Option<usize>>,
    pub n_slots: usize,
}

/// First and last dispatch that binds each buffer; `keep` are read after all.
fn lives(n_bufs: usize, dispatches: &[Dispatch], keep: &[usize]) -> Vec<Option<(usize, usize)>> {
    let mut lives: Vec<Option<(usize, usize)>> = vec![None; n_bufs];
    for (at, dispatch) in dispatches.iter().enumerate() {
        for bind in &dispatch.binds {
            let life = &mut lives[bind.buf.index()];
            *life = Some((life.map_or(at, |(first, _)| first), at));
        }
    }
    for &buf in keep {
        if let Some(life) = &mut lives[buf] {
            life.1 = usize::MAX;
        }
    }
    lives
}

/// Gives slots; `size` is what a buffer takes in the largest planned step, to match like with like.
pub(super) fn assign(bufs: &[BufDef], dispatches: &[Dispatch], keep: &[usize], size: &dyn Fn(usize) -> u64) -> Slots {
    let lives = lives(bufs.len(), dispatches, keep);
    let mut of_buf = vec![None; bufs.len()];
    // For each slot the dispatch after which it is free, and its size.
    let mut slots: Vec<(usize, u64)> = Vec::new();
    let mut order: Vec<(usize, usize, usize)> = lives
        .iter()
        .enumerate()
        .filter(|(buf, _)| matches!(bufs[*buf], BufDef::Temp(_) | BufDef::Scratch(_)))
        .filter_map(|(buf, life)| life.map(|(first, last)| (first, last, buf)))
        .collect();
    order.sort_unstable();
    for (first, last, buf) in order {
        let bytes = size(buf);
        let free = slots.iter().enumerate().filter(|(_, (until, _))| *until < first);
        // What would be grown or wasted decides.
        let best = free.min_by_key(|(_, (_, have))| have.abs_diff(bytes)).map(|(i, _)| i);
        let slot = best.unwrap_or_else(|| {
            slots.push((0, 0));
            slots.len() - 1
        });
        slots[slot] = (last, slots[slot].1.max(bytes));
        of_buf[buf] = Some(slot);
    }
    Slots {
        of_buf,
        n_slots: slots.len(),
    }
}
