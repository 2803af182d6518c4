// Attention, one thread for a query of a head: an online softmax over its keys.
// Constants: 0 rows, 1 heads, 2 heads of K and V, 3 size of q and k, 4 scale, 5 window (0: none), 6 soft cap (0: none),
// 7 keys, 8 whether the mask has a plane per head, 9 where positions begin in the table, 10 sequences of rows,
// 11 sequences, 12 blocks.
#include prelude
@group(0) @binding(0) var<storage, read> q: array<f32>;
#if CACHED
@group(0) @binding(1) var<storage, read> keys: array<u32>;
@group(0) @binding(2) var<storage, read> values: array<u32>;
@group(0) @binding(3) var<storage, read> table: array<u32>;
#else
@group(0) @binding(1) var<storage, read> keys: array<f32>;
@group(0) @binding(2) var<storage, read> values: array<f32>;
@group(0) @binding(3) var<storage, read> mask: array<f32>;
#endif
@group(0) @binding(4) var<storage, read> sinks: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;

const DV = {{DV}};

#if CACHED
#include kv
fn key(at: u32, n: u32, e: u32) -> f32 {
#if KV_F32
    return bitcast<f32>(keys[at + e]);
#endif
#if KV_F16
    return unpack2x16float(keys[at + e / 2u])[e % 2u];
#endif
#if KV_BF16
    return bitcast<f32>((keys[at + e / 2u] >> (16u * (e % 2u))) << 16u);
#endif
#if KV_Q8
    return f32(unpack4xI8(keys[at + e / 4u])[e % 4u]) * bitcast<f32>(keys[at + n / 4u + e / 32u]);
#endif
}

fn value(at: u32, n: u32, e: u32) -> f32 {
#if KV_F32
    return bitcast<f32>(values[at + e]);
#endif
#if KV_F16
    return unpack2x16float(values[at + e / 2u])[e % 2u];
#endif
#if KV_BF16
    return bitcast<f32>((values[at + e / 2u] >> (16u * (e % 2u))) << 16u);
#endif
#if KV_Q8
    return f32(unpack4xI8(values[at + e / 4u])[e % 4u]) * bitcast<f32>(values[at + n / 4u + e / 32u]);
#endif
}
#endif

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) nwg: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = group_id(wid, nwg) * 64u + lane;
    let n_heads = p(1u);
    let row = i / n_heads;
    let head = i % n_heads;
    if row >= p(0u) {
        return;
    }
    let n_groups = p(2u);
    let group = head / (n_heads / n_groups);
    let d = p(3u);
    let at_q = (row * n_heads + head) * d;
#if CACHED
    let seq = p(11u) + 4u * table[p(10u) + row];
    let n_keys = table[seq + 1u] + table[seq + 2u];
    let blocks = p(12u) + table[seq + 3u];
    let position = i32(table[p(9u) + row]);
    let n_k = n_groups * d;
    let n_v = n_groups * DV;
#else
    let n_keys = p(7u);
    let position = i32(row) + i32(n_keys) - i32(p(0u));
#endif
    var first = 0u;
    if p(5u) > 0u && position >= i32(p(5u)) {
        first = u32(position) - p(5u) + 1u;
    }
    var end = n_keys;
#if CAUSAL
    end = min(n_keys, u32(max(position + 1, 0)));
#endif
    var acc = array<f32, DV>();
    var top = -3.4028235e38;
    var sum = 0.0;
#if SINKS
    top = sinks[head];
    sum = 1.0;
#endif
    for (var j = first; j < end; j++) {
        var score = 0.0;
#if CACHED
        let place = table[blocks + j / {{BLOCK}}] * {{BLOCK}} + j % {{BLOCK}};
        let at_k = place * row_words(n_k);
        for (var e = 0u; e < d; e++) {
            score += q[at_q + e] * key(at_k, n_k, group * d + e);
        }
#else
        let at_k = (j * n_groups + group) * d;
        for (var e = 0u; e < d; e++) {
            score += q[at_q + e] * keys[at_k + e];
        }
#endif
        score *= pf(4u);
        if pf(6u) > 0.0 {
            let z = score / pf(6u);
            let t = exp(-2.0 * min(abs(z), 10.0));
            score = pf(6u) * sign(z) * (1.0 - t) / (1.0 + t);
        }
#if MASK
        let m = mask[(head * p(8u) * p(0u) + row) * n_keys + j];
        if m < -3.0e38 {
            continue;
        }
        score += m;
#endif
        if score > top {
            let shrink = exp(top - score);
            top = score;
            sum *= shrink;
            for (var e = 0u; e < DV; e++) {
                acc[e] *= shrink;
            }
        }
        let weight = exp(score - top);
        sum += weight;
#if CACHED
        let at_v = place * row_words(n_v);
        for (var e = 0u; e < DV; e++) {
            acc[e] += weight * value(at_v, n_v, group * DV + e);
        }
#else
        let at_v = (j * n_groups + group) * DV;
        for (var e = 0u; e < DV; e++) {
            acc[e] += weight * values[at_v + e];
        }
#endif
    }
    let inverse = select(0.0, 1.0 / sum, sum > 0.0);
    for (var e = 0u; e < DV; e++) {
        y[(row * n_heads + head) * DV + e] = acc[e] * inverse;
    }
}
