//! Packing of many matrices at once: one region, pieces spread over threads, each read from the file as it is packed.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

use glia_core::{BackendError, Precision, Tensor};

use super::plan::Plan;
use super::region::Region;
use super::{PackedMatrix, Store, check_isa};
use crate::isa::Isa;
use crate::simd::Level;

/// Bytes of the file that a piece of work reads: small enough that few pages are in flight, large enough to hand out.
const PIECE_BYTES: usize = 1 << 18;
/// Where a matrix may begin: a cache line.
const ALIGN: usize = 64;

/// Work that is done with every index below a number.
pub(super) type Job<'a> = &'a (dyn Fn(usize) + Sync);

struct Piece<'a> {
    matrix: usize,
    tiles: Range<usize>,
    out: &'a mut [u8],
}

/// Packs `weights` for `isa`. `spread` calls its job with every index below a number, on any threads, and returns when
/// all are done.
///
/// # Errors
/// [`BackendError`] of the first weight that cannot be packed, with its index.
pub(crate) fn pack_all(
    weights: &[Tensor],
    precision: Precision,
    isa: Isa,
    store: Store,
    spread: &mut dyn FnMut(usize, Job<'_>),
) -> Result<Vec<PackedMatrix>, (usize, BackendError)> {
    check_isa(isa).map_err(|e| (0, e))?;
    let mut plans = Vec::with_capacity(weights.len());
    let mut ranges = Vec::with_capacity(weights.len());
    let mut end = 0usize;
    let no_memory = |needed_bytes| BackendError::OutOfMemory {
        what: "packed weights".to_owned(),
        needed_bytes,
        limit_bytes: isize::MAX as usize,
    };
    for (i, w) in weights.iter().enumerate() {
        let plan = Plan::new(w.dtype(), w.shape(), precision, isa, store).map_err(|e| (i, e))?;
        if plan.store == Store::Mapped {
            w.bytes().map_err(|e| (i, e.into()))?;
        }
        let start = end.next_multiple_of(ALIGN);
        end = start.checked_add(plan.bytes()).ok_or((i, no_memory(usize::MAX)))?;
        plans.push(plan);
        ranges.push(start..end);
    }
    let mut region = Region::zeroed(end).ok_or((0, no_memory(end)))?;
    let pieces: Vec<Mutex<Piece<'_>>> = cut(&plans, &ranges, region.as_mut_slice());
    let failed: Mutex<Option<(usize, BackendError)>> = Mutex::new(None);
    let buffers: Mutex<Vec<Vec<u8>>> = Mutex::default();
    spread(pieces.len(), &|i| {
        let mut piece = lock(&pieces[i]);
        let Piece { matrix, tiles, out } = &mut *piece;
        let (plan, w) = (&plans[*matrix], &weights[*matrix]);
        let mut buffer = lock(&buffers).pop().unwrap_or_default();
        match w.fetch(plan.source(tiles.clone()), &mut buffer) {
            Ok(source) => plan.fill(Level::of(isa), source, out),
            Err(e) => {
                lock(&failed).get_or_insert((*matrix, e.into()));
            }
        }
        lock(&buffers).push(buffer);
    });
    drop(pieces);
    if let Some(e) = failed.into_inner().unwrap_or_else(|e| e.into_inner()) {
        return Err(e);
    }
    let region = region.freeze().ok_or((0, no_memory(end)))?;
    let packed = plans.into_iter().zip(weights).zip(ranges).map(|((plan, w), range)| {
        let rows = (plan.store == Store::Mapped).then(|| w.clone());
        PackedMatrix::new(plan, isa, rows, region.part(range))
    });
    Ok(packed.collect())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// Pieces of about [`PIECE_BYTES`], each with its own part of `memory`.
fn cut<'a>(plans: &[Plan], ranges: &[Range<usize>], memory: &'a mut [u8]) -> Vec<Mutex<Piece<'a>>> {
    let mut pieces = Vec::new();
    let (mut rest, mut at) = (memory, 0);
    let mut take = |range: Range<usize>| {
        let (_, tail) = std::mem::take(&mut rest).split_at_mut(range.start - at);
        let (part, tail) = tail.split_at_mut(range.len());
        (rest, at) = (tail, range.end);
        part
    };
    for (matrix, (plan, range)) in plans.iter().zip(ranges).enumerate() {
        if plan.bytes() == 0 {
            continue;
        }
        let per = (PIECE_BYTES / (plan.row_bytes * PackedMatrix::TILE).max(1)).max(1);
        for first in (0..plan.n_tiles()).step_by(per) {
            let tiles = first..plan.n_tiles().min(first + per);
            let start = range.start + tiles.start * plan.tile_bytes;
            let out = take(start..start + tiles.len() * plan.tile_bytes);
            pieces.push(Mutex::new(Piece { matrix, tiles, out }));
        }
    }
    pieces
}
