// Writes new rows to their places in one part of a cache. Constants: 0 rows, 1 elements of a row.
#include prelude
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> table: array<u32>;
@group(0) @binding(2) var<storage, read_write> cache: array<u32>;

#include kv

#if KV_Q8
const UNIT = 32u;
#else
const UNIT = ELEMS_PER_WORD;
#endif

#include entry_each

fn each(i: u32) {
    let n = p(1u);
    let units = n / UNIT;
    let row = i / units;
    if row >= p(0u) {
        return;
    }
    let unit = i % units;
    let source = row * n + unit * UNIT;
    let place = table[row] * row_words(n);
#if KV_F32
    cache[place + unit] = bitcast<u32>(x[source]);
#endif
#if KV_F16
    cache[place + unit] = to_f16(x[source]) | (to_f16(x[source + 1u]) << 16u);
#endif
#if KV_BF16
    cache[place + unit] = to_bf16(x[source]) | (to_bf16(x[source + 1u]) << 16u);
#endif
#if KV_Q8
    var largest = 0.0;
    for (var j = 0u; j < 32u; j++) {
        largest = max(largest, abs(x[source + j]));
    }
    let d = largest / 127.0;
    let inverse = select(0.0, 1.0 / d, d > 0.0);
    for (var j = 0u; j < 8u; j++) {
        let v = vec4<f32>(x[source + 4u * j], x[source + 4u * j + 1u], x[source + 4u * j + 2u], x[source + 4u * j + 3u]);
        // Halves away from zero, as the format rounds.
        let q = vec4<i32>(sign(v) * floor(abs(v) * inverse + 0.5));
        cache[place + unit * 8u + j] = pack4xI8(q);
    }
    cache[place + n / 4u + unit] = bitcast<u32>(unpack2x16float(pack2x16float(vec2<f32>(d, 0.0))).x);
#endif
}
