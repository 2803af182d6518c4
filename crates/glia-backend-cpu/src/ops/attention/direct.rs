//! Tiles of the cache that are read as they are stored, for several query rows at once, where the machine has AVX-512.
//! The bits are those of [`add_tile`](super::tile::add_tile).

// Only the part for x86-64 uses everything.
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code, unused_imports))]

use super::tile::{Rows, Visible, weigh_row};
use super::{Piece, Source};
use crate::kernel::StepCx;
use crate::state::BLOCK_TOKENS;

/// What the rows of a batch have in common.
pub(super) struct Batch<'a> {
    pub visible: Visible,
    pub scale_and_cap: (f32, Option<f32>),
    /// The mask of each row over the visible keys, by row of the batch.
    pub mask: &'a dyn Fn(usize) -> Option<&'a [f32]>,
}

/// Keys and values of one head in one block of a sequence.
#[cfg(target_arch = "x86_64")]
pub(super) struct Direct {
    keys: *const u8,
    values: *const u8,
    /// Whether keys and values are F16 rather than F32.
    half: [bool; 2],
    level: crate::simd::Level,
    dim: usize,
    v_dim: usize,
    /// The keys of the next tile, if there is one.
    next: Option<*const u8>,
}

#[cfg(target_arch = "x86_64")]
impl Direct {
    /// A tile, unless it is stored in another form or the machine has other instructions.
    pub fn of(cx: &StepCx<'_>, source: &Source, piece: &Piece, tile: usize) -> Option<Direct> {
        use glia_core::DType;
        let Source::Cache([k, v]) = source else { return None };
        let half = |dtype| match dtype {
            DType::F32 => Some(false),
            DType::F16 => Some(true),
            _ => None,
        };
        if cx.level != crate::simd::Level::Avx512 || !v.dim.is_multiple_of(16) {
            return None;
        }
        let seq = cx.seqs.get(piece.seq)?;
        Some(Direct {
            keys: crate::state::stored(seq, k, piece.kv_head, tile)?,
            values: crate::state::stored(seq, v, piece.kv_head, tile)?,
            half: [half(k.dtype)?, half(v.dtype)?],
            level: cx.level,
            dim: k.dim,
            v_dim: v.dim,
            next: crate::state::stored(seq, k, piece.kv_head, tile + 1),
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
        use crate::kernels::avx512::attention::{self, Ahead};
        let queries = &queries[first * self.dim..(first + R) * self.dim];
        let scores = &mut scores[first * BLOCK_TOKENS..(first + R) * BLOCK_TOKENS];
        // The first rows to come to a tile bring in what follows.
        let size = |half: bool, dim: usize| BLOCK_TOKENS * dim * if half { 2 } else { 4 };
        let (values, keys) = match first {
            0 => (
                Ahead {
                    at: self.values,
                    bytes: size(self.half[1], self.v_dim),
                },
                self.next.map_or(Ahead::NONE, |at| Ahead {
                    at,
                    bytes: size(self.half[0], self.dim),
                }),
            ),
            _ => (Ahead::NONE, Ahead::NONE),
        };
        // SAFETY: `of` found AVX-512; a block holds 64 keys of this head in this form. The rows were written in
        // an earlier group, and nobody writes to them now.
        unsafe {
            match self.half[0] {
                true => attention::scores::<R, true>(queries, self.dim, self.keys, scores, values),
                false => attention::scores::<R, false>(queries, self.dim, self.keys, scores, values),
            }
        }
        let plain = batch.scale_and_cap.1.is_none() && (0..R).all(|r| (batch.mask)(r).is_none());
        if plain {
            let visible = (batch.visible.from, batch.visible.to);
            let (rows, stride) = results.from(first);
            // SAFETY: `of` found AVX-512.
            let keep = unsafe { attention::weigh::<R>(batch.scale_and_cap.0, visible, scores, rows, stride) };
            if let Some(keep) = keep {
                self.values::<R>(batch.visible, scores, &keep, results, first, keys);
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
            self.values::<R>(batch.visible, scores, &keep, results, first, keys);
            return R;
        }
        for r in (0..R).filter(|&r| seen[r]) {
            let scores = &scores[r * BLOCK_TOKENS..(r + 1) * BLOCK_TOKENS];
            self.values::<1>(batch.visible, scores, &[keep[r]], results, first + r, keys);
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
        ahead: crate::kernels::avx512::attention::Ahead,
    ) {
        use crate::kernels::avx512::attention;
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

/// Other machines read tiles through a copy.
#[cfg(not(target_arch = "x86_64"))]
pub(super) enum Direct {}

#[cfg(not(target_arch = "x86_64"))]
impl Direct {
    pub fn of(_: &StepCx<'_>, _: &Source, _: &Piece, _: usize) -> Option<Direct> {
        None
    }

    pub fn add(&self, _: &Batch<'_>, _: &[f32], _: &mut [f32], _: &mut Rows<'_>, _: (usize, usize)) -> usize {
        match *self {}
    }
}
