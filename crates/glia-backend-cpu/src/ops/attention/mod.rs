//! Scaled dot-product attention: online softmax over tiles of 64 keys at absolute positions, within splits of 512
//! keys that are merged in order. The result of a row depends on its position only, not on its neighbours in a step.

mod direct;
mod split;
mod tile;

use std::ops::Range;
use std::sync::Arc;

use glia_core::{BackendError, Sdpa, SeqRows};

use crate::arena::Chunk;
use crate::error::invalid;
use crate::kernel::{Kernel, Scratch, StepCx, Work};
use crate::state::{BLOCK_TOKENS, LANES, PartLayout, read_keys, read_values};

use self::direct::{Batch, Direct};
use self::split::Cut;
pub(crate) use self::split::Merge;
use self::tile::{Rows, Visible, add_tile, finish, merge};

/// Tiles of a split.
const SPLIT_TILES: usize = 8;
/// Keys of a split.
const SPLIT_KEYS: usize = SPLIT_TILES * BLOCK_TOKENS;

/// Where keys and values come from.
pub(crate) enum Source {
    /// The blocks of each sequence.
    Cache([PartLayout; 2]),
    /// Plain values `[Tk, Hkv, D]` and `[Tk, Hkv, Dv]`; `per_row` when their rows are those of the step.
    Plain { k: u32, v: u32, per_row: bool },
}

pub(crate) struct Attention {
    pub op: Sdpa,
    pub q: u32,
    pub source: Source,
    pub mask: Option<u32>,
    pub sinks: Option<u32>,
    pub out: u32,
    /// Whether the rows of `q` are those of the step.
    pub q_per_row: bool,
}

/// One piece of work: some query rows of one sequence, all query heads of one K/V head.
struct Piece {
    seq: usize,
    kv_head: usize,
    /// First query row within `q`, and how many.
    first: usize,
    n: usize,
    /// Absolute position of the first query (negative when there are fewer keys than queries), and number of keys.
    pos: i64,
    n_keys: usize,
    /// First key row of a plain source.
    key_row: usize,
}

struct Dims {
    n_heads: usize,
    n_kv: usize,
    dim: usize,
    v_dim: usize,
}

impl Attention {
    fn dims(&self, cx: &StepCx<'_>) -> Result<Dims, BackendError> {
        let (&[_, n_heads, dim], &[_, out_heads, v_dim]) =
            (&cx.values.shape(self.q)?[..], &cx.values.shape(self.out)?[..])
        else {
            return Err(invalid("sdpa", "q and the result must have rank 3"));
        };
        let n_kv = match &self.source {
            Source::Cache([k, v]) if k.dim == dim && v.dim == v_dim && k.n_heads == v.n_heads => k.n_heads,
            Source::Plain { k, v, .. } => {
                let (k, v) = (cx.values.shape(*k)?, cx.values.shape(*v)?);
                if k.rank() != 3 || v.rank() != 3 || k[..2] != v[..2] || k[2] != dim || v[2] != v_dim {
                    return Err(invalid("sdpa", format!("keys {k} and values {v} do not fit together")));
                }
                k[1]
            }
            Source::Cache(_) => return Err(invalid("sdpa", "the cache has other sizes than the queries")),
        };
        if n_kv == 0 || !n_heads.is_multiple_of(n_kv) || out_heads != n_heads {
            return Err(invalid("sdpa", "query heads must be a multiple of key/value heads"));
        }
        Ok(Dims {
            n_heads,
            n_kv,
            dim,
            v_dim,
        })
    }

    /// Query rows, first key row and number of keys of entry `i` of the step's rows.
    fn span(&self, cx: &StepCx<'_>, i: usize) -> Result<(usize, usize, usize, usize), BackendError> {
        let row: Option<&SeqRows> = cx.rows.get(i);
        let (first, n) = match row {
            Some(row) if self.q_per_row => (row.first_row, row.n_rows),
            _ => (0, cx.values.shape(self.q)?[0]),
        };
        Ok(match (&self.source, row) {
            (Source::Cache(_), Some(row)) => (first, n, 0, row.pos.saturating_add(row.n_rows)),
            (Source::Cache(_), None) => (first, 0, 0, 0),
            (Source::Plain { per_row: true, .. }, Some(row)) => (first, n, row.first_row, row.n_rows),
            (Source::Plain { k, .. }, _) => (first, n, 0, cx.values.shape(*k)?[0]),
        })
    }

