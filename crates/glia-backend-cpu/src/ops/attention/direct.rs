//! Tiles for several query rows at once, where the machine has AVX-512: read as the cache stores them, or widened to F32
//! first where they are stored in another form. The bits are those of [`add_tile`](super::tile::add_tile).

// Only the part for x86-64 uses everything.
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code, unused_imports))]

use super::tile::{Rows, Visible, weigh_row};
use super::{Piece, Source};
use crate::kernel::StepCx;
#[cfg(target_arch = "x86_64")]
use crate::kernels::avx512::attention::{self, Ahead};
use crate::state::{BLOCK_TOKENS, PartLayout, SeqBlocks};

/// What the rows of a batch have in common.
pub(super) struct Batch<'a> {
    pub visible: Visible,
    pub scale_and_cap: (f32, Option<f32>),
    /// The mask of each row over the visible keys, by row of the batch.
    pub mask: &'a dyn Fn(usize) -> Option<&'a [f32]>,
}

/// Keys and values of one head in one tile.
#[cfg(target_arch = "x86_64")]
pub(super) struct Direct {
    keys: *const u8,
    values: *const u8,
    /// Whether keys and values are F16 rather than F32.
    half: [bool; 2],
    level: crate::simd::Level,
    dim: usize,
    v_dim: usize,
    /// What to ask for while the scores of the first rows are made, and while their values are added.
    next: [Ahead; 2],
}

#[cfg(target_arch = "x86_64")]
impl Direct {
    /// Whether the machine has the instructions for tiles of this width.
    pub fn is_possible(cx: &StepCx<'_>, v_dim: usize) -> bool {
        cx.level == crate::simd::Level::Avx512 && v_dim.is_multiple_of(16)
    }

    /// A tile as it is stored, when that is a form that the kernels read.
    pub fn of(cx: &StepCx<'_>, source: &Source, piece: &Piece, tile: usize) -> Option<Direct> {
        use glia_core::DType;
        let Source::Cache([k, v]) = source else { return None };
        let half = |dtype| match dtype {
            DType::F32 => Some(false),
            DType::F16 => Some(true),
            _ => None,
        };
        if !Direct::is_possible(cx, v.dim) {
            return None;
        }
        let seq = cx.seqs.get(piece.seq)?;
        let values = crate::state::stored(seq, v, piece.kv_head, tile)?;
        Some(Direct {
            keys: crate::state::stored(seq, k, piece.kv_head, tile)?,
            values,
            half: [half(k.dtype)?, half(v.dtype)?],
            level: cx.level,
            dim: k.dim,
            v_dim: v.dim,
            next: [
                Ahead {
                    at: values,
                    bytes: v.head_bytes(),
                },
                ahead(seq, k, piece, tile + 1),
            ],
        })
    }

    /// A tile that was widened to F32: keys `[group of 16][dim][16]`, values `[token][dim]`.
    pub fn widened(
        cx: &StepCx<'_>,
        source: &Source,
        piece: &Piece,
        tile: usize,
        (keys, dim): (&[f32], usize),
        (values, v_dim): (&[f32], usize),
    ) -> Option<Direct> {
        if !Direct::is_possible(cx, v_dim) {
            return None;
        }
        let next = match (source, cx.seqs.get(piece.seq)) {
            (Source::Cache([k, v]), Some(seq)) => [v, k].map(|part| ahead(seq, part, piece, tile + 1)),
            _ => [Ahead::NONE; 2],
        };
        assert!(keys.len() >= BLOCK_TOKENS * dim && values.len() >= BLOCK_TOKENS * v_dim);
        Some(Direct {
            keys: keys.as_ptr().cast(),
            values: values.as_ptr().cast(),
            half: [false; 2],
            level: cx.level,
            dim,
            v_dim,
            next,
        })
    }

    /// Adds the tile to the running results of rows `first..first + n`, which see the same keys. Returns how many rows it
    /// took.
    pub fn add(
        &self,
        batch: &Batch<'_>,
        queries: &[f32],
        scores: &mut [f32],
        results: &mut Rows<'_>,
        (first, n): (usize, usize),
    ) -> usize {
        match n {
            8.. => self.rows::<8>(batch, queries, scores, results, first),
            4..8 => self.rows::<4>(batch, queries, scores, results, first),
            3 => self.rows::<3>(batch, queries, scores, results, first),
            2 => self.rows::<2>(batch, queries, scores, results, first),
            _ => self.rows::<1>(batch, queries, scores, results, first),
        }
    }

