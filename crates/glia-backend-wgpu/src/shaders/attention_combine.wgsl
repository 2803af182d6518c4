// The parts that splits have made of each query, added up: a thread for four elements. Constants: 0 queries of all
// heads, 1 splits.
#include prelude
@group(0) @binding(0) var<storage, read> parts: array<f32>;
@group(0) @binding(1) var<storage, read> sinks: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

const HEADS = {{HEADS}};
const DV = {{DV}};
const NV = {{NV}};

#include entry_each

fn each(i: u32) {
    let place = i / (2u * NV);
    let e = i % (2u * NV) * 4u;
    if place >= p(0u) || e >= DV {
        return;
    }
    let n_splits = p(1u);
    let stats = p(0u) * n_splits * 8u * NV + 2u * place * n_splits;
#if SINKS
    var top = sinks[place % HEADS];
    var sum = 1.0;
#else
    var top = -3.4028235e38;
    var sum = 0.0;
#endif
    var acc = vec4<f32>();
    for (var s = 0u; s < n_splits; s++) {
        let own = parts[stats + 2u * s];
        let own_sum = parts[stats + 2u * s + 1u];
        // A split of which nothing is seen has left no elements.
        if own_sum != 0.0 {
            let at = (place * n_splits + s) * 8u * NV + e;
            let highest = max(top, own);
            let shrink = exp(top - highest);
            let weight = exp(own - highest);
            sum = sum * shrink + own_sum * weight;
            acc = acc * shrink + weight * vec4<f32>(parts[at], parts[at + 1u], parts[at + 2u], parts[at + 3u]);
            top = highest;
        }
    }
    let factor = select(0.0, 1.0 / sum, sum != 0.0);
    for (var l = 0u; l < min(4u, DV - e); l++) {
        y[place * DV + e + l] = acc[l] * factor;
    }
}