    fn n_spans(&self, cx: &StepCx<'_>) -> usize {
        if self.q_per_row || matches!(self.source, Source::Cache(_)) {
            cx.rows.len().max(usize::from(!matches!(self.source, Source::Cache(_))))
        } else {
            1
        }
    }

    fn rows_per_piece(dims: &Dims) -> usize {
        (32 / (dims.n_heads / dims.n_kv).max(1)).max(1)
    }

    fn piece(&self, cx: &StepCx<'_>, dims: &Dims, mut item: usize) -> Result<Piece, BackendError> {
        let per = Self::rows_per_piece(dims);
        for seq in 0..self.n_spans(cx) {
            let (first, n, key_row, n_keys) = self.span(cx, seq)?;
            let pieces = n.div_ceil(per) * dims.n_kv;
            if item < pieces {
                let (kv_head, block) = (item % dims.n_kv, item / dims.n_kv);
                let at = block * per;
                return Ok(Piece {
                    seq,
                    kv_head,
                    first: first + at,
                    n: per.min(n - at),
                    pos: n_keys as i64 - n as i64 + at as i64,
                    n_keys,
                    key_row,
                });
            }
            item -= pieces;
        }
        Err(invalid("sdpa", "no such piece of work"))
    }

    /// Keys that the query at absolute position `pos` sees.
    fn visible(&self, pos: i64, n_keys: usize) -> (usize, usize) {
        let end = if self.op.causal {
            usize::try_from(pos.saturating_add(1)).unwrap_or(0).min(n_keys)
        } else {
            n_keys
        };
        let start = match self.op.window {
            Some(w) => usize::try_from(
                pos.saturating_add(1)
                    .saturating_sub(i64::try_from(w).unwrap_or(i64::MAX)),
            )
            .unwrap_or(0),
            None => 0,
        };
        (start.min(end), end)
    }

    /// One tile of keys and values of a piece into F32.
    fn load(
        &self,
        cx: &StepCx<'_>,
        dims: &Dims,
        piece: &Piece,
        (tile, n): (usize, usize),
        (keys, values): (&mut [f32], &mut [f32]),
    ) -> Result<(), BackendError> {
        match &self.source {
            Source::Cache([k, v]) => {
                let seq = cx
                    .seqs
                    .get(piece.seq)
                    .ok_or_else(|| invalid("sdpa", "a sequence has no memory"))?;
                // SAFETY: the rows were written in an earlier group, and nobody writes to them now.
                let found = unsafe {
                    read_keys(seq, k, piece.kv_head, tile, n, keys)
                        && read_values(seq, v, piece.kv_head, tile, n, values)
                };
                if !found {
                    return Err(invalid("sdpa", "a block of the cache is missing"));
                }
            }
            Source::Plain { k, v, .. } => {
                let (all_k, all_v) = (cx.values.read::<f32>(*k)?, cx.values.read::<f32>(*v)?);
                for t in 0..n {
                    let row = (piece.key_row + tile * BLOCK_TOKENS + t) * dims.n_kv + piece.kv_head;
                    let key = &all_k[row * dims.dim..(row + 1) * dims.dim];
                    let group = &mut keys[t / LANES * dims.dim * LANES..];
                    for (d, &x) in key.iter().enumerate() {
                        group[d * LANES + t % LANES] = x;
                    }
                    values[t * dims.v_dim..(t + 1) * dims.v_dim]
                        .copy_from_slice(&all_v[row * dims.v_dim..(row + 1) * dims.v_dim]);
                }
            }
        }
        Ok(())
    }

