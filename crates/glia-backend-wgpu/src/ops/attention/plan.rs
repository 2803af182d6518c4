//! How the work of an attention is cut in a step: queries in tiles, keys in splits at absolute positions.

use glia_core::SeqRows;

use crate::gpu::MAX_STEPS;

/// Threads of a workgroup of the form without sharing: few, so that every core has some.
pub(super) const THREADS: usize = 8;

/// Most bytes of the parts that splits leave; splits grow rather.
const MAX_PART_BYTES: usize = 16 << 20;

/// Most splits: one thread adds them up.
const MAX_SPLITS: usize = 4096;

/// Sequences with at most so many rows have few tiles: their keys are cut finer.
const FEW_ROWS: usize = 8;

/// What is known of an attention before any step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    pub heads: usize,
    /// Heads of keys and values, at least one.
    pub groups: usize,
    pub d: usize,
    pub dv: usize,
    pub window: Option<usize>,
    /// A thread has a tile of its own; else a workgroup.
    pub alone: bool,
}

/// The rows and keys of a step.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rows<'a> {
    /// Of sequences whose keys are in the cache.
    Cached(&'a [SeqRows]),
    /// The last rows of as many positions as there are keys.
    Dense { n_rows: usize, n_keys: usize },
}

impl Rows<'_> {
    /// Rows of queries.
    pub fn n_rows(&self) -> usize {
        match self {
            Rows::Cached(seqs) => seqs.iter().map(|r| r.n_rows).sum(),
            Rows::Dense { n_rows, .. } => *n_rows,
        }
    }

    /// Most keys that a sequence has.
    pub fn n_keys(&self) -> usize {
        match self {
            Rows::Cached(seqs) => seqs.iter().map(|r| r.pos.saturating_add(r.n_rows)).max().unwrap_or(0),
            Rows::Dense { n_keys, .. } => *n_keys,
        }
    }

    /// For each sequence its rows and the position of the first; none is negative, since earlier than the first key
    /// is as good as at it.
    fn seqs(&self) -> impl Iterator<Item = (usize, usize)> {
        let (seqs, one) = match *self {
            Rows::Cached(seqs) => (seqs, None),
            Rows::Dense { n_rows, n_keys } => (&[][..], Some((n_rows, n_keys.saturating_sub(n_rows)))),
        };
        seqs.iter().map(|r| (r.n_rows, r.pos)).chain(one)
    }
}

/// The work of one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Which of [`Form::tiles`].
    pub variant: usize,
    pub n_tiles: usize,
    /// Tiles of every sequence; 0 where they differ.
    pub tiles_each: usize,
    /// Keys of a split.
    pub split: usize,
    pub first_split: usize,
    pub n_splits: usize,
}

impl Form {
    /// Queries that read the same keys.
    pub fn per_group(&self) -> usize {
        (self.heads / self.groups).max(1)
    }

    /// Chunks of eight elements of a key.
    pub fn key_chunks(&self) -> usize {
        self.d.div_ceil(8).max(1)
    }

    /// Chunks of eight elements of a value.
    pub fn value_chunks(&self) -> usize {
        self.dv.div_ceil(8).max(1)
    }

    /// Queries of a tile: when each sequence has one row, and when it has more.
    pub fn tiles(&self) -> [usize; 2] {
        // What a thread alone holds should stay in the nearest cache, what a workgroup shares in 16 KiB.
        let room = if self.alone {
            128 / (self.key_chunks() + self.value_chunks())
        } else {
            256 / self.key_chunks()
        };
        let most = room.clamp(1, 8);
        let group = self.per_group();
        [group.div_ceil(group.div_ceil(most)), most]
    }

