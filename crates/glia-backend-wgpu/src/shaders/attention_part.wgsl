// What attention kernels share: where queries, keys and values lie, and what a score becomes.
//
// The queries of a sequence that read the same keys and values (the heads of a group, row by row) are taken in tiles
// of QUERIES; keys are cut in splits at absolute positions. Heads are read as chunks of eight elements, with zeros
// beyond their end.
//
// Constants: 0 tiles, 1 splits, 2 keys of a split, 3 first split, 4 scale, 5 window (0: none), 6 soft cap (0: none),
// 7 keys of dense K, 8 whether the mask has a plane per head, 9 where positions begin in the table, 10 sequences,
// 11 where they begin in the table, 12 where blocks begin, 13 rows, 14 tiles of every sequence (0: they differ),
// 15 and 16 fours of elements of a key and of a value.
@group(0) @binding(0) var<storage, read> q: array<f32>;
#if K_WIDE
@group(0) @binding(1) var<storage, read> keys: array<vec4<u32>>;
#else
@group(0) @binding(1) var<storage, read> keys: array<u32>;
#endif
#if V_WIDE
@group(0) @binding(2) var<storage, read> values: array<vec4<u32>>;
#else
@group(0) @binding(2) var<storage, read> values: array<u32>;
#endif
#if CACHED
@group(0) @binding(3) var<storage, read> table: array<u32>;
#else
@group(0) @binding(3) var<storage, read> mask: array<f32>;
#endif
@group(0) @binding(4) var<storage, read> sinks: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;
@group(0) @binding(6) var<storage, read_write> parts: array<f32>;

const HEADS = {{HEADS}};
const GROUPS = {{GROUPS}};
const PER_GROUP = {{PER_GROUP}};
const D = {{D}};
const DV = {{DV}};
const NK = {{NK}};
const NV = {{NV}};
const QUERIES = {{QUERIES}};

// Below every score.
const LOWEST = -3.4028235e38;

#include kv

struct Eight {
    a: vec4<f32>,
    b: vec4<f32>,
}

#if KV_F32
fn one(w: u32, e: u32) -> f32 {
    return bitcast<f32>(w);
}
#endif
#if KV_F16
fn one(w: u32, e: u32) -> f32 {
    return unpack2x16float(w)[e % 2u];
}

fn eight(w: vec4<u32>) -> Eight {
    return Eight(
        vec4<f32>(unpack2x16float(w.x), unpack2x16float(w.y)),
        vec4<f32>(unpack2x16float(w.z), unpack2x16float(w.w)),
    );
}
#endif
#if KV_BF16
fn one(w: u32, e: u32) -> f32 {
    return bitcast<f32>((w >> (16u * (e % 2u))) << 16u);
}

fn eight(w: vec4<u32>) -> Eight {
    let low = bitcast<vec4<f32>>(w << vec4<u32>(16u));
    let high = bitcast<vec4<f32>>(w & vec4<u32>(0xffff0000u));
    return Eight(vec4<f32>(low.x, high.x, low.y, high.y), vec4<f32>(low.z, high.z, low.w, high.w));
}
#endif
#if KV_Q8
fn one(w: u32, e: u32) -> f32 {
    return f32(unpack4xI8(w)[e % 4u]);
}

fn eight(w: vec2<u32>, scale: u32) -> Eight {
    let d = bitcast<f32>(scale);
    return Eight(vec4<f32>(unpack4xI8(w.x)) * d, vec4<f32>(unpack4xI8(w.y)) * d);
}
#endif