    fn mask_row<'a>(
        &self,
        mask: Option<(&'a [f32], bool)>,
        shape: (usize, usize),
        row: usize,
        head: usize,
    ) -> Option<&'a [f32]> {
        let (all, per_head) = mask?;
        let (tq, tk) = shape;
        let row = if per_head { head * tq + row } else { row };
        all.get(row * tk..(row + 1) * tk)
    }

    /// Pieces of a step, and the largest number of keys.
    fn extent(&self, cx: &StepCx<'_>, dims: &Dims) -> Result<(usize, usize), BackendError> {
        let (mut n_pieces, mut longest) = (0, 0);
        for i in 0..self.n_spans(cx) {
            let (_, n_queries, _, n_keys) = self.span(cx, i)?;
            if self.op.causal && n_queries > n_keys {
                let reason =
                    format!("causal attention needs at least as many keys as queries, not {n_keys} and {n_queries}");
                return Err(crate::error::shape("sdpa", reason));
            }
            n_pieces += n_queries.div_ceil(Self::rows_per_piece(dims)) * dims.n_kv;
            longest = longest.max(n_keys);
        }
        Ok((n_pieces, longest))
    }

    /// Splits of a piece, all of them or one, merged into `total`.
    fn attend(
        &self,
        cx: &StepCx<'_>,
        dims: &Dims,
        piece: &Piece,
        only: Option<usize>,
        scratch: &mut [f32],
        total: &mut Rows<'_>,
    ) -> Result<(), BackendError> {
        let group = dims.n_heads / dims.n_kv;
        let n_rows = piece.n * group;
        let q = cx.values.read::<f32>(self.q)?;
        let sizes = self.scratch_floats(dims, n_rows);
        let mut rest = scratch;
        let mut take = |n: usize| {
            let (part, tail) = std::mem::take(&mut rest).split_at_mut(n);
            rest = tail;
            part
        };
        let (queries, keys, values) = (take(sizes[0]), take(sizes[1]), take(sizes[2]));
        let mut part = Rows::new(take(sizes[3]), n_rows, dims.v_dim);
        let scores = take(sizes[4]);
        for r in 0..n_rows {
            let (row, head) = (piece.first + r / group, piece.kv_head * group + r % group);
            let from = (row * dims.n_heads + head) * dims.dim;
            queries[r * dims.dim..(r + 1) * dims.dim].copy_from_slice(&q[from..from + dims.dim]);
        }
        let spans: Vec<(usize, usize)> = (0..piece.n)
            .map(|i| self.visible(piece.pos + i as i64, piece.n_keys))
            .collect();
        let lo = spans.iter().filter(|s| s.0 < s.1).map(|s| s.0).min().unwrap_or(0);
        let hi = spans.iter().map(|s| s.1).max().unwrap_or(0);
        let mask = match self.mask {
            Some(id) => Some((cx.values.read::<f32>(id)?, cx.values.shape(id)?.rank() == 3)),
            None => None,
        };
        let mask_shape = (cx.values.shape(self.q)?[0], piece.n_keys);
        total.clear();
        let tiles = lo / BLOCK_TOKENS..hi.div_ceil(BLOCK_TOKENS);
        let mut splits = tiles.start / SPLIT_TILES..tiles.end.div_ceil(SPLIT_TILES);
        if let Some(split) = only {
            splits = if splits.contains(&split) {
                split..split + 1
            } else {
                0..0
            };
        }
        for split in splits {
            part.clear();
            for tile in (split * SPLIT_TILES).max(tiles.start)..((split + 1) * SPLIT_TILES).min(tiles.end) {
                let start = tile * BLOCK_TOKENS;
                let n = BLOCK_TOKENS.min(hi - start);
                let seen = |r: usize| {
                    let (from, to) = spans[r / group];
                    let (from, to) = (from.max(start), to.min(start + n));
                    (from < to).then(|| Visible {
                        from: from - start,
                        to: to - start,
                    })
                };
                let mask_of = |r: usize, visible: Visible| {
                    let (row, head) = (piece.first + r / group, piece.kv_head * group + r % group);
                    self.mask_row(mask, mask_shape, row, head)
                        .and_then(|m| m.get(start + visible.from..start + visible.to))
                };
                let direct = match Direct::of(cx, &self.source, piece, tile) {
                    Some(direct) => Some(direct),
                    None => {
                        self.load(cx, dims, piece, (tile, n), (&mut *keys, &mut *values))?;
                        Direct::widened(
                            cx,
                            &self.source,
                            piece,
                            tile,
                            (&*keys, dims.dim),
                            (&*values, dims.v_dim),
                        )
                    }
                };
                let mut r = 0;
                while r < n_rows {
                    let Some(visible) = seen(r) else {
                        r += 1;
                        continue;
                    };
                    if mask.is_some() && mask_of(r, visible).is_none() {
                        return Err(invalid("sdpa", "the mask has another size"));
                    }
                    let scale_and_cap = (self.op.scale, self.op.softcap);
                    if let Some(direct) = &direct {
                        let same = (r..n_rows).take_while(|&r| seen(r) == Some(visible)).count();
                        let batch = Batch {
                            visible,
                            scale_and_cap,
                            mask: &|i| mask_of(r + i, visible),
                        };
                        r += direct.add(&batch, queries, scores, &mut part, (r, same));
                        continue;
                    }
                    add_tile(
                        cx.level,
                        &queries[r * dims.dim..(r + 1) * dims.dim],
                        keys,
                        values,
                        scale_and_cap,
                        mask_of(r, visible),
                        visible,
                        &mut scores[r * BLOCK_TOKENS..(r + 1) * BLOCK_TOKENS],
                        part.row(r),
                    );
                    r += 1;
                }
            }
            for r in 0..n_rows {
                merge(cx.level, total.row(r), part.row(r));
            }
        }
        Ok(())
    }

    /// Floats of queries, keys, values, the results of a split, and scores.
    fn scratch_floats(&self, dims: &Dims, n_rows: usize) -> [usize; 5] {
        [
            n_rows * dims.dim,
            BLOCK_TOKENS * dims.dim,
            BLOCK_TOKENS * dims.v_dim,
            n_rows * (dims.v_dim + 2),
            n_rows * BLOCK_TOKENS,
        ]
    }

    /// Writes the rows of a piece: `finish(row, sink, out)` makes each.
    fn put(
        &self,
        cx: &StepCx<'_>,
        dims: &Dims,
        piece: &Piece,
        chunk: &mut Chunk,
        mut finish: impl FnMut(usize, Option<f32>, &mut [f32]),
    ) -> Result<(), BackendError> {
        let group = dims.n_heads / dims.n_kv;
        let sinks = match self.sinks {
            Some(id) => Some(cx.values.read::<f32>(id)?),
            None => None,
        };
        for r in 0..piece.n * group {
            let (row, head) = (piece.first + r / group, piece.kv_head * group + r % group);
            let sink = sinks.and_then(|s| s.get(head).copied());
            let to: *mut f32 =
                cx.values
                    .write_ptr(chunk, self.out, (row * dims.n_heads + head) * dims.v_dim, dims.v_dim)?;
            // SAFETY: in bounds by `write_ptr`; every (row, head) belongs to exactly one piece.
            let out = unsafe { std::slice::from_raw_parts_mut(to, dims.v_dim) };
            finish(r, sink, out);
        }
        Ok(())
    }
}