    fn rows<const R: usize>(
        &self,
        batch: &Batch<'_>,
        queries: &[f32],
        scores: &mut [f32],
        results: &mut Rows<'_>,
        first: usize,
    ) -> usize {
        let queries = &queries[first * self.dim..(first + R) * self.dim];
        let scores = &mut scores[first * BLOCK_TOKENS..(first + R) * BLOCK_TOKENS];
        // The first rows to come to a tile bring in what follows.
        let [during_scores, during_values] = match first {
            0 => self.next,
            _ => [Ahead::NONE; 2],
        };
        let visible = (batch.visible.from, batch.visible.to);
        // SAFETY: the machine has AVX-512; there are 64 keys of this head in this form. The rows were written in
        // an earlier group, and nobody writes to them now.
        unsafe {
            match self.half[0] {
                true => attention::scores::<R, true>(queries, self.dim, self.keys, visible, scores, during_scores),
                false => attention::scores::<R, false>(queries, self.dim, self.keys, visible, scores, during_scores),
            }
        }
        let plain = batch.scale_and_cap.1.is_none() && (0..R).all(|r| (batch.mask)(r).is_none());
        if plain {
            let (rows, stride) = results.from(first);
            // SAFETY: the machine has AVX-512.
            let keep = unsafe { attention::weigh::<R>(batch.scale_and_cap.0, visible, scores, rows, stride) };
            if let Some(keep) = keep {
                self.values::<R>(batch.visible, scores, &keep, results, first, during_values);
                return R;
            }
        }
        let mut keep = [0f32; R];
        let mut seen = [true; R];
        for r in 0..R {
            let scores = &mut scores[r * BLOCK_TOKENS..(r + 1) * BLOCK_TOKENS];
            let row = results.row(first + r);
            match weigh_row(
                self.level,
                batch.scale_and_cap,
                (batch.mask)(r),
                batch.visible,
                scores,
                row,
            ) {
                Some(factor) => keep[r] = factor,
                None => seen[r] = false,
            }
        }
        if seen == [true; R] {
            self.values::<R>(batch.visible, scores, &keep, results, first, during_values);
            return R;
        }
        for r in (0..R).filter(|&r| seen[r]) {
            let scores = &scores[r * BLOCK_TOKENS..(r + 1) * BLOCK_TOKENS];
            self.values::<1>(batch.visible, scores, &[keep[r]], results, first + r, during_values);
        }
        R
    }

    fn values<const R: usize>(
        &self,
        Visible { from, to }: Visible,
        weights: &[f32],
        keep: &[f32; R],
        results: &mut Rows<'_>,
        first: usize,
        ahead: Ahead,
    ) {
        let (acc, stride) = results.sums(first);
        // SAFETY: as in `rows`; only the visible values are read.
        unsafe {
            match self.half[1] {
                true => {
                    attention::values::<R, true>(
                        weights,
                        (from, to),
                        self.values,
                        self.v_dim,
                        keep,
                        acc,
                        stride,
                        ahead,
                    );
                }
                false => {
                    attention::values::<R, false>(
                        weights,
                        (from, to),
                        self.values,
                        self.v_dim,
                        keep,
                        acc,
                        stride,
                        ahead,
                    );
                }
            }
        }
    }
}

/// Tile `tile` of a part, to be asked for; nothing when the sequence has no such block.
#[cfg(target_arch = "x86_64")]
fn ahead(seq: &SeqBlocks, part: &PartLayout, piece: &Piece, tile: usize) -> Ahead {
    crate::state::stored(seq, part, piece.kv_head, tile).map_or(Ahead::NONE, |at| Ahead {
        at,
        bytes: part.head_bytes(),
    })
}

/// Other machines take rows one by one.
#[cfg(not(target_arch = "x86_64"))]
pub(super) enum Direct {}

#[cfg(not(target_arch = "x86_64"))]
impl Direct {
    pub fn of(_: &StepCx<'_>, _: &Source, _: &Piece, _: usize) -> Option<Direct> {
        None
    }

    pub fn widened(
        _: &StepCx<'_>,
        _: &Source,
        _: &Piece,
        _: usize,
        _: (&[f32], usize),
        _: (&[f32], usize),
    ) -> Option<Direct> {
        None
    }

    pub fn add(&self, _: &Batch<'_>, _: &[f32], _: &mut [f32], _: &mut Rows<'_>, _: (usize, usize)) -> usize {
        match *self {}
    }
}
