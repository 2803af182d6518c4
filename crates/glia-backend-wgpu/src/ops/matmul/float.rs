//! Products in F32.

use super::way::Tile;
use crate::gpu::Caps;
use crate::shader::{KernelKey, Source};

/// Where every thread works alone, in vectors of eight: rows and columns of a thread, and the most rows.
const ALONE: [([u32; 2], usize); 3] = [([1, 4], 1), ([4, 2], 4), ([8, 2], usize::MAX)];

/// Where workgroups share: few rows by threads that share k.
const SHARED: [(u32, usize); 3] = [(1, 1), (2, 2), (4, 8)];

/// And many in tiles.
const TILED: [(u32, usize); 2] = [(2, 24), (8, usize::MAX)];

/// The kernels for a device and a width of x.
pub(super) fn tiles(caps: &Caps, k: usize) -> Vec<Tile> {
    let alone = |&(each, most): &([u32; 2], usize)| {
        let [rows, columns] = each;
        let key = key(Source::MatMulAlone, each, k).flag("BROADCAST", caps.subgroup8);
        Tile::new(key, [rows, 8 * columns], columns, most)
    };
    let shared = |&(rows, most): &(u32, usize)| Tile::new(key(Source::MatMul, [rows, 4], k), [rows, 4], 4, most);
    let tiled = |&(run, most): &(u32, usize)| {
        let key = key(Source::MatMulTiled, [run, 4], k);
        Tile::new(key, [8 * run, 64], 4, most)
    };
    if caps.alone(k.div_ceil(32)) {
        return ALONE.iter().map(alone).collect();
    }
    SHARED.iter().map(shared).chain(TILED.iter().map(tiled)).collect()
}

fn key(source: Source, [rows, columns]: [u32; 2], k: usize) -> KernelKey {
    let alone = source == Source::MatMulAlone;
    let unit = if alone { 32 } else { 8 };
    KernelKey::new(source, &[])
        .flag("MUL8", false)
        .flag("MUL16", false)
        .flag("X4", k.is_multiple_of(4))
        .flag("TAIL", !k.is_multiple_of(unit))
        .flag("VEC4", alone)
        .int("M", rows)
        .int("RUN", rows)
        .int("SUMS", rows * columns)
        .int("TWO", 2)
        .int("FOUR", 4)
        .int("EIGHT", 8)
}