impl Kernel for Arc<Attention> {
    fn work(&self, cx: &StepCx<'_>) -> Result<Work, BackendError> {
        let dims = self.dims(cx)?;
        if self.mask.is_some() && cx.rows.len() > 1 {
            return Err(invalid("sdpa", "a mask has no row per token: one sequence at a time"));
        }
        let n_pieces = self.extent(cx, &dims)?.0;
        let n_splits = Cut::of(self, cx, &dims)?.map_or(1, |cut| cut.n_splits);
        Ok(Work::each(n_pieces.saturating_mul(n_splits)))
    }

    fn partial_floats(&self, cx: &StepCx<'_>) -> Result<usize, BackendError> {
        Ok(Cut::of(self, cx, &self.dims(cx)?)?.map_or(0, |cut| cut.all_floats()))
    }

    fn run(&self, cx: &StepCx<'_>, chunk: &mut Chunk, scratch: &mut Scratch) -> Result<(), BackendError> {
        let dims = self.dims(cx)?;
        let cut = Cut::of(self, cx, &dims)?;
        let items: Range<usize> = chunk.items();
        for item in items {
            let n_splits = cut.map_or(1, |cut| cut.n_splits);
            let piece = self.piece(cx, &dims, item / n_splits)?;
            let n_rows = piece.n * (dims.n_heads / dims.n_kv);
            let n_results = n_rows * (dims.v_dim + 2);
            let n_scratch: usize = self.scratch_floats(&dims, n_rows).iter().sum();
            match cut {
                Some(cut) => {
                    let results = cx.partials.write(chunk, item * cut.floats, n_results)?;
                    let mut results = Rows::new(results, n_rows, dims.v_dim);
                    let scratch = scratch.floats(n_scratch);
                    self.attend(cx, &dims, &piece, Some(item % n_splits), scratch, &mut results)?;
                }
                None => {
                    let (results, scratch) = scratch.floats(n_results + n_scratch).split_at_mut(n_results);
                    let mut total = Rows::new(results, n_rows, dims.v_dim);
                    self.attend(cx, &dims, &piece, None, scratch, &mut total)?;
                    self.put(cx, &dims, &piece, chunk, |r, sink, out| finish(total.row(r), sink, out))?;
                }
            }
        }
        Ok(())
    }
}
