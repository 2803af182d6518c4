// y = x Wᵀ (+ bias) where both are computed, batch by batch. Constants: 0 rows of x, 1 columns, 2 k, 3 rows of x in a
// batch.
#include prelude
@group(0) @binding(0) var<storage, read> w: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

#include entry_each

fn each(i: u32) {
    let n = p(1u);
    let row = i / n;
    let column = i % n;
    if row >= p(0u) {
        return;
    }
    let k = p(2u);
    let base = (row / p(3u) * n + column) * k;
    var sum = 0.0;
    for (var e = 0u; e < k; e++) {
        sum += x[row * k + e] * w[base + e];
    }
#if BIAS
    sum += bias[column];
#endif
    y[i] = sum;
}