// Elements `8 chunk ..` of the key of a group in the row that begins at word `at`.
fn key8(at: u32, group: u32, chunk: u32) -> Eight {
    let e = group * D + 8u * chunk;
#if K_EIGHTS
#if KV_F32
    let w = (at + e) / 4u;
    return Eight(bitcast<vec4<f32>>(keys[w]), bitcast<vec4<f32>>(keys[w + 1u]));
#else
#if KV_Q8
    let w = at + e / 4u;
    return eight(vec2<u32>(keys[w], keys[w + 1u]), keys[at + GROUPS * D / 4u + e / 32u]);
#else
    return eight(keys[(at + e / 2u) / 4u]);
#endif
#endif
#else
    return Eight(
        vec4<f32>(key1(at, e, 8u * chunk), key1(at, e + 1u, 8u * chunk + 1u), key1(at, e + 2u, 8u * chunk + 2u), key1(at, e + 3u, 8u * chunk + 3u)),
        vec4<f32>(key1(at, e + 4u, 8u * chunk + 4u), key1(at, e + 5u, 8u * chunk + 5u), key1(at, e + 6u, 8u * chunk + 6u), key1(at, e + 7u, 8u * chunk + 7u)),
    );
#endif
}

fn value8(at: u32, group: u32, chunk: u32) -> Eight {
    let e = group * DV + 8u * chunk;
#if V_EIGHTS
#if KV_F32
    let w = (at + e) / 4u;
    return Eight(bitcast<vec4<f32>>(values[w]), bitcast<vec4<f32>>(values[w + 1u]));
#else
#if KV_Q8
    let w = at + e / 4u;
    return eight(vec2<u32>(values[w], values[w + 1u]), values[at + GROUPS * DV / 4u + e / 32u]);
#else
    return eight(values[(at + e / 2u) / 4u]);
#endif
#endif
#else
    return Eight(
        vec4<f32>(value1(at, e, 8u * chunk), value1(at, e + 1u, 8u * chunk + 1u), value1(at, e + 2u, 8u * chunk + 2u), value1(at, e + 3u, 8u * chunk + 3u)),
        vec4<f32>(value1(at, e + 4u, 8u * chunk + 4u), value1(at, e + 5u, 8u * chunk + 5u), value1(at, e + 6u, 8u * chunk + 6u), value1(at, e + 7u, 8u * chunk + 7u)),
    );
#endif
}

#if !K_EIGHTS
// Element `e` of a row, which is number `i` of its head.
fn key1(at: u32, e: u32, i: u32) -> f32 {
    if i >= D {
        return 0.0;
    }
#if KV_Q8
    return one(keys[at + e / 4u], e) * bitcast<f32>(keys[at + GROUPS * D / 4u + e / 32u]);
#else
    return one(keys[at + e / ELEMS_PER_WORD], e);
#endif
}
#endif

#if !V_EIGHTS
fn value1(at: u32, e: u32, i: u32) -> f32 {
    if i >= DV {
        return 0.0;
    }
#if KV_Q8
    return one(values[at + e / 4u], e) * bitcast<f32>(values[at + GROUPS * DV / 4u + e / 32u]);
#else
    return one(values[at + e / ELEMS_PER_WORD], e);
#endif
}
#endif

// Four elements of a query, times the scale.
fn query4(place: u32, e: u32) -> vec4<f32> {
    return pf(4u) * vec4<f32>(query1(place, e), query1(place, e + 1u), query1(place, e + 2u), query1(place, e + 3u));
}

fn query1(place: u32, e: u32) -> f32 {
    return select(0.0, q[place * D + e], e < D);
}

// A tile of queries: of which sequence, and its first query there.
struct Tile {
    first_row: u32,
    n_queries: u32,
    past: i32,
    n_keys: u32,
    blocks: u32,
    first: u32,
}

fn tile_of(index: u32) -> Tile {
    var left = index;
    var seq = 0u;
#if CACHED
    let each = p(14u);
    if each > 0u {
        seq = left / each;
        left = left % each;
    } else {
        for (; seq + 1u < p(10u); seq++) {
            let n = (table[p(11u) + 4u * seq + 1u] * PER_GROUP + QUERIES - 1u) / QUERIES;
            if left < n {
                break;
            }
            left -= n;
        }
    }
    let at = p(11u) + 4u * seq;
    let rows = table[at + 1u];
    let past = table[at + 2u];
    return Tile(table[at], rows * PER_GROUP, i32(past), past + rows, p(12u) + table[at + 3u], left * QUERIES);
#else
    return Tile(0u, p(13u) * PER_GROUP, i32(p(7u)) - i32(p(13u)), p(7u), 0u, left * QUERIES);
#endif
}