    /// Cuts the work of a step.
    pub fn plan(&self, rows: Rows<'_>) -> Plan {
        let n_keys = rows.n_keys();
        let longest = rows.seqs().map(|(n, _)| n).max().unwrap_or(0);
        let variant = usize::from(longest > 1);
        let queries = self.tiles()[variant];
        let tiles = |n_rows: usize| n_rows.saturating_mul(self.per_group()).div_ceil(queries);
        let n_tiles = rows.seqs().map(|(n, _)| tiles(n)).sum();
        let each = tiles(longest);
        let tiles_each = if rows.seqs().all(|(n, _)| tiles(n) == each) {
            each
        } else {
            0
        };
        // Fixed sizes at absolute positions, so that a sequence does not feel its neighbours; only what is too much
        // changes them. A thread alone makes a step of a loop per key, and has a limited number.
        let most_alone = 1 << MAX_STEPS.ilog2();
        let (few, many, most) = if self.alone {
            (32, most_alone, most_alone)
        } else {
            (128, 1024, usize::MAX / 2)
        };
        let mut split: usize = if longest <= FEW_ROWS { few } else { many };
        let mut plan = Plan {
            variant,
            n_tiles,
            tiles_each,
            ..Plan::default()
        };
        loop {
            plan.split = split;
            let seen = |pos: usize| self.window.map_or(0, |w| pos.saturating_add(1).saturating_sub(w));
            plan.first_split = rows.seqs().map(|(_, pos)| seen(pos)).min().unwrap_or(0) / split;
            plan.n_splits = n_keys.div_ceil(split).saturating_sub(plan.first_split).max(1);
            let fits = plan.n_splits <= MAX_SPLITS && self.bytes(&plan, rows.n_rows()) <= MAX_PART_BYTES;
            if fits || split >= most {
                return plan;
            }
            split *= 2;
        }
    }

    /// Bytes of the parts.
    pub fn part_bytes(&self, rows: Rows<'_>) -> u64 {
        match self.plan(rows) {
            // Bound, but not used.
            Plan { n_splits: 1, .. } => 4,
            plan => self.bytes(&plan, rows.n_rows()) as u64,
        }
    }

    fn bytes(&self, plan: &Plan, n_rows: usize) -> usize {
        let each = 4 * (8 * self.value_chunks() + 2);
        let n = n_rows.saturating_mul(self.heads).saturating_mul(plan.n_splits);
        if plan.n_splits == 1 { 0 } else { n.saturating_mul(each) }
    }

    /// Workgroups of the first kernel.
    pub fn n_groups(&self, plan: &Plan) -> usize {
        if self.heads == 0 || self.dv == 0 {
            return 0;
        }
        let units = plan.n_tiles.saturating_mul(self.groups).saturating_mul(plan.n_splits);
        if self.alone { units.div_ceil(THREADS) } else { units }
    }
}

#[cfg(test)]
mod tests {
    use glia_core::SeqId;

    use super::*;

    fn form(alone: bool, d: usize, window: Option<usize>) -> Form {
        Form {
            heads: 9,
            groups: 3,
            d,
            dv: d,
            window,
            alone,
        }
    }

    fn rows(each: &[(usize, usize)]) -> Vec<SeqRows> {
        let mut first_row = 0;
        let mut rows = Vec::new();
        for (i, &(n_rows, pos)) in each.iter().enumerate() {
            let seq = SeqId(i as u64);
            rows.push(SeqRows {
                seq,
                first_row,
                n_rows,
                pos,
            });
            first_row += n_rows;
        }
        rows
    }

    #[test]
    fn tiles_and_splits() {
        let decode = rows(&[(1, 2047)]);
        let plan = form(true, 64, None).plan(Rows::Cached(&decode));
        assert_eq!((plan.variant, plan.n_tiles, plan.tiles_each), (0, 1, 1));
        assert_eq!((plan.split, plan.first_split, plan.n_splits), (32, 0, 64));
        // Splits before the window do not exist.
        let plan = form(true, 64, Some(100)).plan(Rows::Cached(&decode));
        assert_eq!((plan.first_split, plan.n_splits), (60, 4));
        // A prompt with a neighbour that decodes: tiles differ.
        let mixed = rows(&[(100, 0), (1, 600)]);
        let plan = form(false, 64, None).plan(Rows::Cached(&mixed));
        assert_eq!((plan.variant, plan.n_tiles, plan.tiles_each), (1, 38 + 1, 0));
        assert_eq!((plan.split, plan.n_splits), (1024, 1));
    }

    #[test]
    fn parts_stay_small_and_loops_short() {
        for alone in [false, true] {
            for d in [1, 64, 512] {
                let form = form(alone, d, None);
                for n in [1, 8, 64] {
                    let each: Vec<_> = (0..n).map(|_| (1, 100_000)).collect();
                    let rows = rows(&each);
                    let plan = form.plan(Rows::Cached(&rows));
                    assert!(form.part_bytes(Rows::Cached(&rows)) <= 32 << 20);
                    assert!(!alone || plan.split <= MAX_STEPS);
                    assert!(plan.n_splits * plan.split >= 100_001);
                }
                // What is planned for a program without a limit must not overflow.
                let all = rows(&[(512, usize::MAX - 512)]);
                form.part_bytes(Rows::Cached(&all));
            }
        }
    }
}
