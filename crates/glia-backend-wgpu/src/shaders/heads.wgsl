// The heads of an attention: each is normed where it should be, rotated where it should be, and goes back to where it
// was (queries) or into the cache (keys and values). Alone, a thread has a head; together, a workgroup has.
// Constants: 0 heads of all rows, 1 heads of q, 2 heads of k and v, 3 size of q and k, 4 size of v, 5 rotated pairs,
// 6 rows, 7 bits of the normed ones (q 1, k 2, v 4), 8 bits of the rotated ones, 9.. epsilon of each, 12.. what is
// added to each one's gain, 15.. where each one's gain begins (the largest number: none).
#include prelude
@group(0) @binding(0) var<storage, read> keys: array<f32>;
@group(0) @binding(1) var<storage, read> values: array<f32>;
@group(0) @binding(2) var<storage, read> gains: array<f32>;
@group(0) @binding(3) var<storage, read> trig: array<f32>;
@group(0) @binding(4) var<storage, read> table: array<u32>;
@group(0) @binding(5) var<storage, read_write> queries: array<f32>;
@group(0) @binding(6) var<storage, read_write> key_cache: array<u32>;
@group(0) @binding(7) var<storage, read_write> value_cache: array<u32>;

#include kv
#include reduce_part

const NONE = 0xffffffffu;

struct Head {
    // 0 for q, 1 for k, 2 for v.
    kind: u32,
    row: u32,
    // Where its elements begin.
    at: u32,
    // What they are divided by: twice, so that squares neither overflow nor vanish.
    unit: f32,
    root: f32,
    rotated: bool,
}

fn given(kind: u32, i: u32) -> f32 {
    if kind == 0u {
        return queries[i];
    }
    if kind == 1u {
        return keys[i];
    }
    return values[i];
}

fn normed(head: Head, e: u32) -> f32 {
    var v = given(head.kind, head.at + e);
#if NORM
    v = v / head.unit / head.root;
    let gain = p(15u + head.kind);
    if gain != NONE {
        v *= gains[gain + e] + pf(12u + head.kind);
    }
#endif
    return v;
}

fn pair_of(e: u32) -> u32 {
#if INTERLEAVED
    return e / 2u;
#else
    return e % max(p(5u), 1u);
#endif
}

// The elements of a pair.
fn pair_at(pair: u32) -> vec2<u32> {
#if INTERLEAVED
    return vec2<u32>(2u * pair, 2u * pair + 1u);
#else
    return vec2<u32>(pair, pair + p(5u));
#endif
}

// Cosine and sine.
fn turn(head: Head, pair: u32) -> vec2<f32> {
    let half = p(5u);
    return vec2<f32>(trig[head.row * half + pair], trig[(p(6u) + head.row) * half + pair]);
}

fn prepared(head: Head, e: u32) -> f32 {
    let v = normed(head, e);
#if ROPE
    if head.rotated && e < 2u * p(5u) {
        let pair = pair_of(e);
        let both = pair_at(pair);
        let is_first = e == both.x;
        let t = turn(head, pair);
        let other = normed(head, select(both.x, both.y, is_first));
        return v * t.x + select(other, -other, is_first) * t.y;
    }
#endif
    return v;
}

fn put(head: Head, word: u32, bits: u32) {
    if head.kind == 1u {
        key_cache[word] = bits;
    } else {
        value_cache[word] = bits;
    }
}

fn each_row(i: u32, thread: u32) {
    let lane = lane_of(thread);
    if i >= p(0u) {
        return;
    }
    let n_q = p(1u);
    let n_kv = p(2u);
    let row = i / (n_q + 2u * n_kv);
    let number = i % (n_q + 2u * n_kv);
    let kind = select(0u, 1u, number >= n_q) + select(0u, 1u, number >= n_q + n_kv);
    let d = select(p(3u), p(4u), kind == 2u);
    let in_row = select(number, select(number - n_q, number - n_q - n_kv, kind == 2u), kind > 0u);
    var head = Head(kind, row, (row * select(n_kv, n_q, kind == 0u) + in_row) * d, 1.0, 1.0, false);
#if ROPE
    head.rotated = ((p(8u) >> kind) & 1u) == 1u;
#endif
#if NORM
    var largest = 0.0;
    for (var e = lane; e < d; e += LANES) {
        largest = max(largest, abs(given(kind, head.at + e)));
    }
    largest = all_max(largest, thread);
    let unit = select(1.0, largest, largest > 1e15 || (largest < 1e-15 && largest > 0.0));
    var sum = 0.0;
    for (var e = lane; e < d; e += LANES) {
        let v = given(kind, head.at + e) / unit;
        sum += v * v;
    }
    sum = all_add(sum, thread) / f32(d);
    if ((p(7u) >> kind) & 1u) == 1u {
        head.unit = unit;
        head.root = sqrt(sum + pf(9u + kind) / unit / unit);
    }
#endif
    if kind == 0u {
        // Pair by pair, so that nobody reads what has changed.
        var n_rotated = 0u;
#if ROPE
        n_rotated = select(0u, p(5u), head.rotated);
        for (var pair = lane; pair < n_rotated; pair += LANES) {
            let both = pair_at(pair);
            let t = turn(head, pair);
            let x = normed(head, both.x);
            let y = normed(head, both.y);
            queries[head.at + both.x] = x * t.x - y * t.y;
            queries[head.at + both.y] = y * t.x + x * t.y;
        }
#endif
        for (var e = 2u * n_rotated + lane; e < d; e += LANES) {
            queries[head.at + e] = normed(head, e);
        }
        return;
    }
    let width = n_kv * d;
    let to = table[row] * row_words(width);
    let first = in_row * d;
#if KV_F32
    for (var e = lane; e < d; e += LANES) {
        put(head, to + first + e, bitcast<u32>(prepared(head, e)));
    }
#endif
#if KV_F16
    for (var w = lane; w < d / 2u; w += LANES) {
        put(head, to + first / 2u + w, to_f16(prepared(head, 2u * w)) | (to_f16(prepared(head, 2u * w + 1u)) << 16u));
    }
#endif
#if KV_BF16
    for (var w = lane; w < d / 2u; w += LANES) {
        put(head, to + first / 2u + w, to_bf16(prepared(head, 2u * w)) | (to_bf16(prepared(head, 2u * w + 1u)) << 16u));
    }
#endif
#if KV_Q8
    for (var b = lane; b < d / 32u; b += LANES) {
        var top = 0.0;
        for (var e = 0u; e < 32u; e++) {
            top = max(top, abs(prepared(head, 32u * b + e)));
        }
        let scale = top / 127.0;
        let inverse = select(0.0, 1.0 / scale, scale > 0.0);
        for (var w = 0u; w < 8u; w++) {
            let e = 32u * b + 4u * w;
            let v = vec4<f32>(
                prepared(head, e),
                prepared(head, e + 1u),
                prepared(head, e + 2u),
                prepared(head, e + 3u),
            );
            // Halves away from zero, as the format rounds.
            put(head, to + first / 4u + 8u * b + w, pack4xI8(vec4<i32>(sign(v) * floor(abs(v) * inverse + 0.5))));
        }
        let rounded = unpack2x16float(pack2x16float(vec2<f32>(scale, 0.0))).x;
        put(head, to + width / 4u + first / 32u + b, bitcast<u32>(rounded));
    }
#endif
}