// The query `i` of a tile, the last one again where there are fewer: number in its sequence.
fn query_of(tile: Tile, i: u32) -> u32 {
    return min(tile.first + i, tile.n_queries - 1u);
}

// Row and head of a query as one number, as rows of q and y are counted.
fn place_of(tile: Tile, query: u32, group: u32) -> u32 {
    return (tile.first_row + query / PER_GROUP) * HEADS + group * PER_GROUP + query % PER_GROUP;
}

fn position_of(tile: Tile, query: u32) -> i32 {
    return tile.past + i32(query / PER_GROUP);
}

// The first key that a position sees, and the one after the last.
fn first_of(position: i32) -> u32 {
    if p(5u) > 0u && position >= i32(p(5u)) {
        return u32(position) - p(5u) + 1u;
    }
    return 0u;
}

fn end_of(tile: Tile, position: i32) -> u32 {
#if CAUSAL
    return min(tile.n_keys, u32(max(position + 1, 0)));
#else
    return tile.n_keys;
#endif
}

// The row of the cache, or of dense K and V, that holds a key.
fn row_of_key(tile: Tile, j: u32) -> u32 {
#if CACHED
    return table[tile.blocks + j / {{BLOCK}}] * {{BLOCK}} + j % {{BLOCK}};
#else
    return j;
#endif
}

fn capped(score: f32) -> f32 {
    let cap = pf(6u);
    if cap == 0.0 {
        return score;
    }
    let z = score / cap;
    let t = exp(-2.0 * min(abs(z), 10.0));
    return cap * sign(z) * (1.0 - t) / (1.0 + t);
}

// The score of key `j` for a query, or a number below every score where the query does not see it.
struct Score {
    value: f32,
    seen: bool,
}

fn score_of(tile: Tile, query: u32, place: u32, j: u32, product: f32) -> Score {
    let position = position_of(tile, query);
    var score = capped(product);
    var seen = j >= first_of(position) && j < end_of(tile, position);
#if MASK
    let row = place / HEADS;
    let m = mask[(place % HEADS * p(8u) * p(13u) + row) * p(7u) + min(j, p(7u) - 1u)];
    // Minus infinity.
    seen = seen && bitcast<u32>(m) != 0xff800000u;
    score += m;
#endif
    // A score that is seen stays above what is not; NaN stays NaN.
    score = select(score, -3.4028233e38, score < -3.4028233e38);
    return Score(select(LOWEST, score, seen), seen);
}

// A sum with one more value: what is not seen does not count, whatever it is.
fn added(sum: vec4<f32>, shrink: f32, weight: f32, value: vec4<f32>, seen: bool) -> vec4<f32> {
    return fma(sum, vec4<f32>(shrink), select(vec4<f32>(), weight * value, seen));
}

// Where the part of a query in a split begins, and where the parts' largest scores and sums do.
fn part_at(place: u32, split: u32) -> u32 {
    return (place * p(1u) + split) * 8u * NV;
}

fn stats_at(place: u32, split: u32) -> u32 {
    return p(13u) * HEADS * p(1u) * 8u * NV + 2u * (place * p(1u) + split);
}

// What the elements of a query are multiplied with in the end, when `top` is its largest score.
fn last_factor(place: u32, top: f32, sum: f32) -> f32 {
#if SINKS
    let sink = sinks[place % HEADS];
    let highest = max(top, sink);
    let shrink = exp(top - highest);
    return shrink / (sum * shrink + exp(sink - highest));
#else
    // Of NaN `!=` may be false: it is asked the other way round.
    return select(1.0 / sum, 0.0, sum == 0.0);
#endif
}
